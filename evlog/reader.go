package evlog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/evlog-go/evlog/internal/format"
	"github.com/evlog-go/evlog/internal/vfs"
)

// Reader reads a log, in the writer's process (Log.Reader) or in any other
// (OpenReader). It takes no lock, needs no right to write, creates nothing, and
// never holds up the writer. It returns only records that are durable.
//
// All methods are safe for concurrent use; what an iterator yields belongs to
// the goroutine that ranges over it.
type Reader struct {
	dir    vfs.Dir
	logger *slog.Logger
	clock  Clock
	src    durableSource
	owned  bool // dir is the reader's own
	opts   ReaderOptions

	visited atomic.Uint64
	active  activeKeys

	mu       sync.Mutex // guards the rest
	segments listing    // the directory as last listed
	files    fileCache
	times    map[uint64]segTimes
	filters  map[uint64]knownFilter // of closed segments; at most maxKnownFilters
	meta     *meta
	metaErr  error
	noted    string // the last notice about DURABLE, so that it is given once
	closed   bool
}

// durableSource says how far the log is durable.
type durableSource interface {
	// load returns the durable position. A position that had to be assumed
	// comes with the reason in assumed.
	load(ctx context.Context) (d format.Durable, assumed error, err error)
	// known returns what was durable when that was last found out; zero: never.
	known() format.Durable
	// waiter returns a function that waits until the durable offset may be above
	// next, or ctx ends, and one to call when no more waiting follows.
	waiter() (wait func(ctx context.Context, next uint64) error, stop func())
	// entries returns the index of the active segment, where it is in memory.
	entries(base uint64) (entrySlice, bool)
	// changes counts how often the name of a segment was given to another file or
	// to none; ok is false where another process may do that.
	changes() (n uint64, ok bool)
	close()
}

// OpenReader opens the log in dir for reading. A directory that is missing,
// empty, or holds no log is ErrNoLog; a log by a later version is ErrVersion.
func OpenReader(ctx context.Context, dir string, opts *ReaderOptions) (*Reader, error) {
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	d, err := vfs.FromContext(ctx).OpenDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("evlog: open %s: %w: the directory is missing", dir, ErrNoLog)
	}
	if err != nil {
		return nil, wrap("open", err)
	}
	r := newReader(d, o, nil)
	r.owned = true
	if err := r.open(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	r.src = newFileSource(r)
	return r, nil
}

func newReader(d vfs.Dir, o ReaderOptions, src durableSource) *Reader {
	return &Reader{
		dir: d, logger: o.Logger, clock: o.Clock, opts: o, src: src,
		times: map[uint64]segTimes{}, filters: map[uint64]knownFilter{},
	}
}

func (r *Reader) open() error {
	segments, err := mustHold(r.dir)
	if err != nil {
		return err
	}
	r.segments = segments
	r.meta, r.metaErr = readMeta(r.dir)
	switch {
	case r.metaErr == nil:
	case errors.Is(r.metaErr, ErrVersion):
		return wrap("open "+pathOf(r.dir, format.MetaName), r.metaErr)
	case errors.Is(r.metaErr, fs.ErrNotExist), errors.Is(r.metaErr, errMeta):
		r.logger.Warn("reading as format 1", "err", r.metaErr)
	default:
		return wrap("read log.json", r.metaErr)
	}
	return nil
}

// newLogReader is the reader of a log in the same process.
func newLogReader(l *Log) *Reader {
	r := newReader(l.dir, ReaderOptions{Logger: l.logger, Clock: l.clock, OnBehind: l.opts.OnBehind}, logSource{l})
	r.meta = l.meta
	return r
}

// Close releases the reader. Iterators end with ErrClosed. Closing it again does
// nothing. The reader of a Log is closed with the log instead.
func (r *Reader) Close() error {
	if !r.owned {
		return nil
	}
	if !r.shut() {
		return nil
	}
	return r.dir.Close()
}

// shut ends iterators and releases open files. It reports whether it was the
// first to do so.
func (r *Reader) shut() bool {
	r.mu.Lock()
	done := r.closed
	r.closed = true
	r.files.purge(nil)
	r.mu.Unlock()
	if !done {
		r.src.close()
	}
	return !done
}

// ID is the log's identity. It is empty where log.json is missing or damaged.
func (r *Reader) ID() string {
	if r.meta == nil {
		return ""
	}
	return r.meta.ID
}

// Bounds returns the half-open range of offsets that can be read. first is a
// lower bound: the first record left may have a higher offset. In an empty log
// both are equal. What has been removed by the time first is read from is an
// *OffsetError, which says where to go on. After a crash during a removal first may
// be lower for a moment, until the removal is done again.
func (r *Reader) Bounds(ctx context.Context) (first, next uint64, err error) {
	d, err := r.durable(ctx)
	if err != nil {
		return 0, 0, err
	}
	segments, err := r.listTwice()
	if err != nil {
		return 0, 0, err
	}
	if len(segments) == 0 {
		return 0, 0, fmt.Errorf("evlog: %s: %w: every segment is gone", r.dir.Path(), ErrNoLog)
	}
	return segments[0], max(segments[0], d.NextOffset), nil
}

// durable returns how far the log may be read. With BeyondDurable there is no
// limit but the first damage.
func (r *Reader) durable(ctx context.Context) (format.Durable, error) {
	if err := r.usable(); err != nil {
		return format.Durable{}, err
	}
	if r.opts.BeyondDurable {
		d, err := r.salvageEnd(ctx)
		return d, r.closedOr(err)
	}
	d, assumed, err := r.src.load(ctx)
	if err != nil {
		return d, err
	}
	if assumed != nil {
		r.note(durableLost, assumed)
	}
	return d, nil
}

// durableLost is the notice for a DURABLE that is missing or damaged.
const durableLost = "the durable position is not known; reading up to the active segment only"

// salvageEnd is the position behind the last valid record of the active segment.
func (r *Reader) salvageEnd(ctx context.Context) (format.Durable, error) {
	segments, err := r.listTwice()
	if err != nil || len(segments) == 0 {
		return format.Durable{}, err
	}
	base := segments.active()
	s, err := r.acquire(base)
	if err != nil {
		return format.Durable{}, err
	}
	defer r.release(s)
	res, err := scanSegment(s.f, base, func(int64, format.Header, []byte) error { return ctx.Err() })
	return format.Durable{NextOffset: res.next, Base: base, Position: res.end}, err
}

func (r *Reader) usable() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return ErrClosed
	}
	return nil
}

// closedOr returns ErrClosed in place of an error that comes from the reader's
// being closed under the call.
func (r *Reader) closedOr(err error) error {
	if err == nil || !errors.Is(err, fs.ErrClosed) {
		return err
	}
	if closed := r.usable(); closed != nil {
		return closed
	}
	return err
}

// note logs a notice once, until another one comes.
func (r *Reader) note(msg string, err error) {
	r.mu.Lock()
	known := r.noted == err.Error()
	r.noted = err.Error()
	r.mu.Unlock()
	if !known {
		r.logger.Warn(msg, "err", err)
	}
}

// list lists the directory and remembers the result. Whoever believes what it
// lacks has to look again.
func (r *Reader) list() (listing, error) { return r.listBy(listSegments) }

// listTwice is list for those who go by the names alone: two listings hardly both
// miss one.
func (r *Reader) listTwice() (listing, error) { return r.listBy(allSegments) }

func (r *Reader) listBy(listSegments func(vfs.Dir) (listing, error)) (listing, error) {
	segments, err := listSegments(r.dir)
	if err != nil {
		return nil, r.closedOr(wrap("list "+r.dir.Path(), err))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.segments = segments
	r.files.purge(segments)
	if len(r.times) > len(segments) {
		clear(r.times) // some are of segments that are gone; the rest is learnt again
	}
	return segments, nil
}

// listed returns the directory as last listed, listing it if it never was.
func (r *Reader) listed() (listing, error) {
	r.mu.Lock()
	segments := r.segments
	r.mu.Unlock()
	if len(segments) > 0 {
		return segments, nil
	}
	return r.list()
}

// leaves lets go of a segment that is about to be removed from the old end: an
// open file would keep its space. Whoever reads it goes on.
func (r *Reader) leaves(base uint64) {
	r.forget(base)
	r.mu.Lock()
	defer r.mu.Unlock()
	if i, ok := slices.BinarySearch(r.segments, base); ok {
		r.segments = r.segments[i+1:]
	}
	delete(r.times, base)
}

// rolled takes a new segment into the listing.
func (r *Reader) rolled(base uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.segments); n > 0 && r.segments[n-1] < base {
		r.segments = append(r.segments[:n:n], base)
	}
}

// config is the stored configuration, or the defaults.
func (r *Reader) config() StoredConfig {
	if r.meta == nil {
		return metaConfig{}.stored()
	}
	return r.meta.Config.stored()
}

func (r *Reader) gaps() []OffsetRange {
	if r.meta == nil {
		return nil
	}
	return r.meta.Gaps
}

// logSource is the durable position of a log in the same process.
type logSource struct{ l *Log }

// load waits for names that opening found and that are not yet durable: what is read
// may lead to effects elsewhere (I2).
func (s logSource) load(context.Context) (format.Durable, error, error) {
	if err := s.l.dir.settle(); err != nil {
		return format.Durable{}, nil, wrap("open", err)
	}
	return s.l.pub.load(), nil, nil
}

func (s logSource) known() format.Durable {
	if s.l.dir.found.Load() {
		return format.Durable{}
	}
	return s.l.pub.load()
}

func (s logSource) waiter() (func(context.Context, uint64) error, func()) {
	return s.wait, func() {}
}

func (s logSource) wait(ctx context.Context, next uint64) error {
	changed, closed := s.l.pub.watch(next)
	if closed {
		return ErrClosed
	}
	if changed == nil {
		return nil
	}
	return waitFor(ctx, changed)
}

func (s logSource) entries(base uint64) (entrySlice, bool) { return s.l.act.entries(base) }
func (s logSource) changes() (uint64, bool)                { return s.l.closed.changes.Load(), true }
func (s logSource) close()                                 { s.l.pub.close() }
