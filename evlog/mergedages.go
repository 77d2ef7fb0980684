package evlog

import "time"

// mergedAges tells which segments may be merged where there is a MaxAge: the age
// of a segment is that of its youngest record, and a merge must not carry old
// records along for ever.
//
// Time is divided into quarters of MaxAge, from 1970 on. The times that the ages of
// the segments count from, and that of the merged one, lie in one quarter, and so
// do those of their closing: so nothing is removed later than by a quarter of MaxAge
// for having been merged, however often that is done. With a bound on the distance
// alone each merge could add to it. No record is removed earlier, unless its own time
// cannot be believed: then by less than a quarter.
type mergedAges struct {
	quarter time.Duration // 0: all may be
	now     time.Time
	sum     segFact // of those taken so far
	some    bool
	alone   bool // the first one cannot be merged
}

func (c *compaction) mergedAges() mergedAges {
	return mergedAges{quarter: c.config.MaxAge / 4, now: timeOf(c.nowMS)}
}

// fact is what a closed segment's age counts from.
func (s *closedSegment) fact() segFact { return segFact{maxMS: s.maxMS, closedMS: s.closedMS} }

// take adds a segment of so many bytes, unless it must not be merged with those
// taken before. Without a time that can be believed it stays alone; without records
// it has no age.
func (m *mergedAges) take(size int64, f segFact) bool {
	if size == 0 {
		return true
	}
	at, ok := f.time(m.now)
	if m.some {
		// Compaction may drop the records that have the highest times, and then the age
		// counts from the closing: that has to be in one quarter too.
		ok = ok && m.same(timeOf(f.closedMS), timeOf(m.sum.closedMS))
		before, _ := m.sum.time(m.now)
		f.maxMS, f.closedMS = max(f.maxMS, m.sum.maxMS), max(f.closedMS, m.sum.closedMS)
		both, sure := f.time(m.now)
		ok = ok && sure && m.same(at, both) && m.same(before, both)
	}
	if ok = m.quarter <= 0 || ok && !m.alone; ok {
		m.sum, m.some = f, true
	} else if !m.some {
		m.alone = true
	}
	return ok
}

// same reports whether two times lie in one quarter.
func (m *mergedAges) same(a, b time.Time) bool {
	quarter := max(1, m.quarter.Milliseconds())
	return a.UnixMilli()/quarter == b.UnixMilli()/quarter
}
