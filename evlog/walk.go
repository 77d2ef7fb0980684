package evlog

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/evlog-go/evlog/internal/format"
)

// walker goes through the records of a log in ascending order. What it holds on
// to is an offset (I6): when a segment ends, it looks again at what the
// directory holds, since segments may have been rolled, replaced, merged or
// removed meanwhile. It belongs to one goroutine.
type walker struct {
	r     *Reader
	next  uint64         // the record wanted: the first with this offset or a higher one
	limit format.Durable // records below limit.NextOffset may be read
	key   *wantedKey     // segments that cannot hold it are passed over; nil: none are

	seg      *segFile // being read; nil: to be found
	fr       frames
	segments listing  // made before seg was opened
	ahead    int64    // what to read at once; 0 is no opinion
	time     lastTime // of the record before
	doubts   int      // how often found was met, since the last record
	found    finding  // what was met last

	onBehind func(*OffsetError) bool // ReaderOptions.OnBehind; nil: never go on
}

func (r *Reader) newWalker(from uint64, limit format.Durable) *walker {
	return &walker{r: r, next: from, limit: limit}
}

func (w *walker) close() {
	w.leave()
	w.fr.release()
	w.r.visited.Add(w.fr.seen)
}

// leave gives the segment back; the buffer stays.
func (w *walker) leave() {
	w.fr.endAhead()
	if w.seg != nil {
		w.r.release(w.seg)
		w.seg = nil
	}
}

// extend moves the limit up. Bytes beyond the old one may have been read while
// they were being written: they are read again.
func (w *walker) extend(limit format.Durable) error {
	w.limit = limit
	w.fr.drop()
	switch {
	case w.seg == nil:
		return nil
	case w.seg.base == limit.Base && limit.Position > w.fr.pos:
		// The file is at least that long, and what is behind is not wanted. A follower
		// who is woken for one record would wait as long for the size as for the record.
		w.sized(limit.Position)
		return nil
	}
	return w.measure()
}

// measure takes the size of the segment's file.
func (w *walker) measure() error {
	info, err := w.seg.f.Stat()
	if err != nil {
		return err
	}
	w.sized(info.Size())
	return nil
}

// sized takes size for the end of the segment's file, and tells how much of it is
// worth reading ahead.
func (w *walker) sized(size int64) {
	w.fr.limit = size
	w.fr.ahead = w.ahead
	w.fr.still = 0
	if w.seg.base <= w.limit.Base {
		w.fr.still = w.validEnd()
	}
	if w.seg.base == w.limit.Base {
		// An active segment may end in zeros that nobody needs.
		if left := w.limit.Position - w.fr.pos; left > 0 && (w.ahead == 0 || left < w.ahead) {
			w.fr.ahead = left
		}
	}
}

// step returns the next record below the limit, as it stands in the buffer:
// valid until the next call. io.EOF says that there is none.
func (w *walker) step(ctx context.Context) (format.Header, []byte, error) {
	h, rec, err := w.walk(ctx)
	if err != nil && err != io.EOF {
		err = w.r.closedOr(err)
	}
	return h, rec, err
}

func (w *walker) walk(ctx context.Context) (format.Header, []byte, error) {
	for w.next < w.limit.NextOffset {
		if w.seg == nil {
			if err := w.find(ctx); err != nil {
				return format.Header{}, nil, err
			}
			continue // find may have moved next
		}
		h, rec, err := w.fr.next()
		if err != nil {
			if err := w.segmentEnd(ctx, err); err != nil {
				return format.Header{}, nil, err
			}
			continue
		}
		if h.Offset < w.next {
			continue
		}
		if h.Offset >= w.limit.NextOffset {
			// Not durable yet. It is read again when it is.
			w.fr.seek(w.fr.pos-h.Size(), w.limit.NextOffset)
			break
		}
		w.next = h.Offset + 1
		w.doubts = 0
		return h, rec, nil
	}
	w.next = max(w.next, w.limit.NextOffset)
	return format.Header{}, nil, io.EOF
}

// run returns the next records, back to back and checked, valid until the next
// call. The first ones may be below next, the last ones at or above the limit:
// whoever goes through them moves next along. io.EOF says that none are left.
func (w *walker) run(ctx context.Context) ([]byte, error) {
	for w.next < w.limit.NextOffset {
		if w.seg == nil {
			if err := w.find(ctx); err != nil {
				return nil, w.r.closedOr(err)
			}
			continue // find may have moved next
		}
		run, err := w.fr.run()
		if err == nil {
			return run, nil
		}
		if err := w.segmentEnd(ctx, err); err != nil {
			return nil, w.r.closedOr(err)
		}
	}
	w.next = max(w.next, w.limit.NextOffset)
	return nil, io.EOF
}

// find opens the segment that next is in and goes to its place there.
func (w *walker) find(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	segments, err := w.r.listed()
	if err != nil {
		return err
	}
	base, ok := segments.covering(w.next)
	if ok {
		err = w.enterNext(ctx, base, segments)
		if err == nil || !gone(err) {
			return err
		}
	}
	return w.relist(ctx)
}

// enterNext is enter for going up: where a key is wanted, it goes on to the
// first segment from base on that may hold it.
func (w *walker) enterNext(ctx context.Context, base uint64, segments listing) error {
	for {
		above, skips, err := w.skips(ctx, base, segments)
		if err != nil {
			return err
		}
		if !skips {
			return w.enter(base, segments)
		}
		if above >= w.limit.NextOffset {
			w.next = max(w.next, above)
			return nil // nothing is left
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		w.next, base = above, above
	}
}

// enter opens a segment and goes to the first record at or after next, or as
// near before it as the index tells. segments is a listing made before.
func (w *walker) enter(base uint64, segments listing) error {
	s, err := w.r.acquire(base)
	if err != nil {
		return err
	}
	w.leave()
	w.seg, w.segments = s, segments
	w.fr.f = s.f
	w.fr.seek(0, base)
	if err := w.measure(); err != nil {
		return err
	}
	if w.next <= base {
		return nil
	}
	pos, offset, err := w.seek()
	if err != nil {
		return err
	}
	w.fr.seek(pos, offset)
	return w.measure()
}

// seek finds a position at or before next in the segment just entered, and the
// lowest offset that may stand there.
func (w *walker) seek() (pos int64, offset uint64, err error) {
	entries, err := w.seg.entries(w.r, w.validEnd(), w.seg.base < w.limit.Base)
	if err == nil {
		var e format.IndexEntry
		var ok bool
		e, ok, err = entries.last(func(e format.IndexEntry) bool { return e.Offset <= w.next })
		if err == nil && ok && e.Offset <= w.next && trustEntry(w.seg.f, e, w.fr.limit) {
			return e.Pos, e.Offset, nil
		}
	}
	if err != nil && !noIndex(err) {
		return 0, 0, err
	}
	return 0, w.seg.base, nil
}

// validEnd is the position up to which the segment can hold durable records.
func (w *walker) validEnd() int64 {
	if w.seg.base == w.limit.Base {
		return min(w.limit.Position, w.fr.limit)
	}
	return w.fr.limit
}

// segmentEnd decides what follows where reading the segment ended with cause:
// the end of the file, bytes that are no record, or an error.
func (w *walker) segmentEnd(ctx context.Context, cause error) error {
	if cause != io.EOF && !invalidRecord(cause) {
		return wrap(fmt.Sprintf("read %s at byte %d", pathOf(w.r.dir, format.SegmentName(w.seg.base)), w.fr.pos), cause)
	}
	if w.seg.base >= w.limit.Base {
		return w.activeEnd(ctx, cause)
	}
	if cause != io.EOF {
		return w.doubt(ctx, cause)
	}
	return w.advance(ctx)
}

// activeEnd decides whether everything below the limit was read, in the segment
// that was the active one when the limit was taken, or one above it.
func (w *walker) activeEnd(ctx context.Context, cause error) error {
	segments, err := w.r.list()
	if err != nil {
		return err
	}
	above, rolled := segments.above(w.seg.base)
	switch {
	case rolled && cause == io.EOF && above < w.limit.NextOffset:
		// The position is of another segment: only the offset counts.
		w.segments = segments
		return w.advance(ctx)
	case rolled && cause == io.EOF, !rolled && w.seg.base == w.limit.Base && w.fr.pos >= w.limit.Position:
		// next(Position) is the durable offset: only holes are left. Rolled, the
		// segment is complete; compaction may even have made it shorter.
		w.next = max(w.next, w.limit.NextOffset)
		return nil
	}
	return w.doubt(ctx, notEOF(cause))
}

// advance goes on behind a segment that was read to its end.
func (w *walker) advance(ctx context.Context) error {
	if base, ok := w.segments.covering(w.next); ok && base > w.seg.base {
		return w.enterListed(ctx, base)
	}
	if base, ok := w.segments.above(w.next); ok {
		return w.hop(ctx, base)
	}
	if w.next == w.seg.base {
		return w.doubt(ctx, errSegmentMissing) // nothing was in it
	}
	// The segment was the last one when it was listed. Its successor is most
	// often named after the next offset.
	segments := append(w.segments[:len(w.segments):len(w.segments)], w.next)
	err := w.enter(w.next, segments)
	if err == nil || !gone(err) {
		return err
	}
	return w.doubt(ctx, errSegmentMissing)
}

var errSegmentMissing = errors.New("a segment file is missing")

// hop goes on at a base above next: the segment just read held nothing from
// next on, and ended where the other began when it was listed. If its index
// says that it ended before, a file between is missing.
func (w *walker) hop(ctx context.Context, base uint64) error {
	if err := w.missingBelow(base); err != nil {
		if !errors.Is(err, errSegmentMissing) {
			return err
		}
		return w.doubt(ctx, err)
	}
	nearer, err := w.lookBetween(ctx, base)
	if err != nil || nearer {
		return err
	}
	w.next = max(w.next, base)
	return w.enterListed(ctx, base)
}

// lookBetween looks again before a range of offsets is passed over. If there is a
// segment nearer than base, the walk goes on there.
func (w *walker) lookBetween(ctx context.Context, base uint64) (nearer bool, err error) {
	again, found, err := w.nearer(base)
	if err != nil || again == nil {
		return false, err
	}
	w.next = max(w.next, found)
	if covering, ok := again.covering(w.next); ok {
		found = covering
	}
	w.segments = again
	return true, w.enterListed(ctx, found)
}

// nearer lists again, unless the index of the segment entered says that it
// ends at above, where the next one begins: listing a directory may miss a name
// that is being replaced. The listing comes back if it has a segment between the
// two, with the lowest of them.
func (w *walker) nearer(above uint64) (again listing, found uint64, err error) {
	if h, ok, err := w.seg.header(w.r.dir); err != nil || ok && h.End == above {
		return nil, 0, err
	}
	if again, err = w.r.listTwice(); err != nil {
		return nil, 0, err
	}
	found, ok := again.above(w.seg.base)
	if !ok || found >= above {
		return nil, 0, nil
	}
	return again, found, nil
}

// missingBelow reports errSegmentMissing if the index of the segment entered
// says that it ended before base, where the next one begins.
func (w *walker) missingBelow(base uint64) error {
	h, ok, err := w.seg.header(w.r.dir)
	if err != nil || !ok || h.End == 0 || h.End >= base || w.r.inGap(h.End, base) {
		return err
	}
	return fmt.Errorf("%w: the segment ends at offset %d, the next one begins at %d", errSegmentMissing, h.End, base)
}

// enterListed enters a segment of the listing that is in use.
func (w *walker) enterListed(ctx context.Context, base uint64) error {
	err := w.enterNext(ctx, base, w.segments)
	if err == nil || !gone(err) {
		return err
	}
	return w.relist(ctx)
}

// maxVanished bounds how often a segment may be listed and gone in a row. More
// is no retention at work, but a name that leads nowhere.
const maxVanished = 100

// maxDoubts is how often a finding has to repeat before it is believed. Other
// processes may be rolling, compacting and removing: only two listings that
// agree say that something is wrong.
const maxDoubts = 2

// finding is what a walker doubts.
type finding struct {
	base  uint64
	pos   int64
	next  uint64
	cause string
}

// doubt looks again, from a fresh listing and a fresh file, and reports cause
// when that leads to the same place, for the same reason. Findings that differ say
// that somebody is at work.
func (w *walker) doubt(ctx context.Context, cause error) error {
	found := finding{w.seg.base, w.fr.pos, w.next, cause.Error()}
	if found != w.found {
		w.found, w.doubts = found, 0
	}
	if w.doubts++; w.doubts > maxDoubts {
		return fmt.Errorf("evlog: read %w", corrupt(w.r.dir, w.seg.base, w.fr.pos, w.next, cause))
	}
	// Another file of that name may be cached than the one that was read, with an
	// index that is older than a merge.
	w.r.forget(w.seg.base)
	w.leave()
	return w.relist(ctx)
}

// relist opens the segment that next is in by a fresh listing.
func (w *walker) relist(ctx context.Context) error {
	missed := 0
	for tries := 0; ; tries++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		segments, err := w.r.list()
		if err != nil {
			return err
		}
		base, ok := segments.covering(w.next)
		if ok {
			err = w.enterNext(ctx, base, segments)
			if err == nil || !gone(err) || tries >= maxVanished {
				return err
			}
			continue // removed between listing and opening
		}
		if missed++; missed < 2 {
			continue // only two listings that agree count
		}
		if len(segments) == 0 {
			return fmt.Errorf("evlog: read %s: %w: every segment is gone", w.r.dir.Path(), ErrNoLog)
		}
		behind := &OffsetError{Asked: w.next, First: segments[0], Next: w.limit.NextOffset}
		if w.onBehind == nil || !w.onBehind(behind) {
			return wrap("read", behind)
		}
		w.next, missed = behind.First, 0
	}
}

// inGap reports whether repair left [from, to) without records. log.json may
// have changed since the reader was opened.
func (r *Reader) inGap(from, to uint64) bool {
	if covered(r.gaps(), from, to) {
		return true
	}
	m, err := readMeta(r.dir)
	return err == nil && covered(m.Gaps, from, to)
}
