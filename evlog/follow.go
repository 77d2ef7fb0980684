package evlog

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/evlog-go/evlog/internal/format"
	"github.com/evlog-go/evlog/internal/vfs"
)

const (
	// damagedWait is how long a DURABLE that is missing or damaged may stay so
	// before a reader believes it: a writer may be replacing it.
	damagedWait = 100 * time.Millisecond
	// The interval of polling where no file events come: after activity, and
	// when idle. With events it is only the net beneath them.
	pollBusy   = time.Millisecond
	pollIdle   = 100 * time.Millisecond
	pollBeside = 250 * time.Millisecond
)

// fileSource is the durable position as another process publishes it. What
// DURABLE says is the truth; file events only say when to look.
type fileSource struct {
	r      *Reader
	closed chan struct{}

	mu      sync.Mutex // guards the rest
	watcher *watcher
	checked vfs.Stamp // the log.json that was found to be this log's
	unknown time.Time // since when DURABLE is missing or damaged; zero: it is not
	last    format.Durable
}

func newFileSource(r *Reader) *fileSource {
	return &fileSource{r: r, closed: make(chan struct{})}
}

func (s *fileSource) entries(uint64) (entrySlice, bool) { return nil, false }
func (s *fileSource) changes() (uint64, bool)           { return 0, false }

func (s *fileSource) close() {
	close(s.closed) // whoever waits ends, and the last one ends the watcher
}

// load reads DURABLE. While it is missing or damaged, that may be a writer at
// work; for longer, the durable end is the base of the active segment.
func (s *fileSource) load(ctx context.Context) (format.Durable, error, error) {
	for {
		d, err := readDurable(s.r.dir)
		since := s.found(d, err)
		switch {
		case err == nil:
			return d, nil, nil
		case !durableUnknown(err):
			return d, nil, s.r.closedOr(wrap("read DURABLE", err))
		case since >= damagedWait:
			return s.assume(err)
		}
		if err := s.pause(ctx, 5*time.Millisecond); err != nil {
			return d, nil, err
		}
	}
}

// found notes what reading DURABLE has led to, and returns for how long it could not
// be read.
func (s *fileSource) found(d format.Durable, err error) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.last = d
	}
	if err == nil || !durableUnknown(err) {
		s.unknown = time.Time{}
		return 0
	}
	if s.unknown.IsZero() {
		s.unknown = time.Now()
	}
	return time.Since(s.unknown)
}

func (s *fileSource) known() format.Durable {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

func (s *fileSource) assume(cause error) (format.Durable, error, error) {
	segments, err := s.r.listTwice()
	if err != nil {
		return format.Durable{}, nil, err
	}
	if len(segments) == 0 {
		return format.Durable{}, nil, fmt.Errorf("evlog: %s: %w: every segment is gone", s.r.dir.Path(), ErrNoLog)
	}
	base := segments.active()
	return format.Durable{NextOffset: base, Base: base}, cause, nil
}

func (s *fileSource) pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.closed:
		return ErrClosed
	}
}

// waiter returns a function that waits until DURABLE says more than next, is
// unreadable, or ctx ends, and one to call when no more waiting follows.
func (s *fileSource) waiter() (wait func(ctx context.Context, next uint64) error, stop func()) {
	events := s.join()
	wait = func(ctx context.Context, next uint64) error { return s.wait(ctx, next, events) }
	if events == nil {
		return wait, func() {}
	}
	return wait, s.leave
}

func (s *fileSource) wait(ctx context.Context, next uint64, events *watcher) error {
	interval := pollBusy
	if s.r.opts.PollInterval > 0 {
		interval = s.r.opts.PollInterval
	}
	for {
		var changed <-chan struct{}
		if events != nil {
			// Taken before looking, so that nothing is missed in between.
			changed = events.next()
		}
		if more, err := s.look(next); more || err != nil {
			return s.r.closedOr(err)
		}
		if err := s.sleep(ctx, changed, &interval); err != nil {
			return err
		}
	}
}

// look reports whether there may be more than next. It also notices that
// DURABLE is lost, and that there is another log now, or none.
func (s *fileSource) look(next uint64) (more bool, err error) {
	d, err := readDurable(s.r.dir)
	since := s.found(d, err)
	switch {
	case err == nil && d.NextOffset <= next:
		return false, nil
	case err == nil:
		return true, s.sameLog()
	case !durableUnknown(err):
		return false, wrap("read DURABLE", err)
	case since < damagedWait:
		return false, nil
	}
	d, cause, err := s.assume(err)
	if err != nil {
		return false, err
	}
	s.r.note(durableLost, cause)
	return d.NextOffset > next, nil
}

// sameLog tests that the files in the directory are still those of the log that
// was opened. log.json is read only when it was replaced.
func (s *fileSource) sameLog() error {
	stamp, err := vfs.StampOf(s.r.dir, format.MetaName)
	if err != nil || s.r.meta == nil {
		return nil // nothing to compare
	}
	s.mu.Lock()
	known := s.checked == stamp
	s.checked = stamp
	s.mu.Unlock()
	if known {
		return nil
	}
	if m, err := readMeta(s.r.dir); err == nil && m.ID != s.r.meta.ID {
		return fmt.Errorf("evlog: follow %s: %w: another log, %s, has taken its place", s.r.dir.Path(), ErrNoLog, m.ID)
	}
	return nil
}

// sleep waits for an event or the next poll, and grows the interval.
func (s *fileSource) sleep(ctx context.Context, changed <-chan struct{}, interval *time.Duration) error {
	d := *interval
	switch {
	case s.r.opts.PollInterval > 0:
	case changed != nil:
		d = pollBeside
	default:
		// A pause of a quarter of the idle time so far: late by a quarter at most.
		*interval = min(pollIdle, *interval+*interval/4+1)
	}
	c, stop := s.r.clock.Timer(d)
	defer stop()
	select {
	case <-c:
		return nil
	case <-changed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.closed:
		return ErrClosed
	}
}

// join returns the file events of the directory, shared by all who follow; nil
// where there are none.
func (s *fileSource) join() *watcher {
	if _, ok := s.r.dir.(vfs.Watchable); !ok || s.r.opts.NoFileEvents {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watcher == nil {
		if s.r.usable() != nil {
			return nil
		}
		w, err := newWatcher(s.r.dir.Path())
		if err != nil {
			s.r.note("no file events, polling instead", err)
			return nil
		}
		s.watcher = w
	}
	s.watcher.users++
	return s.watcher
}

// leave ends the watcher with the last one who follows.
func (s *fileSource) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watcher.users--; s.watcher.users == 0 {
		s.watcher.stop()
		s.watcher = nil
	}
}

// watcher turns events on DURABLE into one signal for everybody.
type watcher struct {
	fs    *fsnotify.Watcher
	done  chan struct{}
	users int // guarded by fileSource.mu

	mu     sync.Mutex
	signal chan struct{}
}

func newWatcher(path string) (*watcher, error) {
	fs, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	if err := fs.Add(path); err != nil {
		return nil, errors.Join(err, fs.Close())
	}
	w := &watcher{fs: fs, done: make(chan struct{}), signal: make(chan struct{})}
	go w.run()
	return w, nil
}

// next returns a channel that is closed at the next event.
func (w *watcher) next() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.signal
}

func (w *watcher) run() {
	defer close(w.done)
	for {
		select {
		case e, ok := <-w.fs.Events:
			if !ok {
				return
			}
			if filepath.Base(e.Name) != format.DurableName {
				continue
			}
		case _, ok := <-w.fs.Errors:
			if !ok {
				return
			}
			// Events were lost: look.
		}
		w.mu.Lock()
		close(w.signal)
		w.signal = make(chan struct{})
		w.mu.Unlock()
	}
}

func (w *watcher) stop() {
	_ = w.fs.Close()
	<-w.done
}
