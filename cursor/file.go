package cursor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/format"
	"github.com/evlog-go/evlog/internal/vfs"
)

// FileOptions are the choices of OpenFile. Nil and the zero value mean
// defaults.
type FileOptions struct {
	// Logger gets a notice where a change has to wait long. Nil is silent.
	Logger *slog.Logger
	// Clock gives the time of a commit. Nil is the system's.
	Clock evlog.Clock
	// AllowNetworkFS commits on a network file system, without any promise. By
	// default that is evlog.ErrNetworkFS.
	AllowNetworkFS bool
}

// File is the Store in a log's own directory, consumers.json. Any number of
// processes may use it at once. It is a Resetter too.
//
// Each change takes consumers.lock, reads the file, compares, and replaces the
// file as a whole, so that a reader sees it before or after, and a crash leaves
// it so. Nothing is kept in memory from one call to the next: after a failed
// sync the file may be another one than what was written (I5), and each change
// starts from what is there and makes all of it durable again.
//
// A file that is damaged, empty or truncated is evlog.ErrCorrupt, one by a later
// version evlog.ErrVersion; both name it, and neither is ever taken for a
// consumer that starts anew.
type File struct {
	dir    vfs.Dir
	logID  string
	logger *slog.Logger
	now    func() time.Time
	netOK  bool

	// turn is held by the goroutine of this process that changes the file: a
	// process does not poll for a lock that it holds itself.
	turn     chan struct{}
	prepared bool // the first change was prepared; belongs to who has the turn
}

var (
	_ Store    = (*File)(nil)
	_ Resetter = (*File)(nil)
	_ Bound    = (*File)(nil)
)

// OpenFile opens the store of the log in dir, which must be there. It creates
// nothing and takes no lock: that is for the first commit to do.
func OpenFile(ctx context.Context, dir string, opts *FileOptions) (*File, error) {
	var o FileOptions
	if opts != nil {
		o = *opts
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	now := time.Now
	if o.Clock != nil {
		now = o.Clock.Now
	}
	r, err := evlog.OpenReader(ctx, dir, &evlog.ReaderOptions{Logger: o.Logger, Clock: o.Clock})
	if err != nil {
		return nil, err
	}
	id := r.ID()
	if err := r.Close(); err != nil {
		return nil, err
	}
	d, err := vfs.FromContext(ctx).OpenDir(dir)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", dir, err)
	}
	return &File{dir: d, logID: id, logger: o.Logger, now: now, netOK: o.AllowNetworkFS, turn: make(chan struct{}, 1)}, nil
}

// Close releases the directory. Calls that are under way fail.
func (f *File) Close() error { return f.dir.Close() }

// LogID implements Bound. Empty: the id is not known, and nothing can be
// committed (ErrNoLogID).
func (f *File) LogID() string { return f.logID }

// Path is the path of consumers.json.
func (f *File) Path() string { return filepath.Join(f.dir.Path(), format.ConsumersName) }

// Load implements Store. Without the log's id it is ErrNoLogID: nothing tells
// whether the position belongs to the log.
func (f *File) Load(ctx context.Context, name string) (Position, error) {
	if err := f.check(name); err != nil {
		return Position{}, err
	}
	t, err := f.read(ctx)
	if err != nil {
		return Position{}, err
	}
	e, err := t.find(name, f.logID)
	if err != nil {
		return Position{}, err
	}
	return e.position(name, f.logID), nil
}

// check comes first in what depends on name and log.
func (f *File) check(name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if f.logID == "" {
		return fmt.Errorf("consumer %q in %s: %w", name, f.Path(), ErrNoLogID)
	}
	return nil
}

// Commit implements Store.
func (f *File) Commit(ctx context.Context, name string, from, to uint64) error {
	if err := f.check(name); err != nil {
		return err
	}
	if to < from {
		return fmt.Errorf("consumer %q: commit of %d below %d: %w", name, to, from, ErrOrder)
	}
	return f.change(ctx, func(t *table) error {
		e, err := t.find(name, f.logID)
		if err != nil && !errors.Is(err, ErrUnknownConsumer) {
			return err
		}
		return f.move(t, name, e, from, to)
	})
}

// Reset implements Resetter. Cursors of other consumers that were made for
// another log stay what they are.
func (f *File) Reset(ctx context.Context, name string, from, to uint64) error {
	if err := f.check(name); err != nil {
		return err
	}
	return f.change(ctx, func(t *table) error {
		e, err := t.find(name, f.logID)
		if err != nil && !errors.Is(err, ErrUnknownConsumer) && !errors.Is(err, ErrWrongLog) {
			return err
		}
		return f.move(t, name, e, from, to)
	})
}

// move is the compare and set on which two consumers under one name meet.
func (f *File) move(t *table, name string, e entry, from, to uint64) error {
	if e.next != from {
		return &MovedError{Name: name, Want: from, Stored: e.next}
	}
	e.next, e.updatedMS = to, f.now().UnixMilli()
	t.bind(f.logID)
	t.put(name, e)
	return nil
}

// List implements Store.
func (f *File) List(ctx context.Context) ([]Position, error) {
	t, err := f.read(ctx)
	if err != nil {
		return nil, err
	}
	return t.positions(), nil
}

// Remove implements Store.
func (f *File) Remove(ctx context.Context, name string) error {
	return f.change(ctx, func(t *table) error {
		if !t.drop(name) {
			return fmt.Errorf("consumer %q: %w", name, ErrUnknownConsumer)
		}
		return nil
	})
}

// change replaces the file by what apply makes of it.
func (f *File) change(ctx context.Context, apply func(*table) error) (err error) {
	unlock, err := f.lock(ctx)
	if err != nil {
		return fmt.Errorf("lock %s: %w", filepath.Join(f.dir.Path(), format.ConsumersLock), err)
	}
	defer func() {
		if unlockErr := unlock(); unlockErr != nil {
			err = errors.Join(err, unlockErr)
		}
	}()
	t, err := f.read(ctx)
	if err != nil {
		return err
	}
	if err := apply(t); err != nil {
		return err
	}
	// Written also where nothing has changed: that the file can be read so does
	// not mean that it is on the disk so. A process may have died between its
	// rename and the sync of the directory, or that sync may have failed.
	if err := f.replace(ctx, t.encode()); err != nil {
		return fmt.Errorf("replace %s: %w", f.Path(), err)
	}
	return nil
}
