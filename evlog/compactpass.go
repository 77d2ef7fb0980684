package evlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/evlog-go/evlog/internal/format"
	"github.com/evlog-go/evlog/internal/vfs"
)

// spot is a record's place among the closed segments.
type spot struct {
	seg    int
	pos    int64
	lowest uint64 // lowest offset that may stand there
}

// errAgain: a segment turned out to be damaged, or is gone, and the pass begins
// again without it. Nothing was written in it so far.
var errAgain = errors.New("the pass begins again")

// clean goes through the segments from the oldest on, in passes. A pass takes as
// many records as the map has room for their keys, reads everything above them,
// and then knows for each whether it is the newest of its key. So each segment
// is written at most once, and when the pass comes to a tombstone, all older
// records of its key are gone: they lay below, and it superseded them.
//
// What lies above and was cleaned before need not be read again: it superseded
// what it could at that time. The active segment supersedes nothing yet: so what
// a record was removed for is always in a segment that was closed before, and a
// reader that misses both has missed a roll.
func (c *compaction) clean(ctx context.Context) error {
	defer func() {
		if c.open != nil {
			c.open.discard()
		}
	}()
	var expected, bytes int64
	c.settle()
	last := c.lastSource()
	for i := range c.segs[:last+1] {
		expected += int64(c.segs[i].records)
		bytes += c.segs[i].size
	}
	c.work.total = 2 * bytes
	// Of the memory an eighth says which records go: 24 of them for a key.
	c.keys = newKeyMap(c.opts.MemoryBytes-c.opts.MemoryBytes/8, expected)
	c.drops = make(dropSet, max(1, min(c.opts.MemoryBytes/8, expected/8+64)/8))
	var from spot
	for {
		c.settle()
		last := c.lastSource()
		if from.seg > last {
			return nil
		}
		done := c.work.done
		end, err := c.pass(ctx, from, last)
		if err == errAgain {
			c.work.done = done
			if c.open != nil && c.open.s.out() {
				c.open.discard()
				c.open = nil
			}
			continue
		}
		if err != nil {
			return err
		}
		from = end
	}
}

// out reports whether the run has nothing to do with the segment any more.
func (s *closedSegment) out() bool { return s.refused || s.gone }

// lastSource is the highest segment with records that may supersede others, or
// that go because their grace is over; -1 if there is none. Segments above are
// clean, and nothing is new to them.
func (c *compaction) lastSource() int {
	for i := c.scope - 1; i >= 0; i-- {
		if c.isSource(i) {
			return i
		}
	}
	return -1
}

func (c *compaction) isSource(i int) bool {
	s := &c.segs[i]
	return !s.out() && (s.dirty() || c.expiring(i))
}

// pass does one pass from from on and returns where the next one begins.
func (c *compaction) pass(ctx context.Context, from spot, last int) (spot, error) {
	c.report.Passes++
	c.keys.reset()
	clear(c.drops)
	for i := from.seg; i <= last; i++ {
		c.segs[i].taken = 0
	}
	end, err := c.collect(ctx, from, last)
	if err == nil {
		err = c.readAbove(ctx, end, last)
	}
	if err == nil {
		err = c.write(ctx, from, end, last)
	}
	return end, err
}

// lookahead is how many records are looked up in the map at once.
const lookahead = 32

// batch is records that wait to be looked up. Keys of those without one are zero.
type batch struct {
	keys  [lookahead]keyHash
	spots [lookahead]spot
	sizes [lookahead]int64
	n     int
	sink  uint64
}

// collect fills the map with the keys of the records from from on, and returns
// the place of the first record that there was no room for.
func (c *compaction) collect(ctx context.Context, from spot, last int) (end spot, err error) {
	var b batch
	n := uint64(0)
	end = spot{seg: last + 1}
	flush := func() error {
		b.sink += c.keys.touch(b.keys[:b.n])
		for j := range b.n {
			if !c.take(b.keys[j], n) {
				end = b.spots[j]
				return io.EOF
			}
			n++
			c.segs[b.spots[j].seg].taken++
			c.work.advance(b.sizes[j])
		}
		b.n = 0
		return nil
	}
	for i := from.seg; i <= last; i++ {
		at := spot{seg: i, lowest: c.segs[i].base}
		if i == from.seg && from.pos > 0 {
			at = from
		}
		err := c.eachRecord(ctx, at, c.segs[i].size, func(pos int64, h format.Header, rec []byte) error {
			b.keys[b.n] = keyHash{}
			if h.KeyLen > 0 {
				b.keys[b.n] = c.keys.hash(h.Key(rec))
			}
			b.spots[b.n], b.sizes[b.n] = spot{seg: i, pos: pos, lowest: h.Offset}, h.Size()
			if b.n++; b.n < lookahead {
				return nil
			}
			return flush()
		})
		if err == nil && end.seg > last {
			err = flush()
		}
		if err != nil && err != io.EOF {
			return end, err
		}
		if end.seg <= last {
			break
		}
	}
	return end, nil
}

// take takes the next record, number n, into the pass, if there is room.
func (c *compaction) take(key keyHash, n uint64) bool {
	if n >= c.drops.room() {
		return false
	}
	if key == (keyHash{}) {
		return true
	}
	before, had, ok := c.keys.add(key, n)
	if had {
		c.drops.add(before)
	}
	return ok
}

// readAbove takes into account what lies above the records collected.
func (c *compaction) readAbove(ctx context.Context, from spot, last int) error {
	var b batch
	flush := func() {
		b.sink += c.keys.touch(b.keys[:b.n])
		for _, key := range b.keys[:b.n] {
			if before, had := c.keys.raise(key); had {
				c.drops.add(before)
			}
		}
		b.n = 0
	}
	each := func(_ int64, h format.Header, rec []byte) error {
		if h.KeyLen == 0 {
			return nil
		}
		b.keys[b.n] = c.keys.hash(h.Key(rec))
		if b.n++; b.n == lookahead {
			flush()
		}
		return nil
	}
	for i := from.seg; i <= last; i++ {
		at := spot{seg: i, lowest: c.segs[i].base}
		if i == from.seg && from.pos > 0 {
			at = from
		} else if !c.isSource(i) {
			continue
		}
		if err := c.eachRecord(ctx, at, c.segs[i].size, each); err != nil {
			return err
		}
	}
	flush()
	return nil
}

func isTombstone(h format.Header) bool {
	return h.KeyLen > 0 && h.Size() == format.Size(int(h.KeyLen), 0)
}

// eachRecord reads the records of one closed segment, unless it is out. io.EOF
// from each ends it early. errAgain: the segment is damaged or gone.
func (c *compaction) eachRecord(ctx context.Context, at spot, size int64, each func(int64, format.Header, []byte) error) error {
	s := &c.segs[at.seg]
	if s.out() {
		return nil
	}
	f, err := openSegment(c.dir, s.base)
	if err == nil {
		err = errors.Join(c.eachOf(ctx, f, at, size, each), f.Close())
	}
	return c.trouble(s, err)
}

// trouble decides about an error of reading a closed segment.
func (c *compaction) trouble(s *closedSegment, err error) error {
	var bad *badRecord
	switch {
	case err == nil:
		return nil
	case gone(err):
		s.gone = true
		return errAgain
	case errors.As(err, &bad):
		if err := c.refuse(s, bad.pos, bad.offset, bad.err); err != nil {
			return wrap("compact: read "+pathOf(c.dir, format.SegmentName(s.base)), err)
		}
		return errAgain
	}
	return wrap("compact", err)
}

// badRecord is an error of reading a record, with its place.
type badRecord struct {
	pos    int64
	offset uint64
	err    error
}

func (e *badRecord) Error() string { return fmt.Sprintf("byte %d: %v", e.pos, e.err) }
func (e *badRecord) Unwrap() error { return e.err }

// eachOf calls each for the records of f from at on. io.EOF from it ends it early.
func (c *compaction) eachOf(ctx context.Context, f vfs.File, at spot, limit int64, each func(int64, format.Header, []byte) error) error {
	return c.eachRun(ctx, f, at, limit, func(pos int64, run []byte) error {
		for len(run) > 0 {
			var h format.Header
			var rec []byte
			h, rec, run = cutRecord(run)
			if err := each(pos, h, rec); err != nil {
				return err
			}
			pos += h.Size()
		}
		return nil
	})
}

// eachRun is eachOf for some records at a time; see frames.run.
func (c *compaction) eachRun(ctx context.Context, f vfs.File, at spot, limit int64, each func(int64, []byte) error) error {
	fr := newFrames(f, at.pos, limit, at.lowest)
	fr.brief = true
	defer fr.release()
	for {
		pos := fr.pos
		run, err := fr.run()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return &badRecord{fr.pos, fr.lowest, err}
		}
		if err := each(pos, run); err != nil {
			if err == io.EOF {
				return nil
			}
			return err
		}
		if err := c.tick(ctx, fr.pos-pos); err != nil {
			return err
		}
	}
}

// write puts into effect what the pass found out about the records from from to
// end.
func (c *compaction) write(ctx context.Context, from, end spot, last int) error {
	copies := c.lastExpiring(last)
	n := uint64(0) // of the first record in the segment
	for i := from.seg; i <= min(end.seg, last); i++ {
		s := &c.segs[i]
		if s.out() {
			continue
		}
		if i == end.seg && end.pos == 0 {
			break
		}
		start, stop := int64(0), s.size
		if i == from.seg {
			start = from.pos
		}
		if i == end.seg {
			stop = end.pos
		}
		if c.open != nil || c.drops.any(n, s.taken) || c.expiring(i) || i < copies && !s.vouched {
			if err := c.judge(ctx, i, start, stop, n); err != nil {
				return err
			}
		} else {
			c.work.advance(stop - start)
		}
		n += s.taken
		if i == end.seg {
			break // the next pass goes on in it
		}
		if err := c.finish(ctx, i); err != nil {
			return err
		}
	}
	return nil
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

// judge drops from segment i what goes of the records from start to stop, of
// which the first has number n.
func (c *compaction) judge(ctx context.Context, i int, start, stop int64, n uint64) error {
	if c.open == nil {
		r, err := c.newRewriter(ctx, i, start)
		if gone(err) {
			c.segs[i].gone = true
			return nil
		}
		if err != nil {
			return err
		}
		c.open = r
	}
	if s := &c.segs[i]; start == 0 && stop == s.size && s.taken > 0 && c.drops.all(n, s.taken) {
		c.open.empty()
		return nil
	}
	err := c.open.judge(ctx, stop, n, c.expiring(i))
	if err == nil {
		return nil
	}
	c.open.discard()
	c.open = nil
	if err := c.trouble(&c.segs[i], err); err != errAgain {
		return err
	}
	return nil // it was valid a moment ago; the rest of the pass does not depend on it
}

// finish ends the work on segment i: what is left of it takes its place.
func (c *compaction) finish(ctx context.Context, i int) error {
	s := &c.segs[i]
	r := c.open
	c.open = nil
	if s.out() {
		c.settle()
		return nil
	}
	cleaned := s.cleanedMS
	if s.dirty() && i <= c.unsure && c.nowMS >= plausibleSince.UnixMilli() {
		cleaned = c.clock.Now().UnixMilli() // the grace begins now, and not when the run did
	}
	if r == nil {
		if cleaned != s.cleanedMS && c.log != nil {
			if err := c.note(s, cleaned); err != nil {
				return err
			}
		}
		s.cleanedMS = cleaned
		return nil
	}
	change := CompactChange{Base: s.base, Into: s.base, Superseded: r.superseded, Tombstones: r.tombstones, Before: s.size, After: r.kept}
	if c.log != nil {
		err := r.replace(ctx, cleaned)
		if gone(err) {
			s.gone = true
			return nil
		}
		if errors.Is(err, fs.ErrPermission) && !c.log.poisoned() {
			c.refuseInUse(s, err)
			c.settle()
			return nil
		}
		if err != nil {
			return wrap("compact: replace "+pathOf(c.dir, format.SegmentName(s.base)), err)
		}
	} else {
		r.discard()
	}
	s.size, s.tombs, s.cleanedMS, s.vouched = r.kept, r.tombs, cleaned, true
	c.report.Superseded += change.Superseded
	c.report.Tombstones += change.Tombstones
	c.report.Changes = append(c.report.Changes, change)
	return nil
}

// rewriter writes what stays of one segment, possibly over many passes.
type rewriter struct {
	c    *compaction
	s    *closedSegment
	src  vfs.File
	fr   frames
	run  []byte       // read, checked and not judged yet
	pos  int64        // of run
	copy *segmentCopy // nil: nothing is changed

	superseded, tombstones uint64 // dropped
	kept                   int64  // bytes
	tombs                  bool   // some of them tombstones
}

// newRewriter begins with segment i, of which everything below start stays.
func (c *compaction) newRewriter(ctx context.Context, i int, start int64) (*rewriter, error) {
	s := &c.segs[i]
	src, err := openSegment(c.dir, s.base)
	if err != nil {
		return nil, err
	}
	r := &rewriter{c: c, s: s, src: src, fr: newFrames(src, 0, s.size, s.base)}
	r.fr.brief = true
	if c.log != nil {
		r.copy, err = newSegmentCopy(c.log, s.base, c.opts.BytesPerSecond > 0,
			func(n int64) error { return c.pace(ctx, n) })
		if err != nil {
			r.fr.release()
			return nil, errors.Join(wrap("compact", err), src.Close())
		}
	}
	if err := r.keep(ctx, start, func(format.Header) bool { return true }); err != nil {
		r.discard()
		return nil, err
	}
	return r, nil
}

// judge reads on up to stop, which is the beginning of a record or the end. The
// next record has number n.
func (r *rewriter) judge(ctx context.Context, stop int64, n uint64, expiring bool) error {
	drops := r.c.drops
	return r.keep(ctx, stop, func(h format.Header) bool {
		n++
		r.c.work.advance(h.Size())
		switch {
		case drops.has(n - 1):
			r.superseded++
		case expiring && isTombstone(h):
			r.tombstones++
		default:
			return true
		}
		return false
	})
}

// keep reads on up to stop and copies the records that stay: neighbours in one
// piece.
func (r *rewriter) keep(ctx context.Context, stop int64, stays func(h format.Header) bool) error {
	for r.pos < stop {
		if len(r.run) == 0 {
			var err error
			if r.run, err = r.fr.run(); err != nil {
				return &badRecord{r.fr.pos, r.fr.lowest, err}
			}
		}
		begin := r.pos
		piece, at, n := r.run, r.pos, 0 // piece[:n], from at, stays and is not copied yet
		for len(r.run) > 0 && r.pos < stop {
			h, rec, rest := cutRecord(r.run)
			r.run = rest
			r.pos += h.Size()
			if stays(h) {
				n += len(rec)
				r.kept += h.Size()
				r.tombs = r.tombs || isTombstone(h)
				continue
			}
			if err := r.add(piece[:n], at); err != nil {
				return err
			}
			piece, at, n = rest, r.pos, 0
		}
		if err := r.add(piece[:n], at); err != nil {
			return err
		}
		if err := r.c.tick(ctx, r.pos-begin); err != nil {
			return err
		}
	}
	return nil
}

func (r *rewriter) add(run []byte, pos int64) error {
	if r.copy == nil {
		return nil
	}
	return r.copy.add(run, r.src, pos)
}

// empty drops all records of the segment, without reading them once more: each was
// checked when it was collected, and has a newer one.
func (r *rewriter) empty() {
	r.superseded, r.pos = r.s.taken, r.s.size
	r.c.work.advance(r.s.size)
}

// replace puts the copy in the segment's place, and after that its index.
func (r *rewriter) replace(ctx context.Context, cleanedMS int64) error {
	c, l := r.c, r.c.log
	err := r.copy.finish(ctx, r.s.closedMS)
	if err == nil {
		err = l.closed.change(func() error {
			end := r.s.next
			if r.s.apart || r.s.overlaps {
				old, _ := oldFacts(l.dir, r.s.base, r.src)
				end = old.End // what it is, if anything
			}
			if err := l.replaceBy(r.copy, r.src); err != nil {
				return err
			}
			if err := r.copy.putIndex(r.s.closedMS, cleanedMS, end); err != nil {
				c.logger.Warn("index not written; a later opening will", "segment", r.s.base, "err", err)
			}
			return nil
		})
	}
	r.fr.release()
	if err != nil {
		r.discard()
	}
	return err
}

// discard leaves the segment as it is.
func (r *rewriter) discard() {
	r.fr.release()
	_ = r.src.Close() // only read
	if r.copy != nil {
		r.copy.discard()
	}
}
