package evlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/evlog-go/evlog/internal/format"
)

// Backward yields the records with offsets below before, newest first, down to
// the first one left. Each is valid until the next step. before may be the end
// of the log or anything above it: then the newest durable record comes first.
func (r *Reader) Backward(ctx context.Context, before uint64) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		d, err := r.durable(ctx)
		if err != nil {
			yield(Record{}, err)
			return
		}
		r.runBackward(ctx, d, before, yield)
	}
}

func (r *Reader) runBackward(ctx context.Context, d format.Durable, before uint64, yield func(Record, error) bool) {
	w := r.newWalker(0, d)
	defer w.close()
	err := w.backward(ctx, min(before, d.NextOffset), yield)
	if err != nil && err != errStopped {
		yield(Record{}, r.closedOr(err))
	}
}

// backward goes through the segments from the one that before is in down to the
// first. Each is opened by a listing made before; one that is gone by then was
// removed from the old end, or merged into the one below it, where the records
// are found because before only ever moves down by what was yielded.
func (w *walker) backward(ctx context.Context, before uint64, yield func(Record, error) bool) error {
	segments, err := w.listActive()
	if err != nil {
		return err
	}
	vanished := 0
	for before > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		base, ok := segments.covering(before - 1)
		if !ok {
			return nil
		}
		w.next = base
		if err := w.enter(base, segments); err != nil {
			if vanished++; !gone(err) || vanished > maxVanished {
				return err
			}
			if segments, err = w.r.list(); err != nil {
				return err
			}
			continue
		}
		if err := w.checkAbove(segments); err != nil {
			return err
		}
		if before, err = w.segmentBackward(ctx, before, yield); err != nil {
			return err
		}
	}
	return nil
}

// listActive lists the directory, in which the segment that DURABLE names must
// be; only two listings that agree say that it is not.
func (w *walker) listActive() (segments listing, err error) {
	for range 2 {
		if segments, err = w.r.list(); err != nil {
			return nil, err
		}
		if len(segments) > 0 && segments.active() >= w.limit.Base {
			return segments, nil
		}
	}
	return nil, fmt.Errorf("evlog: read %w", corrupt(w.r.dir, w.limit.Base, 0, w.limit.Base, errSegmentMissing))
}

// checkAbove reports a file that is missing between the segment entered and the
// next one; only two listings that agree count.
func (w *walker) checkAbove(segments listing) error {
	for tries := 0; ; tries++ {
		above, ok := segments.above(w.seg.base)
		if !ok {
			return nil
		}
		err := w.missingBelow(above)
		if err == nil || !errors.Is(err, errSegmentMissing) {
			return err
		}
		if tries > 0 {
			h, _, _ := w.seg.header(w.r.dir) // it said so a moment ago
			return fmt.Errorf("evlog: read %w", corrupt(w.r.dir, w.seg.base, w.fr.limit, h.End, err))
		}
		if segments, err = w.r.list(); err != nil {
			return err
		}
	}
}

// segmentBackward yields the records of the entered segment that lie below
// before, and returns the new before: the segment's base.
func (w *walker) segmentBackward(ctx context.Context, before uint64, yield func(Record, error) bool) (uint64, error) {
	base := w.seg.base
	entries, err := w.seg.entries(w.r, w.validEnd())
	if err != nil && !noIndex(err) {
		return 0, err
	}
	for before > base {
		block, err := w.block(ctx, entries, before)
		for i := len(block) - 1; i >= 0 && err == nil; i-- {
			var h format.Header
			var rec []byte
			w.fr.seek(block[i].pos, block[i].offset)
			if h, rec, err = w.fr.next(); err != nil {
				break
			}
			w.doubts = 0
			before = h.Offset
			if !yield(recordOf(h, rec), nil) {
				return 0, errStopped
			}
		}
		if err != nil {
			if err := w.lookAgain(err); err != nil {
				return 0, err
			}
			continue
		}
		if len(block) == 0 {
			break
		}
	}
	return base, nil
}

// lookAgain takes the file's size anew where reading backward met bytes that
// are no record: the writer may have rolled and cut the zeros that it had
// prepared. Only what repeats is reported.
func (w *walker) lookAgain(err error) error {
	if w.doubts++; !invalidRecord(err) || w.doubts > maxDoubts {
		return w.readError(err)
	}
	w.fr.drop()
	return w.measure()
}

// place is where a record stands.
type place struct {
	offset uint64
	pos    int64
}

// block finds the last records below before: those from an index entry on.
func (w *walker) block(ctx context.Context, entries entryList, before uint64) ([]place, error) {
	start := place{offset: w.seg.base}
	if entries != nil {
		e, ok, err := lastEntry(entries, func(e format.IndexEntry) bool { return e.Offset < before })
		if err != nil && !noIndex(err) {
			return nil, err
		}
		if err == nil && ok && trustEntry(w.seg.f, e, w.fr.limit) {
			start = place{e.Offset, e.Pos}
		}
	}
	w.fr.seek(start.pos, start.offset)
	w.fr.ahead = scanSlack + format.IndexBlockSize
	var block []place
	for {
		pos := w.fr.pos
		h, _, err := w.fr.next()
		if err == nil && h.Offset < before {
			block = append(block, place{h.Offset, pos})
			if len(block)%1024 == 0 && ctx.Err() != nil {
				return nil, ctx.Err()
			}
			continue
		}
		if err == nil || w.blockEnds(pos, err) {
			return block, nil
		}
		return nil, notEOF(err)
	}
}

// blockEnds reports whether err at pos is the end of what there is to read in
// the segment, and no damage.
func (w *walker) blockEnds(pos int64, err error) bool {
	if w.seg.base != w.limit.Base {
		return err == io.EOF
	}
	if pos < w.limit.Position {
		return err == io.EOF && w.rolled() // compaction made it shorter
	}
	return err == io.EOF || invalidRecord(err) && !w.rolled()
}

// rolled reports whether the segment is not the active one any more.
func (w *walker) rolled() bool {
	segments, err := w.r.list()
	if err != nil {
		return false
	}
	_, ok := segments.above(w.seg.base)
	return ok
}

// readError says where reading failed.
func (w *walker) readError(err error) error {
	if invalidRecord(err) {
		return fmt.Errorf("evlog: read %w", corrupt(w.r.dir, w.seg.base, w.fr.pos, w.fr.lowest, err))
	}
	return wrap("read "+pathOf(w.r.dir, format.SegmentName(w.seg.base)), err)
}

// OffsetOfLast returns the offset of the n-th last durable record: 1 is the
// last one. With fewer records it is the first one's. ErrNotFound: the log
// holds no record, or n is below 1; the offset is then the end of the log.
func (r *Reader) OffsetOfLast(ctx context.Context, n int) (uint64, error) {
	_, next, err := r.Bounds(ctx)
	if err != nil {
		return 0, err
	}
	found := next
	count := 0
	for rec, err := range r.Backward(ctx, next) {
		if count >= n {
			break
		}
		if err != nil {
			return 0, err
		}
		found = rec.Offset
		count++
	}
	if count == 0 {
		return next, fmt.Errorf("evlog: offset of the last %d records: %w", n, ErrNotFound)
	}
	return found, nil
}
