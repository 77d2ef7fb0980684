package evlog

import (
	"context"
	"errors"

	"github.com/evlog-go/evlog/internal/format"
	"github.com/evlog-go/evlog/internal/vfs"
)

// output is a file that a compaction writes: what stays of a segment, possibly
// over many passes, or of several neighbours in one pass, which are merged by
// that. Such a merge has the format's order: see fold.
type output struct {
	c     *compaction
	copy  *segmentCopy // nil: nothing is changed
	parts []*part      // of segments that are in it as a whole
	bytes int64        // of parts
	ages  mergedAges   // of parts
	now   *part        // of the segment whose records are being judged; nil: none
}

// part is what stays of one segment.
type part struct {
	o     *output
	s     *closedSegment
	at    turn
	began int64 // the work done before

	src vfs.File // nil: closed
	fr  frames
	run []byte // read, checked and not judged yet
	pos int64  // of run

	superseded, tombstones uint64 // dropped
	kept                   int64  // bytes
	maxMS                  int64  // highest time; noTime without any
	tombs                  bool   // some of them tombstones
	cleanedMS              int64
}

// begin begins with a segment, of which everything below start stays.
func (c *compaction) begin(ctx context.Context, at turn, start int64) error {
	s := &c.segs[at.seg]
	src, err := openSegment(c.dir, s.base)
	if err != nil {
		return err
	}
	o := c.out
	if o == nil {
		o = &output{c: c, ages: c.mergedAges()}
		if c.log != nil {
			o.copy, err = c.newCopy(ctx, s.base)
			if err != nil {
				return errors.Join(err, src.Close())
			}
		}
		c.out = o
	}
	o.now = &part{o: o, s: s, at: at, began: c.work.done, src: src, maxMS: noTime, fr: newFrames(src, 0, s.size, s.base)}
	o.now.fr.brief, o.now.fr.still = true, s.size
	return o.now.keep(ctx, start, func(format.Header) bool { return true })
}

// judge reads on up to stop, which is the beginning of a record or the end. The
// next record has number n.
func (p *part) judge(ctx context.Context, stop int64, n uint64, expiring bool) error {
	drops := p.o.c.drops
	return p.keep(ctx, stop, func(h format.Header) bool {
		n++
		p.o.c.work.advance(h.Size())
		switch {
		case drops.has(n - 1):
			p.superseded++
		case expiring && isTombstone(h):
			p.tombstones++
		default:
			return true
		}
		return false
	})
}

// keep reads on up to stop and copies the records that stay: neighbours in one
// piece.
func (p *part) keep(ctx context.Context, stop int64, stays func(h format.Header) bool) error {
	for p.pos < stop {
		if len(p.run) == 0 {
			var err error
			if p.run, err = p.fr.run(); err != nil {
				return &badRecord{p.fr.pos, p.fr.lowest, err}
			}
		}
		begin := p.pos
		piece, at, n := p.run, p.pos, 0 // piece[:n], from at, stays and is not copied yet
		for len(p.run) > 0 && p.pos < stop {
			h, rec, rest := cutRecord(p.run)
			p.run = rest
			p.pos += h.Size()
			if stays(h) {
				n += len(rec)
				p.kept += h.Size()
				p.maxMS = max(p.maxMS, h.TimeMS)
				p.tombs = p.tombs || isTombstone(h)
				continue
			}
			if err := p.add(piece[:n], at); err != nil {
				return err
			}
			piece, at, n = rest, p.pos, 0
		}
		if err := p.add(piece[:n], at); err != nil {
			return err
		}
		if err := p.o.c.tick(ctx, p.pos-begin); err != nil {
			return err
		}
	}
	return nil
}

func (p *part) add(run []byte, pos int64) error {
	if p.o.copy == nil {
		return nil
	}
	return p.o.copy.add(run, p.src, pos)
}

// pause gives the buffers back until the next pass goes on: it needs them for what
// it reads first.
func (p *part) pause() {
	if len(p.run) > 0 {
		p.fr.seek(p.pos, format.OffsetOf(p.run))
		p.run = nil
	}
	p.fr.release()
}

// empty drops all records of the segment, without reading them once more: each was
// checked when it was collected, and has a newer one.
func (p *part) empty() {
	p.superseded, p.pos = p.s.taken, p.s.size
	p.o.c.work.advance(p.s.size)
}

// fact is what its age counts from.
func (p *part) fact() segFact { return segFact{maxMS: p.maxMS, closedMS: p.s.closedMS} }

// close ends the reading.
func (p *part) close() {
	p.fr.release()
	if p.src != nil {
		_ = p.src.Close() // only read
		p.src = nil
	}
}

// end says that the segment at hand is in the output as a whole. The file of the
// first one stays open, to tell whether it is still there.
func (o *output) end(cleanedMS int64) {
	p := o.now
	o.now = nil
	p.cleanedMS = cleanedMS
	p.fr.release()
	if len(o.parts) > 0 {
		p.close()
	}
	o.parts = append(o.parts, p)
	o.bytes += p.kept
	o.ages.take(p.kept, p.fact())
}

// takeBack takes what is there of the segment at hand out of the output.
func (c *compaction) takeBack(ctx context.Context) error {
	o := c.out
	if o == nil || o.now == nil {
		return nil
	}
	c.work.again(o.now.began)
	o.now.close()
	o.now = nil
	if len(o.parts) == 0 {
		o.discard()
		c.out = nil
		return nil
	}
	if o.copy == nil {
		return nil
	}
	return wrap("compact", o.copy.cut(ctx, o.bytes))
}

// discard leaves the segments as they are.
func (o *output) discard() {
	for _, p := range o.parts {
		p.close()
	}
	if o.now != nil {
		o.now.close()
	}
	if o.copy != nil {
		o.copy.discard()
	}
}

// tombs reports whether tombstones are left.
func (o *output) tombs() bool {
	return o.parts[0].tombs // a segment with tombstones stays alone
}

// maxMS is the highest time of the records.
func (o *output) maxMS() int64 {
	highest := int64(noTime)
	for _, p := range o.parts {
		highest = max(highest, p.maxMS)
	}
	return highest
}

// times are when the segments were closed and cleaned. When one of which nothing is
// left was closed matters to nobody.
func (o *output) times() (closedMS, cleanedMS int64) {
	closedMS, cleanedMS = o.parts[0].s.closedMS, o.parts[0].cleanedMS
	if o.ages.some {
		closedMS = o.ages.sum.closedMS
	}
	for _, p := range o.parts {
		cleanedMS = max(cleanedMS, p.cleanedMS)
	}
	return closedMS, cleanedMS
}

// install puts the output in the place of its segments.
func (o *output) install(ctx context.Context) error {
	if o.copy == nil {
		o.discard()
		return nil
	}
	closedMS, cleanedMS := o.times()
	first, last := o.parts[0], o.parts[len(o.parts)-1]
	if first == last {
		err := o.replace(ctx, closedMS, cleanedMS)
		if err != nil {
			o.discard()
		}
		return err
	}
	m := mergedSegment{
		c: o.c, first: first.s, next: last.s.next, closedMS: closedMS, cleanedMS: cleanedMS,
		src: first.src, copy: o.copy,
	}
	defer m.close()
	if err := m.copy.finish(ctx, closedMS); err != nil {
		return err
	}
	return m.install(o.c.segs[first.at.seg+1 : last.at.seg+1])
}

// replace puts the output in the place of its only segment, and after that its
// index.
func (o *output) replace(ctx context.Context, closedMS, cleanedMS int64) error {
	l, p := o.c.log, o.parts[0]
	if err := o.copy.finish(ctx, closedMS); err != nil {
		return err
	}
	return l.closed.change(func() error {
		end := p.s.next
		if p.s.apart || p.s.overlaps {
			old, _ := oldFacts(l.dir, p.s.base, p.src)
			end = old.End // what it is, if anything
		}
		if err := l.replaceBy(o.copy, p.src); err != nil {
			return err
		}
		if err := o.copy.putIndex(closedMS, cleanedMS, end); err != nil {
			o.c.logger.Warn("index not written; a later opening will", "segment", p.s.base, "err", err)
		}
		return nil
	})
}
