package evlog

import (
	"context"
	"io"
	"slices"
	"time"

	"github.com/evlog-go/evlog/internal/format"
	"github.com/evlog-go/evlog/internal/vfs"
)

// closedSegment is what compaction keeps of each closed segment in memory: at
// most 64 bytes (I10).
type closedSegment struct {
	base      uint64
	next      uint64 // base of the segment above
	size      int64
	taken     uint64 // records that are in the pass; before the first, all of them
	maxMS     int64  // highest time of its records; noTime without any
	closedMS  int64
	cleanedMS int64 // 0 or less: not yet
	tombs     bool  // holds tombstones
	vouched   bool  // the name is known to stand for this file on the disk too
	apart     bool  // a segment file is missing between this one and the next
	refused   bool  // damaged, or in use where that is in the way: left as it is
	overlaps  bool  // holds what the next one holds too: a merge was interrupted
	gone      bool  // removed by retention, or merged into the one before
	tried     bool  // a run has been through it, and could not note that it is clean
}

// dirty reports whether the segment was not cleaned yet.
func (s *closedSegment) dirty() bool { return s.cleanedMS <= 0 }

// survey looks at every closed segment below below: most often at no more than
// the header of its index, which has to match.
func (c *compaction) survey(ctx context.Context, all listing, below uint64) error {
	c.segs, c.records, c.report.Refused = c.segs[:0], 0, nil
	for i, base := range all {
		if base >= below || i+1 == len(all) {
			break
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		// What this writer made, it would know if it could not replace it.
		s := closedSegment{base: base, next: all[i+1], maxMS: noTime, vouched: base >= c.own}
		err := c.look(ctx, &s)
		if gone(err) && len(c.segs) > 0 {
			// It was no segment of the log any more; the one below ends elsewhere.
			return c.survey(ctx, slices.Delete(slices.Clone(all), i, i+1), below)
		}
		if gone(err) {
			continue // by retention
		}
		if err != nil {
			return wrap("compact: look at "+pathOf(c.dir, format.SegmentName(base)), err)
		}
		if s.cleanedMS > c.nowMS {
			s.cleanedMS = format.NotCleaned // by a clock that was wrong: the grace begins anew
		}
		c.segs = append(c.segs, s)
		c.records += s.taken
	}
	return nil
}

// look fills in what is to be known of one segment.
func (c *compaction) look(ctx context.Context, s *closedSegment) error {
	f, err := openSegment(c.dir, s.base)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	s.size, s.closedMS = info.Size(), info.ModTime().UnixMilli()
	c.recall(s, info)
	x, err := openIndex(c.dir, s.base, f)
	switch {
	case err == nil:
		s.take(x.header)
		if x.header.ClosedMS != 0 {
			s.closedMS = x.header.ClosedMS
		}
		s.cleanedMS = x.header.CleanedMS
		s.vouched = s.vouched || s.cleanedMS != format.NotVouched && s.cleanedMS != format.Refused
		end := x.header.End
		s.apart = end != 0 && end < s.next && !covered(c.gaps, end, s.next)
		return x.close()
	case !noIndex(err):
		return err
	case s.refused:
		return nil
	}
	b, err := c.scan(ctx, s, f)
	if err == nil && !s.refused {
		s.take(b.header)
	}
	return err
}

func (s *closedSegment) take(h format.IndexHeader) {
	s.taken = h.Records
	if h.Records > 0 {
		s.maxMS = h.MaxTimeMS
	}
	s.tombs = h.Tombstones > 0
	s.overlaps = h.Records > 0 && h.LastOffset >= s.next
}

// scan reads a segment without an index.
func (c *compaction) scan(ctx context.Context, s *closedSegment, f vfs.File) (*indexBuilder, error) {
	b := newIndexBuilder(s.base, 1<<62)
	fr := newFrames(f, 0, s.size, s.base)
	fr.brief = true
	defer fr.release()
	for {
		pos := fr.pos
		h, _, err := fr.next()
		switch {
		case err == io.EOF:
			return b, nil
		case err != nil:
			return b, c.refuse(s, fr.pos, fr.lowest, err)
		}
		b.add(pos, h)
		if err := c.tick(ctx, h.Size()); err != nil {
			return b, err
		}
	}
}

// old reports how many of the closed segments, from the first on, were closed
// at least lag ago. Records above do not exist for a compaction with that lag: a
// reader that began less than lag ago, and reads up to the end as it was then,
// so misses no key.
func (c *compaction) old(lag time.Duration) int {
	n := 0
	for n < len(c.segs) && (lag <= 0 || c.age(c.segs[n].closedMS) >= lag) {
		n++
	}
	return n
}

// age is the time since ms by the wall clock. What lies in the future was noted
// by a clock that was wrong; it is as old as this writer at least.
func (c *compaction) age(ms int64) time.Duration {
	if ms > c.nowMS {
		return c.running
	}
	return time.Duration(min(c.nowMS-max(ms, 0), maxMillis)) * time.Millisecond
}
