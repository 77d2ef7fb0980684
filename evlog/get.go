package evlog

import (
	"context"
	"fmt"
	"io"
	"math"

	"github.com/evlog-go/evlog/internal/format"
)

// Get returns the first record at or after offset, which stays valid.
// ErrNotFound: offset is at the end. Otherwise as Records.
func (r *Reader) Get(ctx context.Context, offset uint64) (Record, error) {
	// What was durable once still is: for a record below that nobody has to be asked,
	// where the file is the one that was open then.
	known := r.src.known()
	held := r.listedSegment(offset, false)
	if rec, ok := r.quickly(ctx, held, offset, known); ok {
		return rec, nil
	}
	d, err := r.durable(ctx)
	if err != nil {
		return Record{}, err
	}
	if held == nil || offset >= known.NextOffset { // otherwise it would find the same
		if rec, ok := r.quickly(ctx, r.listedSegment(offset, true), offset, d); ok {
			return rec, nil
		}
	}
	w, err := r.startBelow(ctx, offset, d)
	if err != nil {
		return Record{}, err
	}
	return w.first(ctx, offset)
}

// quickly is Get where nothing stands in the way: the segment is where the last
// listing says, it has an index, and the record is near an entry. Where both are
// open, it reads the file once and allocates the record. Whatever it does not find
// is for a walker to look for, and whatever it finds wrong for a walker to judge.
// It releases s, which may be nil.
func (r *Reader) quickly(ctx context.Context, s *segFile, offset uint64, d format.Durable) (rec Record, ok bool) {
	if s == nil {
		return rec, false
	}
	defer r.release(s)
	if ctx.Err() != nil || offset >= d.NextOffset {
		return rec, false
	}
	valid, scan := int64(math.MaxInt64), int64(noScan)
	if s.base == d.Base {
		valid, scan = d.Position, d.Position
	}
	index, list, err := s.lists(r, scan, s.base < d.Base)
	if err != nil {
		return rec, false
	}
	var e format.IndexEntry
	before := func(e format.IndexEntry) bool { return e.Offset <= offset }
	if index != nil {
		e, ok, err = index.last(before)
	} else {
		e, ok, err = list.last(before)
	}
	if err != nil || !ok || e.Pos < 0 || e.Pos >= valid { // it may lie
		return rec, false
	}
	scratch := smallBuffers.Get().(*[]byte)
	defer smallBuffers.Put(scratch)
	n, _ := s.f.ReadAt((*scratch)[:min(lookUpBytes, valid-e.Pos)], e.Pos)
	return r.pick((*scratch)[:n], e.Offset, offset, d.NextOffset)
}

// pick returns the first record from offset on and below end. b begins with the
// record at index entry at, or the entry is not to be trusted. All before the one that
// is wanted must be valid, or nobody knows that it is a record: a damaged length may
// lead into a value, and a value may hold a whole record, with that very offset.
func (r *Reader) pick(b []byte, at, offset, end uint64) (rec Record, ok bool) {
	if len(b) < format.HeaderSize || format.OffsetOf(b) != at {
		return rec, false
	}
	n, lowest, before := format.RunBelow(b, at, offset)
	h, err := format.Parse(b[n:], max(lowest, offset))
	if err != nil || h.Offset >= end {
		return rec, false
	}
	r.visited.Add(uint64(before) + 1)
	return recordOf(b[n : n+int(h.Size())]).Clone(), true
}

// first returns the walker's first record, which stays valid.
func (w *walker) first(ctx context.Context, offset uint64) (Record, error) {
	defer w.close()
	w.ahead = lookUpBytes
	_, rec, err := w.step(ctx)
	if err == io.EOF {
		return Record{}, nothingFrom(offset, w.r.lowest(), w.limit.NextOffset)
	}
	if err != nil {
		return Record{}, err
	}
	return recordOf(rec).Clone(), nil
}

// lookUpBytes is what a look-up reads: a little more than the distance of two
// index entries, so that the record at its end is mostly in the same read.
const lookUpBytes = format.IndexBlockSize + 1<<10

// nothingFrom says why there is no record at or after an offset, in a log that has
// the offsets from first to next.
func nothingFrom(offset, first, next uint64) error {
	if first >= next && next > 0 {
		return fmt.Errorf("evlog: get offset %d: %w: the log holds none any more, and its next offset is %d", offset, ErrNotFound, next)
	}
	return fmt.Errorf("evlog: get offset %d: %w: the next offset is %d", offset, ErrNotFound, next)
}
