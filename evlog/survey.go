package evlog

import (
	"context"
	"time"
)

// What a query engine asks of a log: one state to read several times, how the log
// is divided, and which parts of it can hold an answer.

// Bases lists the segments by their bases, ascending: a segment holds the
// offsets from its base up to the next one.
func (r *Reader) Bases(ctx context.Context) ([]uint64, error) {
	if err := r.usable(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return r.listTwice()
}

// Visited is the number of records that calls and iterators which have ended went
// through, returned or not: what look-ups cost. Records read to make an index
// that was missing do not count.
func (r *Reader) Visited() uint64 { return r.visited.Load() }

// TimeRanges returns where durable records with a time from from to to may be,
// both to the millisecond and included: ascending ranges of offsets that do not
// touch. Outside of them there is none; inside there are others too, since the
// index has one entry for some kilobytes, and tells from which record on a
// segment reaches a time, but not when it has passed it for good. Whole segments
// that were before or after are left out.
func (p Prefix) TimeRanges(ctx context.Context, from, to time.Time) ([]OffsetRange, error) {
	r, d := p.r, p.d
	segments, err := r.listTwice()
	if err != nil {
		return nil, err
	}
	w := r.newWalker(0, d)
	defer w.close()
	var ranges []OffsetRange
	for i, base := range segments {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		part := OffsetRange{From: base, To: d.NextOffset}
		if i+1 < len(segments) {
			part.To = min(part.To, segments[i+1])
		}
		if part.From >= part.To {
			continue
		}
		if err := w.narrow(segments, &part, from.UnixMilli(), to.UnixMilli()); err != nil {
			return nil, r.closedOr(err)
		}
		if n := len(ranges); n > 0 && part.From < part.To && ranges[n-1].To == part.From {
			ranges[n-1].To = part.To
		} else if part.From < part.To {
			ranges = append(ranges, part)
		}
	}
	return ranges, nil
}

// narrow cuts off the beginning of a segment's range, or empties it, where that
// holds no time from lo to hi. A segment that is gone was removed, or its records
// are in the file below: the range stays as it is for whoever reads it to find
// out.
func (w *walker) narrow(segments listing, part *OffsetRange, lo, hi int64) error {
	base := part.From
	if w.r.outside(base, lo, hi) {
		part.To = part.From
		return nil
	}
	w.next = base
	if err := w.enter(base, segments); err != nil {
		if gone(err) {
			return nil
		}
		return err
	}
	if base < w.limit.Base {
		known, err := w.r.learnTimes(w.seg)
		if err != nil {
			return err
		}
		if known && w.r.outside(base, lo, hi) {
			part.To = part.From
			return nil
		}
	}
	_, start, err := w.seekTime(lo)
	if err != nil {
		return err
	}
	if part.From = max(base, start); w.laterThan(hi) {
		part.From = part.To
	}
	return nil
}

// laterThan reports whether it is known that every record of the segment entered
// has a time above ms, where no index on disk tells: in the active one. Its
// entries were looked at before.
func (w *walker) laterThan(ms int64) bool {
	if own, ok := w.r.src.(logSource); ok {
		if lowest, ok := own.l.act.lowestTime(w.seg.base); ok {
			return lowest > ms
		}
	}
	w.seg.mu.Lock()
	defer w.seg.mu.Unlock()
	if x := w.seg.index; x != nil {
		return x.header.MinTimeMS > ms
	}
	x := w.seg.scan
	return x != nil && x.pos >= w.validEnd() && x.minMS > ms
}

// lowestTime returns the lowest time of the active segment's records if base is
// it. indexMu is not held beyond: the writer takes it for each write.
func (a *active) lowestTime(base uint64) (ms int64, ok bool) {
	a.indexMu.Lock()
	defer a.indexMu.Unlock()
	if a.index == nil || a.index.header.Base != base {
		return 0, false
	}
	return a.index.header.MinTimeMS, true
}

// outside reports whether it is known that a closed segment holds no record with
// a time from lo to hi.
func (r *Reader) outside(base uint64, lo, hi int64) bool {
	t, ok := r.timesOf(base)
	return ok && (t.empty || t.maxMS < lo || t.minMS > hi)
}
