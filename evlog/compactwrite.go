package evlog

import (
	"context"
	"errors"
	"io/fs"

	"github.com/evlog-go/evlog/internal/format"
)

// turn is how far a pass has been written: up to a segment, whose first record in
// the pass has number n.
type turn struct {
	seg int
	n   uint64
}

// write puts into effect what the pass found out about the records from from to
// end: what stays of a segment takes its place, and what stays of neighbours
// that are small by then takes the place of the first of them.
func (c *compaction) write(ctx context.Context, from, end spot, last int) error {
	copies := c.lastExpiring(last)
	if end.pos == 0 {
		end.seg--
	}
	at, err := turn{seg: from.seg}, error(nil)
	for at.seg <= end.seg && err == nil {
		start, stop := int64(0), c.segs[at.seg].size
		if at.seg == from.seg {
			start = from.pos
		}
		if at.seg == end.seg && end.pos > 0 {
			stop = end.pos
		}
		at, err = c.writeSegment(ctx, at, start, stop, at.seg < copies)
		if err == nil && at.seg > end.seg {
			at, err = c.install(ctx, at)
		}
	}
	return err
}

// lastExpiring is the highest segment of which tombstones go, 0 if there is none.
// Below it, a segment whose name may stand for an older file after a power
// failure is written again, so that no older record of a tombstone's key comes
// back.
func (c *compaction) lastExpiring(last int) int {
	for i := last; i > 0; i-- {
		if c.expiring(i) {
			return i
		}
	}
	return 0
}

// writeSegment does it for the records from start to stop of one segment, and
// returns where to go on.
func (c *compaction) writeSegment(ctx context.Context, at turn, start, stop int64, vouch bool) (turn, error) {
	s := &c.segs[at.seg]
	next := turn{at.seg + 1, at.n + s.taken}
	if s.out() {
		return next, nil
	}
	whole := start == 0 && stop == s.size
	began := c.out != nil && c.out.now != nil
	// What is noted as clean is not known any more for a file that the disk may not
	// have under the name: so such a one is written again first.
	vouch = vouch || s.dirty() && c.becomesClean(at.seg)
	changes := began || c.drops.count(at.n, s.taken) > 0 || c.expiring(at.seg) || vouch && !s.vouched
	if !changes || !whole || !c.joins(at) {
		if back, err := c.install(ctx, at); err != nil || back != at {
			return back, err
		}
	}
	if !changes {
		c.work.advance(stop - start)
	} else if err := c.judge(ctx, at, start, stop); err != nil {
		return next, err
	}
	if stop < s.size {
		if c.out != nil && c.out.now != nil {
			c.out.now.pause()
		}
		return next, nil // the next pass goes on in it
	}
	return c.finish(ctx, at, next)
}

// joins reports whether what stays of the next segment can be put behind what
// stays of those before: as it seems, all of it makes no more than a segment and is
// of one age, and there is one time for all of it from which the grace of a
// tombstone counts. Tombstones that go are not among it: a replacement that drops
// them follows the removal of all that they delete.
func (c *compaction) joins(at turn) bool {
	o, s := c.out, &c.segs[at.seg]
	if o == nil || len(o.parts) == 0 || o.parts[len(o.parts)-1].at.seg+1 != at.seg {
		return false
	}
	stays := float64(s.size)
	if s.taken > 0 {
		stays *= 1 - float64(c.drops.count(at.n, s.taken))/float64(s.taken)
	}
	ages := o.ages
	return c.becomesClean(at.seg) && !s.tombs && !s.apart && !s.overlaps &&
		float64(o.bytes)+stays <= float64(c.config.rollBytes()) && ages.take(int64(stays), s.fact())
}

// judge drops from a segment what goes of the records from start to stop.
func (c *compaction) judge(ctx context.Context, at turn, start, stop int64) error {
	s := &c.segs[at.seg]
	var err error
	if c.out == nil || c.out.now == nil {
		err = c.begin(ctx, at, start)
	}
	if err == nil {
		if start == 0 && stop == s.size && s.taken > 0 && c.drops.count(at.n, s.taken) == s.taken {
			c.out.now.empty()
			return nil
		}
		err = c.out.now.judge(ctx, stop, at.n, c.expiring(at.seg))
	}
	if err == nil {
		return nil
	}
	if err := c.takeBack(ctx); err != nil {
		return err
	}
	if err := c.trouble(s, err); err != errAgain {
		return err
	}
	return nil // it was valid a moment ago; the rest of the pass does not depend on it
}

// finish ends the work on a segment: what is left of it may take its place. Where
// it is too much to be put behind others after all, they go ahead.
func (c *compaction) finish(ctx context.Context, at, next turn) (turn, error) {
	s := &c.segs[at.seg]
	if s.out() {
		c.settle()
		return next, nil
	}
	cleaned := s.cleanedMS
	if s.dirty() && c.becomesClean(at.seg) {
		cleaned = c.clock.Now().UnixMilli() // the grace begins now, and not when the run did
	}
	o := c.out
	if o == nil {
		if cleaned != s.cleanedMS && c.log != nil {
			if err := c.note(ctx, s, cleaned); err != nil {
				return next, err
			}
		}
		s.cleanedMS = cleaned
		return next, nil
	}
	ages := o.ages
	if len(o.parts) > 0 && (o.now.tombs || o.bytes+o.now.kept > c.config.rollBytes() || !ages.take(o.now.kept, o.now.fact())) {
		if err := c.takeBack(ctx); err != nil {
			return next, err
		}
		return c.install(ctx, at)
	}
	o.end(cleaned)
	if o.tombs() || cleaned <= 0 || s.apart || s.overlaps {
		return c.install(ctx, next)
	}
	return next, nil
}

// install puts the output into place, if it is complete. Where it cannot be,
// because the segment whose name it was to get is gone or in use, the others that
// are in it are to be written anew. It returns where to go on: at next if all is
// well.
func (c *compaction) install(ctx context.Context, next turn) (turn, error) {
	o := c.out
	if o == nil || len(o.parts) == 0 {
		return next, nil
	}
	c.out = nil
	first := &c.segs[o.parts[0].at.seg]
	err := o.install(ctx)
	switch {
	case err == nil:
		c.installed(o)
		return next, nil
	case gone(err) && !c.log.poisoned():
		first.gone = true // by retention
	case errors.Is(err, fs.ErrPermission) && !errors.Is(err, errInUse) && !c.log.poisoned():
		c.refuseInUse(first, err)
		c.settle()
	default:
		if errors.Is(err, errInUse) {
			c.replaced(o)
		}
		return next, wrap("compact: replace "+pathOf(c.dir, format.SegmentName(first.base)), err)
	}
	if len(o.parts) > 1 {
		p := o.parts[1]
		c.work.again(p.began)
		return p.at, nil
	}
	return next, nil
}

// installed notes that the segments in o are one now.
func (c *compaction) installed(o *output) {
	first := &c.segs[o.parts[0].at.seg]
	c.replaced(o)
	for _, p := range o.parts[1:] {
		p.s.gone = true
	}
	first.next = c.segs[o.parts[len(o.parts)-1].at.seg].next
	first.size, first.tombs, first.vouched = o.bytes, o.tombs(), true
	first.closedMS, first.cleanedMS = o.times()
	first.maxMS = o.maxMS()
}

// replaced notes in the report what o has replaced.
func (c *compaction) replaced(o *output) {
	for k, p := range o.parts {
		change := CompactChange{Base: p.s.base, Into: o.parts[0].s.base, Superseded: p.superseded, Tombstones: p.tombstones, Before: p.s.size}
		if k == 0 {
			change.After = o.bytes
		}
		c.report.Superseded += change.Superseded
		c.report.Tombstones += change.Tombstones
		c.report.Changes = append(c.report.Changes, change)
	}
}
