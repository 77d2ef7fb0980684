package evlog

import (
	"cmp"
	"errors"
	"io/fs"
	"math"
	"slices"
	"time"

	"github.com/evlog-go/evlog/internal/format"
	"github.com/evlog-go/evlog/internal/vfs"
)

// triedFile is a segment that a run has been through and left dirty, since
// something was in the way of noting that it is clean. Another run would read it
// again for nothing until that is gone, or another file has the name.
type triedFile struct {
	base    uint64
	stamp   vfs.Stamp
	refused bool // it is damaged itself
}

func compareTried(t triedFile, base uint64) int { return cmp.Compare(t.base, base) }

// remember notes what a run that went through all of its segments has left dirty.
func (k *compactor) remember(c *compaction) {
	k.tried = nil
	for i := range c.segs[:c.scope] {
		s := &c.segs[i]
		if !s.dirty() && !s.refused {
			continue
		}
		stamp, err := vfs.StampOf(c.dir, format.SegmentName(s.base))
		if err != nil {
			continue // the next look sees to it
		}
		s.tried = true
		k.tried = append(k.tried, triedFile{s.base, stamp, s.refused})
	}
}

// recall fills in what is remembered of a segment.
func (c *compaction) recall(s *closedSegment, info fs.FileInfo) {
	i, ok := slices.BinarySearchFunc(c.tried, s.base, compareTried)
	if !ok || c.tried[i].stamp != vfs.StampFrom(info) {
		return
	}
	s.tried, s.refused = true, c.tried[i].refused
}

// inUse reports whether the run left something that somebody has open.
func (c *compaction) inUse() bool {
	return slices.ContainsFunc(c.report.Refused, func(err error) bool { return errors.Is(err, errInUse) })
}

// becomesClean reports whether segment i is clean when a run has been through.
func (c *compaction) becomesClean(i int) bool {
	return !c.segs[i].dirty() || i <= c.unsure && c.clockIsSet()
}

// clockIsSet reports whether the wall clock shows a time that can be believed.
func (c *compaction) clockIsSet() bool { return c.nowMS >= plausibleSince.UnixMilli() }

// counts reports whether segment i is dirty and a run would change anything about
// that.
func (c *compaction) counts(i int) bool {
	s := &c.segs[i]
	return s.dirty() && !s.out() && (!s.tried || c.becomesClean(i))
}

// dirtyState says how much there is to compact.
type dirtyState struct {
	closed int64 // bytes of closed segments
	dirty  int64 // of these, in segments that count
}

func (d *dirtyState) add(s *closedSegment, counts bool) {
	d.closed += s.size
	if counts {
		d.dirty += s.size
	}
}

// enough reports whether that is at least so large a part of it.
func (d dirtyState) enough(ratio float64) bool {
	return d.dirty > 0 && float64(d.dirty) >= ratio*float64(d.closed)
}

// dirt adds up all segments.
func (c *compaction) dirt() (d dirtyState) {
	for i := range c.segs {
		d.add(&c.segs[i], c.counts(i))
	}
	return d
}

// due reports whether there is enough to do.
func (c *compaction) due() bool {
	c.settle()
	return c.untilDue() == 0
}

// untilDue is for how long there is not enough to do, by what is known now; at
// most as long as nobody need look. What is not old enough for MinLag, and what
// lies above, does not exist.
func (c *compaction) untilDue() time.Duration {
	next := max(c.config.quietAge(), compactRoll)
	if c.unsure < len(c.segs) || !c.clockIsSet() {
		next = min(next, compactRetryMax) // look whether that is still so
	}
	var lag time.Duration // until the segment exists
	var d dirtyState
	at := func(left time.Duration) { next = min(next, max(left, lag)) }
	for i := range c.segs {
		s := &c.segs[i]
		if young := c.opts.MinLag - c.age(s.closedMS); young > lag {
			if d.enough(c.config.MinDirtyRatio) {
				at(0)
			}
			lag = young
		}
		counts := c.counts(i)
		d.add(s, counts)
		if counts {
			at(c.config.quietAge() - c.age(s.closedMS))
		}
		if c.mayExpire(i) {
			at(c.graceLeft(s))
		}
		if s.overlaps && !s.out() && i+1 < len(c.segs) {
			at(0) // a merge was interrupted
		}
	}
	if d.enough(c.config.MinDirtyRatio) {
		at(0)
	}
	return next
}

// mayExpire reports whether the tombstones of segment i go when their grace is
// over. That is safe only where all older records of their keys are gone for good:
// they are in segments that a run has been through before, or in this very one,
// unless one of these was left out.
func (c *compaction) mayExpire(i int) bool {
	s := &c.segs[i]
	return s.tombs && !s.out() && i <= c.unsure
}

// expiring reports whether the tombstones of segment i go now.
func (c *compaction) expiring(i int) bool {
	return c.mayExpire(i) && c.graceOver(&c.segs[i])
}

// graceLeft is how long the tombstones of a segment stay, whatever else there is.
func (c *compaction) graceLeft(s *closedSegment) time.Duration {
	switch {
	case c.opts.Grace <= 0:
		return 0
	case s.dirty():
		return math.MaxInt64 // it has not begun
	}
	since := time.Duration(max(0, min(c.nowMS-s.cleanedMS, maxMillis))) * time.Millisecond
	return max(0, c.opts.Grace-since, c.report.ClockWait)
}

func (c *compaction) graceOver(s *closedSegment) bool { return c.graceLeft(s) == 0 }
