package evlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/evlog-go/evlog/internal/format"
)

// Backward yields the records with offsets below before, newest first, down to
// the first one left. Each is valid until the next step. before may be the end
// of the log or anything above it: then the newest durable record comes first. An
// error is yielded last, with a zero Record: a *CorruptError at damage, or the
// context's. What retention removes meanwhile is no error.
func (r *Reader) Backward(ctx context.Context, before uint64) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		d, err := r.durable(ctx)
		if err != nil {
			yield(Record{}, err)
			return
		}
		r.runBackward(ctx, d, before, nil, yield)
	}
}

// runBackward yields what Backward does, and may leave out records without the key,
// unless it is nil.
func (r *Reader) runBackward(
	ctx context.Context, d format.Durable, before uint64, key *wantedKey, yield func(Record, error) bool,
) {
	w := r.newWalker(0, d)
	defer w.close()
	w.key = key
	err := w.backward(ctx, min(before, d.NextOffset), 0, yield)
	if err != nil && err != errStopped {
		yield(Record{}, r.closedOr(err))
	}
}

// backward goes through the segments from the one that before is in down to the
// first, or to the record with offset floor. Each is opened by a listing made
// before; one that is gone by then was removed from the old end, or merged into
// the one below it, where the records are found because before only ever moves
// down by what was yielded.
func (w *walker) backward(ctx context.Context, before, floor uint64, yield func(Record, error) bool) error {
	segments, err := w.listActive()
	if err != nil {
		return err
	}
	vanished := 0
	for before > floor {
		if err := ctx.Err(); err != nil {
			return err
		}
		base, ok := segments.covering(before - 1)
		if !ok {
			if segments, err = w.r.listTwice(); err != nil {
				return err
			}
			if base, ok = segments.covering(before - 1); !ok {
				return nil // the listings agree
			}
		}
		if _, skips, err := w.skips(ctx, base, segments); err != nil {
			return err
		} else if skips {
			before = base
			continue
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
			if segments, err = w.doubtAbove(err); err != nil {
				return err
			}
			continue
		}
		active := w.key != nil && base == w.limit.Base
		if active {
			if before, err = w.belowNewest(ctx, before); err != nil {
				return err
			}
			if before <= floor {
				return nil
			}
		}
		var again listing
		before, again, err = w.segmentBackward(ctx, segments, before, floor, yield)
		if active && (err == nil || err == errStopped) && (before == base || w.validEnd()-w.fr.pos >= searchedFar) {
			w.seg.searched.Store(true)
		}
		if err != nil {
			return err
		}
		if again != nil {
			segments = again
		}
	}
	return nil
}

// belowNewest moves before down to behind the newest record of the segment entered
// that can have the key wanted, where that is remembered.
func (w *walker) belowNewest(ctx context.Context, before uint64) (uint64, error) {
	pos, found, known, err := w.r.newestIn(ctx, w.seg, w.key.hash, w.validEnd())
	if err != nil || !known || !found {
		return before, err
	}
	var b [format.HeaderSize]byte
	if err := readFull(w.seg.f, b[:], pos); err != nil {
		return before, err
	}
	return min(before, format.ParseHeader(b[:]).Offset+1), nil
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

// checkAbove reports errSegmentMissing if a file is missing between the segment
// entered and the next one.
func (w *walker) checkAbove(segments listing) error {
	above, ok := segments.above(w.seg.base)
	if !ok {
		return nil
	}
	err := w.missingBelow(above)
	if err == nil {
		w.doubts = 0
	}
	return err
}

// doubtAbove lists again where a file seems to be missing, and lets the segment be
// opened anew: its index may be of before a merge whose file has the same first
// and last record, as where the other ones had nothing left. Only what repeats is
// reported.
func (w *walker) doubtAbove(err error) (listing, error) {
	if !errors.Is(err, errSegmentMissing) {
		return nil, err
	}
	if w.doubts++; w.doubts > maxDoubts {
		h, _, _ := w.seg.header(w.r.dir) // it said so a moment ago
		return nil, fmt.Errorf("evlog: read %w", corrupt(w.r.dir, w.seg.base, w.fr.limit, h.End, err))
	}
	w.r.drop(w.seg)
	w.leave()
	return w.r.list()
}

// segmentBackward yields the records of the entered segment from floor on that
// lie below before, and returns the new before: the segment's base, or floor. A
// listing comes back where segments has lacked one that is to be read first.
func (w *walker) segmentBackward(
	ctx context.Context, segments listing, before, floor uint64, yield func(Record, error) bool,
) (uint64, listing, error) {
	base := w.seg.base
	looked := false // whether the listing lacks a segment above the last record
	entries, err := w.seg.entries(w.r, w.validEnd(), w.seg.base < w.limit.Base)
	if err != nil && !noIndex(err) {
		return 0, nil, err
	}
	s := stretch{end: w.validEnd(), want: format.IndexBlockSize}
	for before > base {
		err := w.readStretch(ctx, &s, entries, before)
		for i := len(s.places) - 1; i >= 0 && err == nil; i-- {
			var h format.Header
			var rec []byte
			if h, rec, err = w.placed(&s, s.places[i]); err != nil {
				break
			}
			if !looked && h.Offset+1 < before {
				if again, err := w.missedBelow(segments, before); err != nil || again != nil {
					return before, again, err
				}
			}
			looked = true
			if h.Offset < floor {
				return floor, nil, nil
			}
			w.doubts = 0
			before, s.end, s.inside = h.Offset, s.places[i].pos, true
			if w.key != nil && !bytes.Equal(h.Key(rec), w.key.bytes) {
				continue
			}
			if !yield(recordOf(rec), nil) {
				return 0, nil, errStopped
			}
		}
		if invalidRecord(err) && s.want > format.IndexBlockSize {
			s.want = format.IndexBlockSize // yield what is near above the damage
			continue
		}
		if err != nil {
			if err := w.lookAgain(err); err != nil {
				return 0, nil, err
			}
			s.end, s.inside = w.validEnd(), false
			continue
		}
		if len(s.places) == 0 {
			break
		}
		s.want = min(2*s.want, maxStretch)
	}
	if !looked && before > base {
		if again, err := w.missedBelow(segments, before); err != nil || again != nil {
			return before, again, err
		}
	}
	return base, nil, nil
}

// missedBelow looks for a segment that the listing lacks between the one entered
// and before: offsets there are about to be passed over.
func (w *walker) missedBelow(segments listing, before uint64) (again listing, err error) {
	above, ok := segments.above(w.seg.base)
	if !ok {
		return nil, nil
	}
	again, found, err := w.nearer(above)
	if err != nil || again == nil || found >= before {
		return nil, err
	}
	return again, nil
}

// stretch is a part of a segment that is read in one piece, so that its records
// can be yielded from the last to the first without reading them again.
type stretch struct {
	end    int64 // records from here on were yielded, or are beyond the limit
	inside bool  // end is where the last record that was yielded begins
	want   int64 // bytes to read at least
	places []place
	start  int64 // where it begins
	held   bool  // all of it is in the walker's buffer
}

// place is where a record stands.
type place struct {
	offset uint64
	pos    int64
}

// maxStretch bounds a stretch. The first ones are shorter: whoever reads backward
// often wants few records.
const maxStretch = 64 << 10

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

// readStretch finds the last records below before: those from an index entry
// on.
func (w *walker) readStretch(ctx context.Context, s *stretch, entries entryList, before uint64) error {
	start, offset, err := w.stretchStart(s, entries, before)
	if err != nil {
		return err
	}
	w.fr.seek(start, offset)
	w.fr.ahead = max(s.end-start, 1)
	if !s.inside {
		w.fr.ahead = min(w.fr.ahead, s.want+lookUpBytes)
	}
	w.fr.fills = 0
	s.start, s.places = start, s.places[:0]
	for {
		pos := w.fr.pos
		if pos >= s.end {
			s.held = w.fr.fills <= 1
			return nil
		}
		h, _, err := w.fr.next()
		if err == nil && h.Offset < before {
			s.places = append(s.places, place{h.Offset, pos})
			if len(s.places)%1024 == 0 && ctx.Err() != nil {
				return ctx.Err()
			}
			continue
		}
		if err != nil && !w.blockEnds(pos, err) {
			return notEOF(err)
		}
		s.held = w.fr.fills <= 1
		return nil
	}
}

// placed returns a record of the stretch, whose checksum was tested when the
// stretch was read, or is now.
func (w *walker) placed(s *stretch, p place) (format.Header, []byte, error) {
	if !s.held {
		w.fr.seek(p.pos, p.offset)
		return w.fr.next()
	}
	rec := w.fr.buf[p.pos-s.start:]
	h := format.ParseHeader(rec)
	return h, rec[:h.Size():h.Size()], nil
}

// stretchStart finds the place to read a stretch from: the last entry that is
// far enough below its end, or else the last one below before.
func (w *walker) stretchStart(s *stretch, entries entryList, before uint64) (pos int64, offset uint64, err error) {
	if entries == nil {
		return 0, w.seg.base, nil
	}
	e, ok, err := entries.last(func(e format.IndexEntry) bool {
		return e.Offset < before && e.Pos <= s.end-s.want
	})
	if err == nil && !ok {
		return 0, w.seg.base, nil // all of it is not more than was wanted
	}
	if err != nil && !noIndex(err) {
		return 0, 0, err
	}
	if err == nil && trustEntry(w.seg.f, e, w.fr.limit) {
		return e.Pos, e.Offset, nil
	}
	return 0, w.seg.base, nil
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
