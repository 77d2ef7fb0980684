package evlog

import (
	"context"
	"errors"
	"fmt"
	"io"

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
// what it could at that time. Nor need what was tried before, as far as it does not
// count. The active segment supersedes nothing yet: so what a record was removed for
// is always in a segment that was closed before, and a reader that misses both has
// missed a roll.
func (c *compaction) clean(ctx context.Context) error {
	defer func() {
		if c.out != nil {
			c.out.discard()
		}
	}()
	var expected, bytes int64
	c.settle()
	last := c.lastSource()
	for i := range c.segs[:last+1] {
		expected += int64(c.segs[i].taken)
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
			c.work.again(done)
			if c.out != nil && c.out.now.s.out() {
				c.out.discard()
				c.out = nil
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
	return c.counts(i) || c.expiring(i)
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

// batch is records of one segment that wait to be looked up. Keys of those without
// one are zero.
type batch struct {
	keys    [lookahead]keyHash
	pos     [lookahead]int64
	offsets [lookahead]uint64
	n       int
	sink    uint64
}

// collect fills the map with the keys of the records from from on, and returns
// the place of the first record that there was no room for.
func (c *compaction) collect(ctx context.Context, from spot, last int) (end spot, err error) {
	var b batch
	n := uint64(0)
	for i := from.seg; i <= last; i++ {
		s := &c.segs[i]
		at, full := spot{seg: i, lowest: s.base}, false
		if i == from.seg && from.pos > 0 {
			at = from
		}
		flush := func(next int64) error {
			b.sink += c.keys.touch(b.keys[:b.n])
			for j, key := range b.keys[:b.n] {
				if !c.take(key, n) {
					end, full, next = spot{i, b.pos[j], b.offsets[j]}, true, b.pos[j]
					break
				}
				n++
				s.taken++
			}
			if b.n > 0 {
				c.work.advance(next - b.pos[0])
			}
			b.n = 0
			if full {
				return io.EOF
			}
			return nil
		}
		err := c.eachRecord(ctx, at, s.size, func(pos int64, h format.Header, rec []byte) error {
			b.keys[b.n] = keyHash{}
			if h.KeyLen > 0 {
				b.keys[b.n] = c.keys.hash(h.Key(rec))
			}
			b.pos[b.n], b.offsets[b.n] = pos, h.Offset
			if b.n++; b.n < lookahead {
				return nil
			}
			return flush(pos + h.Size())
		})
		if err == nil && !full {
			err = flush(s.size)
		}
		if err != nil && err != io.EOF {
			return end, err
		}
		if full {
			return end, nil
		}
	}
	return spot{seg: last + 1}, nil
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
		if c.otherFile(s) {
			return errAgain
		}
		if err := c.refuse(s, bad.pos, bad.offset, bad.err); err != nil {
			return wrap("compact: read "+pathOf(c.dir, format.SegmentName(s.base)), err)
		}
		return errAgain
	}
	return wrap("compact", err)
}

// otherFile reports whether a segment's name leads to another file than the one that
// was looked at. That happens to a plan beside the process that compacts: the end of
// a shorter file is no damage. The plan goes on without the segment.
func (c *compaction) otherFile(s *closedSegment) bool {
	if c.log != nil {
		return false // nobody else replaces files
	}
	now, err := vfs.StampOf(c.dir, format.SegmentName(s.base))
	s.gone = gone(err) || err == nil && now.Size != s.size
	return s.gone
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
	fr.brief, fr.still = true, limit
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
