package sqldriver

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"time"

	"github.com/evlog-go/evlog/evlog"
)

// maxOffset is the highest offset that SQL's integers hold.
const maxOffset = math.MaxInt64

// scan goes through the records of a window, one step at a time. It belongs to
// one goroutine.
type scan struct {
	s    *session
	view *view
	window
	desc   bool
	ranges []evlog.OffsetRange // still to be read, in the order of the scan

	// The range being read; next is nil where there is none.
	to     evlog.OffsetRange
	next   func() (evlog.Record, error, bool)
	stop   func()
	begins bool // ascending: nothing was read yet, and reading began at from
	from   uint64
	any    bool // a record was read, and last is its offset
	last   uint64
	floor  uint64 // descending: the lowest offset left when reading began

	rec  evlog.Record
	more bool // rec is a record
}

// start begins a scan and goes to its first record.
func (c *scan) start(w window, desc bool) error {
	c.close()
	c.window, c.desc, c.ranges = w, desc, c.ranges[:0]
	c.rec, c.more = evlog.Record{}, false
	if w.offsets.empty() {
		return nil
	}
	if lo := uint64(w.offsets.lo); w.offsets.lo == w.offsets.hi {
		if p, ok := c.s.known(lo); ok {
			return c.get(p, lo)
		}
	}
	v, err := c.s.look()
	if err != nil {
		return err
	}
	c.view = v
	lo, hi := v.low, v.Next()
	lo = max(lo, uint64(w.offsets.lo))
	if w.offsets.hi < maxOffset {
		hi = min(hi, uint64(w.offsets.hi)+1)
	}
	switch {
	case lo >= hi:
		return nil
	case hi-lo == 1:
		return c.get(v.Prefix, lo)
	}
	if err := c.divide(lo, hi); err != nil {
		return err
	}
	return c.step()
}

// divide finds the parts of [lo, hi) that can have such times.
func (c *scan) divide(lo, hi uint64) error {
	if c.times == everything {
		c.ranges = append(c.ranges, evlog.OffsetRange{From: lo, To: hi})
		return nil
	}
	parts, err := c.view.TimeRanges(c.s.ctx, time.UnixMilli(c.times.lo), time.UnixMilli(c.times.hi))
	if err != nil {
		return err
	}
	// What was removed before that is in none of them.
	bases, err := c.s.reader.Bases(c.s.ctx)
	if err != nil {
		return err
	}
	if len(bases) > 0 {
		if err := c.s.goOn(lo, bases[0]); err != nil {
			return err
		}
	}
	for _, p := range parts {
		if p.From, p.To = max(p.From, lo), min(p.To, hi); p.From < p.To {
			c.ranges = append(c.ranges, p)
		}
	}
	if c.desc {
		for i, j := 0, len(c.ranges)-1; i < j; i, j = i+1, j-1 {
			c.ranges[i], c.ranges[j] = c.ranges[j], c.ranges[i]
		}
	}
	return nil
}

// get looks up one offset. What retention had removed is not there.
func (c *scan) get(p evlog.Prefix, offset uint64) error {
	rec, err := p.Get(c.s.ctx, offset)
	if errors.Is(err, evlog.ErrNotFound) {
		return nil
	}
	if err != nil {
		_, err = c.s.retryAt(err)
		return err
	}
	c.s.view.began(offset)
	if rec.Offset != offset || !c.key.matches(rec.Key) {
		return nil
	}
	return c.take(rec)
}

// step goes to the next record.
func (c *scan) step() error {
	c.more = false
	rec, ok, err := c.pull()
	if err != nil || !ok {
		return err
	}
	return c.take(rec)
}

// pull reads the next record of the ranges.
func (c *scan) pull() (rec evlog.Record, ok bool, err error) {
	for {
		if c.next == nil {
			if len(c.ranges) == 0 {
				return rec, false, nil
			}
			if err := c.open(); err != nil {
				return rec, false, err
			}
		}
		if c.complete() {
			c.close()
			continue
		}
		rec, err, ok = c.next()
		if c.begins {
			if again, err := c.begun(err); err != nil {
				return rec, false, err
			} else if again {
				continue
			}
		}
		switch {
		case err != nil:
			return rec, false, err
		case !ok:
			if err := c.exhausted(); err != nil {
				return rec, false, err
			}
		case rec.Offset < c.to.From:
			c.close()
		default:
			c.last, c.any = rec.Offset, true
			return rec, true, nil
		}
	}
}

// complete reports whether the record that was read last is the last one that can
// be in the range: then nothing behind it is touched.
func (c *scan) complete() bool {
	if c.desc {
		return c.any && c.last <= c.to.From
	}
	return c.any && c.last+1 >= c.to.To
}

// open begins to read the next range.
func (c *scan) open() error {
	c.to, c.ranges = c.ranges[0], c.ranges[1:]
	return c.openAt(c.to.From)
}

func (c *scan) openAt(from uint64) error {
	ctx := c.s.ctx
	part := c.view.Below(c.to.To)
	var seq iter.Seq2[evlog.Record, error]
	switch {
	case c.desc:
		bases, err := c.s.reader.Bases(ctx)
		if err != nil {
			return err
		}
		if len(bases) > 0 {
			c.floor = bases[0]
			if err := c.s.goOn(c.to.From, c.floor); err != nil {
				return err
			}
			c.view.began(max(c.floor, c.to.From))
		}
		if seq = part.Backward(ctx); c.key.on {
			seq = part.BackwardByKey(ctx, c.key.key)
		}
	case c.key.on:
		seq = part.ByKey(ctx, c.key.key, from)
	default:
		seq = part.Records(ctx, from)
	}
	c.begins, c.from, c.any = !c.desc, from, false
	c.next, c.stop = iter.Pull2(seq)
	return nil
}

// begun looks at how the first step of a range went. If what was to come first is
// gone, the range is begun again where there is something.
func (c *scan) begun(err error) (again bool, _ error) {
	c.begins = false
	if err == nil {
		c.view.began(c.from)
		return false, nil
	}
	at, err := c.s.retryAt(err)
	if err != nil {
		return false, err
	}
	c.close()
	if at >= c.to.To {
		return true, nil // the range is gone as a whole
	}
	return true, c.openAt(at)
}

// exhausted ends a range of which there is nothing more. Downwards that may be
// because retention has removed the rest.
func (c *scan) exhausted() error {
	c.close()
	if !c.desc || c.floor >= c.view.Next() {
		return nil
	}
	bases, err := c.s.reader.Bases(c.s.ctx)
	if err != nil {
		return err
	}
	if from := max(c.floor, c.to.From); len(bases) > 0 && bases[0] > from {
		return c.s.removed(from, bases[0])
	}
	return nil
}

func (c *scan) take(rec evlog.Record) error {
	if rec.Offset > maxOffset {
		return fmt.Errorf("sqldriver: offset %d: %w for an integer in SQL", rec.Offset, evlog.ErrTooLarge)
	}
	c.rec, c.more = rec, true
	return nil
}

// close ends the reading of a range.
func (c *scan) close() {
	if c.stop != nil {
		c.stop()
	}
	c.next, c.stop = nil, nil
}
