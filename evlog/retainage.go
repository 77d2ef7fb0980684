package evlog

import (
	"context"
	"math"
	"slices"
	"time"
)

// time is what a segment's age counts from. ok is false where that is not known.
func (p *retainPlanner) time(ctx context.Context, base uint64) (at time.Time, ok bool, err error) {
	if p.act != nil && base == p.act.base {
		at = timeOf(p.act.maxMS)
		return at, p.act.records > 0 && plausible(at, p.now), nil
	}
	f, err := p.fact(ctx, base)
	if err != nil {
		return at, false, err
	}
	at, ok = f.time(p.now)
	if f.stamp.Size == 0 {
		above, some, err := p.timeAbove(ctx, base)
		if err != nil {
			return at, false, err
		}
		if some && (!ok || above.Before(at)) {
			at, ok = above, true
		}
	}
	if ok {
		return at, true, nil
	}
	return p.closedBefore(ctx, base)
}

// boundTime is a time that says something about the segments with bases from from
// on and below below.
type boundTime struct {
	from, below uint64
	at          time.Time
	ok          bool
}

func (b boundTime) covers(base uint64) bool { return b.from <= base && base < b.below }

// timeAbove is what the age of the next segment with records counts from, which an
// empty one takes over: it holds nothing that has an age, as where compaction has
// left none of its records, and must not keep what is above it from going.
func (p *retainPlanner) timeAbove(ctx context.Context, base uint64) (time.Time, bool, error) {
	if p.above.covers(base) {
		return p.above.at, p.above.ok, nil
	}
	i, _ := slices.BinarySearch(p.closed, base)
	rest := p.closed[i+1:]
	for len(rest) > 0 && p.files.of[rest[0]].log == 0 {
		rest = rest[1:]
	}
	b := boundTime{from: base}
	if len(rest) > 0 {
		b.below = rest[0]
	} else {
		act, err := p.activeFacts(ctx)
		if err != nil {
			return b.at, false, err
		}
		b.below = act.base
	}
	var err error
	if b.at, b.ok, err = p.time(ctx, b.below); err == nil {
		p.above = b
	}
	return b.at, b.ok, err
}

// closedBefore bounds the closing of a segment of which no time can be believed:
// it was not after that of any segment above. The next one whose closing time can
// be believed says it; times of records, which callers may give, do not. So it
// goes only at a time when a segment that was written after it is due for its
// closing alone.
func (p *retainPlanner) closedBefore(ctx context.Context, base uint64) (time.Time, bool, error) {
	if p.later.covers(base) {
		return p.later.at, p.later.ok, nil
	}
	p.later = boundTime{from: base, below: math.MaxUint64}
	i, _ := slices.BinarySearch(p.closed, base)
	for _, above := range p.closed[i+1:] {
		f, err := p.fact(ctx, above)
		if err != nil {
			return time.Time{}, false, err
		}
		if at := timeOf(f.closedMS); plausible(at, p.now) {
			p.later = boundTime{from: base, below: above, at: at, ok: true}
			break
		}
	}
	return p.later.at, p.later.ok, nil
}

// passed reports whether limit has passed since at.
func (p *retainPlanner) passed(at time.Time, limit time.Duration) bool {
	due := at.Add(limit)
	if wait := p.waits(limit); wait > 0 && !due.After(p.now.Add(wait)) {
		due = p.now.Add(wait)
	}
	if due.After(p.now) {
		if p.next.IsZero() || due.Before(p.next) {
			p.next = due
		}
		return false
	}
	return true
}
