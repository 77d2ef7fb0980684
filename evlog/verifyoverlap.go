package evlog

import (
	"context"
	"errors"
	"hash/maphash"
	"io"
	"slices"

	"github.com/evlog-go/evlog/internal/format"
)

// maxLacking bounds how many keys are remembered of which a newer record is to be
// found: 256 Ki of them. Those beyond are not looked for.
const maxLacking = 1 << 18

var (
	errOverlapLacks = errors.New("a merge was interrupted, and what it wrote lacks a record of the next segment")
	errOverlapHides = errors.New("a merge was interrupted, and the segment lacks a record that the one below has of its range")
)

// overlapChecker looks at neighbours that overlap, as a merge leaves them that was
// interrupted. Who reads on from below takes the first one's records, who begins in
// the range of the second one takes that one's. So each must hold what is wanted:
// the second all that the first one has of its range, and the first all that the
// second one has, but for records of which a newer one was there.
type overlapChecker struct {
	seed maphash.Seed
	// lacking are the records that the second one has and the first one has not, by
	// the hash of their key, of each key the newest: a newer one is to be found.
	lacking map[uint64]lackingRecord
}

type lackingRecord struct{ offset, first, second uint64 }

// lacks notes a record that the first of two segments does not have.
func (c *overlapChecker) lacks(key []byte, r lackingRecord) {
	if c.lacking == nil {
		c.seed, c.lacking = maphash.MakeSeed(), map[uint64]lackingRecord{}
	}
	hash := maphash.Bytes(c.seed, key)
	if _, ok := c.lacking[hash]; ok || len(c.lacking) < maxLacking {
		c.lacking[hash] = r
	}
}

// record is called for each record of the segments above.
func (c *overlapChecker) record(h format.Header, rec []byte) {
	if len(c.lacking) == 0 || h.KeyLen == 0 {
		return
	}
	hash := maphash.Bytes(c.seed, h.Key(rec))
	if r, ok := c.lacking[hash]; ok && r.offset < h.Offset {
		delete(c.lacking, hash)
	}
}

// overlaps compares segment i, whose last record stands below next, with those in
// whose range it reaches.
func (v *verifier) overlaps(ctx context.Context, i int, next uint64) error {
	for j := i + 1; j+1 < len(v.segments) && v.segments[j] < next; j++ {
		var problems []Problem
		for range maxDoubts + 1 { // a live writer may replace one of them
			var err error
			if problems, err = v.compare(ctx, v.segments[i], v.segments[j], v.segments[j+1]); err != nil {
				return err
			}
			if len(problems) == 0 {
				break
			}
		}
		v.report.Problems = append(v.report.Problems, problems...)
	}
	return nil
}

// compare returns what is wrong with two segments that overlap, in the range of the
// second one, which ends at end.
func (v *verifier) compare(ctx context.Context, first, second, end uint64) ([]Problem, error) {
	a, err := v.openRange(first, second)
	if err != nil || a == nil {
		return nil, err
	}
	defer a.close()
	b, err := v.openRange(second, second)
	if err != nil || b == nil {
		return nil, err
	}
	defer b.close()
	lacks := Problem{Fatal: true, Path: pathOf(v.r.dir, format.SegmentName(first)), Err: errOverlapLacks}
	hides := Problem{Fatal: true, Path: pathOf(v.r.dir, format.SegmentName(second)), Err: errOverlapHides}
	// What one of them may have beyond damage in it is not known.
	for ctx.Err() == nil && a.err == nil && a.h.Offset < end && (b.err == nil || b.err == io.EOF) {
		switch {
		case b.err == nil && b.h.Offset == a.h.Offset:
			a.next()
			b.next()
		case b.err == nil && b.h.Offset < a.h.Offset:
			switch {
			case covered(v.r.gaps(), b.h.Offset, b.h.Offset+1):
			case b.h.KeyLen == 0:
				lacks.count(b)
			case len(v.opts.Segments) == 0: // else not all is read in which a newer one may be
				v.overlap.lacks(b.h.Key(b.rec), lackingRecord{b.h.Offset, first, second})
			}
			b.next()
		default:
			if !covered(v.r.gaps(), a.h.Offset, a.h.Offset+1) {
				hides.count(a)
			}
			a.next()
		}
	}
	problems := slices.DeleteFunc([]Problem{lacks, hides}, func(p Problem) bool { return p.LostOffsets == 0 })
	return problems, ctx.Err()
}

// count adds a record to those that a problem is about.
func (p *Problem) count(r *rangeReader) {
	if p.LostOffsets++; p.LostOffsets == 1 {
		p.Offset = r.h.Offset
	}
}

// rangeReader stands at a record of a segment, unless there is an error.
type rangeReader struct {
	fr  frames
	h   format.Header
	rec []byte
	err error
}

// openRange reads a segment from an offset on. Nil: it is gone.
func (v *verifier) openRange(base, from uint64) (*rangeReader, error) {
	f, err := openSegment(v.r.dir, base)
	if gone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	r := &rangeReader{fr: newFrames(f, 0, info.Size(), base)}
	r.fr.brief = true
	for r.next(); r.err == nil && r.h.Offset < from; {
		r.next()
	}
	return r, nil
}

func (r *rangeReader) next() { r.h, r.rec, r.err = r.fr.next() }

func (r *rangeReader) close() {
	f := r.fr.f
	r.fr.release()
	_ = f.Close() // only read
}

// lackingAtEnd tells of the records for which nothing newer was found, now that all
// segments were read: unless something newer may stand in what is damaged, or stood
// in what repair has cut, or the merge has been finished since.
func (v *verifier) lackingAtEnd() {
	if !v.report.OK() {
		return
	}
	bySegment := map[uint64]*Problem{}
	for _, r := range v.overlap.lacking {
		if slices.ContainsFunc(v.r.gaps(), func(g OffsetRange) bool { return g.To > r.offset }) {
			continue
		}
		if _, err := v.r.dir.Stat(format.SegmentName(r.second)); gone(err) {
			continue
		}
		p := bySegment[r.first]
		if p == nil {
			p = &Problem{Fatal: true, Path: pathOf(v.r.dir, format.SegmentName(r.first)), Offset: r.offset, Err: errOverlapLacks}
			bySegment[r.first] = p
		}
		p.Offset, p.LostOffsets = min(p.Offset, r.offset), p.LostOffsets+1
	}
	for _, base := range v.segments {
		if p := bySegment[base]; p != nil {
			v.add(*p)
		}
	}
}
