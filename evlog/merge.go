package evlog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/evlog-go/evlog/internal/format"
	"github.com/evlog-go/evlog/internal/vfs"
)

// clearOverlaps undoes what an interrupted merge left, before anything else is
// replaced: two neighbours, the first holding all that is wanted of the second.
// That can be read in the page cache, which is no evidence that the first one's
// name stands for the merged file on the disk too (I5). So it is written again, and
// with it what the second one has above its end: where the first one was damaged
// and repaired, readers have gone on in the second one there.
func (c *compaction) clearOverlaps(ctx context.Context) error {
	for i := 0; i < len(c.segs); i++ {
		n := i + 1
		last := c.segs[i].overlaps
		for last && n < len(c.segs) {
			covered, err := c.covers(ctx, i, n)
			if err != nil {
				return err
			}
			if !covered {
				break
			}
			n++
		}
		if n == i+1 || c.segs[i].refused {
			continue
		}
		if err := c.fold(ctx, i, n, i+1); err != nil {
			return err
		}
		if first := &c.segs[i]; first.overlaps {
			first.refused = true // as is the damaged one that it overlaps
		}
		i = n - 1
	}
	return nil
}

// covers reports whether segment i holds a record at or above the base of
// segment n.
func (c *compaction) covers(ctx context.Context, i, n int) (bool, error) {
	s := &c.segs[i]
	if c.segs[n].base == s.next {
		return true, nil // overlaps says so
	}
	f, err := openSegment(c.dir, s.base)
	if err != nil {
		return false, wrap("compact", err)
	}
	defer f.Close()
	h, ok, err := indexHeader(c.dir, s.base, f)
	if err != nil {
		return false, wrap("compact", err)
	}
	if !ok {
		b, err := c.scan(ctx, s, f)
		if err != nil {
			return false, err
		}
		h = b.header
	}
	return h.Records > 0 && h.LastOffset >= c.segs[n].base, nil
}

// merge puts small neighbours together. None gets larger than the writer would
// have made it, nor does retention remove anything much later for it: see group.
func (c *compaction) merge(ctx context.Context) error {
	for i := 0; i < c.scope; i++ {
		n := c.group(i)
		if n < i+2 {
			continue
		}
		if err := c.fold(ctx, i, n, n); err != nil {
			return err
		}
		i = n - 1
	}
	return nil
}

// group returns the end of the segments from i on that are to become one. None
// of them is larger than half a segment, so that no byte is copied often, and
// none holds a tombstone in its grace, which counts from a time that there is
// one of for each segment.
//
// A cap on bytes is kept by removing whole segments, so they are no larger a part
// of it than the writer makes them; and see mergedAges.
func (c *compaction) group(i int) (end int) {
	var sum int64
	limit := c.config.rollBytes()
	ages := c.mergedAges()
	for end = i; end < c.scope; end++ {
		s := &c.segs[end]
		sum += s.size
		if s.out() || s.overlaps || s.size > limit/2 || sum > limit ||
			s.tombs && !c.graceOver(s) || s.dirty() && s.size > 0 || !ages.take(s.size, s.fact()) {
			return end
		}
		if s.apart {
			return end + 1
		}
	}
	return end
}

// fold makes the segments from i to n one file under the name of the first: it
// holds the records of those from i to with, which is all that is wanted. The
// order is the format's, and what a crash after each step leaves is legal:
//
//  1. write the file under a temporary name, sync it: nothing has changed.
//  2. rename it to the first one's name, sync the directory: the segments
//     overlap, which reading takes as it is and the next compaction clears.
//  3. write the first one's index, with the new end, sync it and the directory:
//     the same. Without it, a file would seem to be missing after the next step.
//  4. remove the others in ascending order, the .log before the .idx, and sync
//     the directory after each: fewer of them overlap.
func (c *compaction) fold(ctx context.Context, i, n, with int) error {
	first := &c.segs[i]
	m := mergedSegment{c: c, first: first, next: c.segs[n-1].next}
	for j := i; j < with; j++ {
		if c.segs[j].size > 0 { // an empty one's age is nobody's
			m.closedMS = max(m.closedMS, c.segs[j].closedMS)
		}
		m.cleanedMS = max(m.cleanedMS, c.segs[j].cleanedMS, format.NotCleaned)
	}
	if m.closedMS == 0 {
		m.closedMS = first.closedMS
	}
	if c.segs[n-1].apart {
		m.lastEnd = c.segs[n-1].base // whose index knows it
	}
	changes := c.planFold(i, n, with)
	if c.log != nil {
		err := m.run(ctx, c.segs[i:with], c.segs[with:n], c.segs[i+1:n])
		if err != nil {
			return c.foldFailed(first, err)
		}
		if m.more > 0 {
			changes[0].After += m.more
			with = n
		}
	}
	first.size, first.next, first.overlaps, first.apart, first.vouched = changes[0].After, m.next, false, c.segs[n-1].apart, true
	for j := i + 1; j < n; j++ {
		if j < with {
			first.tombs, first.maxMS = first.tombs || c.segs[j].tombs, max(first.maxMS, c.segs[j].maxMS)
		}
		c.segs[j].gone = true
	}
	first.cleanedMS, first.closedMS = m.cleanedMS, m.closedMS
	c.report.Changes = append(c.report.Changes, changes...)
	return nil
}

// planFold is what fold does, for the report.
func (c *compaction) planFold(i, n, with int) []CompactChange {
	first := &c.segs[i]
	changes := []CompactChange{{Base: first.base, Into: first.base, Before: first.size, After: first.size}}
	for j := i + 1; j < n; j++ {
		s := &c.segs[j]
		changes = append(changes, CompactChange{Base: s.base, Into: first.base, Before: s.size})
		if j < with {
			changes[0].After += s.size
		}
	}
	return changes
}

// foldFailed decides about an error while segments were merged.
func (c *compaction) foldFailed(first *closedSegment, err error) error {
	switch {
	case c.log.poisoned():
		return c.log.failure()
	case err == errAgain:
		return nil // one of them is damaged or gone, and it was told
	case gone(err):
		first.gone = true // by retention
		return nil
	case errors.Is(err, fs.ErrPermission):
		err = fmt.Errorf("%w: %w", errInUse, err)
	}
	return wrap(fmt.Sprintf("compact: merge into segment %d", first.base), err)
}

// mergedSegment is a merge under way.
type mergedSegment struct {
	c                   *compaction
	first               *closedSegment
	next                uint64 // base of the segment above all of them
	lastEnd             uint64
	more                int64 // bytes that were above the end of what is wanted
	closedMS, cleanedMS int64
	src                 vfs.File // the first one, before
	copy                *segmentCopy
	now                 vfs.File // the first one, merged
}

// run does all the steps: the records of the segments in of, and those of the ones
// in above that stand above them, take the place of the first one, and rest goes.
func (m *mergedSegment) run(ctx context.Context, of, above, rest []closedSegment) error {
	defer m.close()
	err := m.build(ctx, of, above)
	if err == nil {
		err = m.install(rest)
	}
	return err
}

// install does the steps from the second on.
func (m *mergedSegment) install(rest []closedSegment) error {
	if err := m.replace(); err != nil {
		return err
	}
	for j := range rest {
		err := m.c.log.closed.change(func() error { return m.remove(rest[j].base) })
		if errors.Is(err, fs.ErrPermission) && !m.c.log.poisoned() {
			err = fmt.Errorf("%w: %w", errInUse, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// build copies the records of the segments into one file.
func (m *mergedSegment) build(ctx context.Context, of, above []closedSegment) error {
	c := m.c
	var err error
	m.copy, err = c.newCopy(ctx, m.first.base)
	if err != nil {
		return err
	}
	for j := range of {
		if err := m.add(ctx, &of[j], 0); err != nil {
			return err
		}
	}
	wanted := m.copy.size()
	for j := range above {
		s := &above[j]
		if err := m.add(ctx, s, m.copy.facts.b.header.LastOffset+1); err != nil {
			return err
		}
		if m.more < m.copy.size()-wanted {
			m.more = m.copy.size() - wanted
			m.closedMS, m.cleanedMS = max(m.closedMS, s.closedMS), format.NotCleaned
		}
	}
	return m.copy.finish(ctx, m.closedMS)
}

// add copies the records of a segment with offsets from from on, if it has any.
func (m *mergedSegment) add(ctx context.Context, s *closedSegment, from uint64) error {
	f, err := openSegment(m.c.dir, s.base)
	if err != nil {
		return m.c.trouble(s, err)
	}
	if m.src == nil {
		m.src = f // the first one
	} else {
		defer f.Close() // only read
	}
	if from > 0 {
		h, ok, err := indexHeader(m.c.dir, s.base, f)
		if err != nil || ok && h.LastOffset < from { // also where it is damaged
			return wrap("compact", err)
		}
	}
	err = m.c.eachRun(ctx, f, spot{lowest: s.base}, s.size, func(pos int64, run []byte) error {
		for len(run) > 0 {
			h, _, rest := cutRecord(run)
			if h.Offset >= from {
				break
			}
			pos += h.Size()
			run = rest
		}
		return m.copy.add(run, f, pos)
	})
	return m.c.trouble(s, err)
}

// replace puts the merged file in the first one's place, with an index that is
// as durable as the file itself.
func (m *mergedSegment) replace() error {
	c, l := m.c, m.c.log
	return l.closed.change(func() error {
		end, err := m.end()
		if err != nil {
			return err
		}
		if m.copy.index == nil {
			return m.copy.indexErr
		}
		if err := l.replaceBy(m.copy, m.src); err != nil {
			return err
		}
		if err := m.copy.putIndex(m.closedMS, m.cleanedMS, end); err != nil {
			return err
		}
		if err := l.dir.Sync(); err != nil {
			return l.poison(fmt.Errorf("evlog: merge into segment %d: %w: %w", m.first.base, errSyncDir, err))
		}
		m.now, err = openSegment(c.dir, m.first.base)
		return err
	})
}

// end is the end that the merged segment's index claims: the last one's, which is
// the base of the next segment unless a file is missing there.
func (m *mergedSegment) end() (uint64, error) {
	if m.lastEnd == 0 {
		return m.next, nil
	}
	f, err := openSegment(m.c.dir, m.lastEnd)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	h, err := oldFacts(m.c.dir, m.lastEnd, f)
	if err != nil {
		return 0, nil //nolint:nilerr // then nothing is claimed
	}
	return h.End, nil
}

// remove unlinks a segment that was merged into the first one.
func (m *mergedSegment) remove(base uint64) error {
	l := m.c.log
	if err := l.stillThere(m.first.base, m.now); err != nil {
		if gone(err) {
			return nil // retention took the merged file; what is still there may stay
		}
		return err
	}
	l.reader.forget(base)
	return l.unlinkSegment(base)
}

// close releases what a merge holds, and removes a copy that was not used.
func (m *mergedSegment) close() {
	for _, f := range []vfs.File{m.src, m.now} {
		if f != nil {
			_ = f.Close() // only read
		}
	}
	if m.now == nil && m.copy != nil {
		m.copy.discard()
	}
}
