package evlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/evlog-go/evlog/internal/format"
	"github.com/evlog-go/evlog/internal/vfs"
)

// Problem is one finding of Verify.
type Problem struct {
	// Fatal: damage in a .log, or acknowledged data missing. Otherwise it is a
	// notice: a derived file is bad, or a tail beyond the durable position torn.
	Fatal  bool
	Path   string
	Pos    int64  // byte position
	Offset uint64 // the first offset concerned
	// LostBytes is what lies between Pos and the end of the file, LostOffsets
	// the number of offsets that can no longer be vouched for; 0 if unknown.
	LostBytes   int64
	LostOffsets uint64
	Err         error
}

// VerifyReport is what Verify found.
type VerifyReport struct {
	Segments    []SegmentInfo
	Records     uint64
	Bytes       int64
	First, Next uint64 // as Reader.Bounds
	Problems    []Problem
}

// OK reports whether nothing fatal was found.
func (r *VerifyReport) OK() bool {
	return !slices.ContainsFunc(r.Problems, isFatal)
}

func isFatal(p Problem) bool { return p.Fatal }

// VerifyOptions are the choices of Verify. Nil and the zero value check all.
type VerifyOptions struct {
	// Segments restricts the check to the segments with these bases.
	Segments []uint64
	// Progress is called with the bytes checked and the bytes there are, on the
	// caller's goroutine. Nil is none.
	Progress func(done, total int64)
}

// Verify reads every byte of the log in dir: frames, checksums, order, indexes,
// DURABLE. It takes no lock, changes nothing, and works beside a live writer.
// Damage is in the report; the error says why the check could not be done.
func Verify(ctx context.Context, dir string, opts *VerifyOptions) (*VerifyReport, error) {
	var o VerifyOptions
	if opts != nil {
		o = *opts
	}
	r, err := OpenReader(ctx, dir, nil)
	var lost *CorruptError
	if errors.As(err, &lost) {
		return &VerifyReport{Problems: []Problem{fatal(lost)}}, nil
	}
	if err != nil {
		return nil, err
	}
	defer r.Close()
	v := &verifier{r: r, opts: o, report: &VerifyReport{}}
	return v.report, v.run(ctx)
}

func fatal(e *CorruptError) Problem {
	return Problem{Fatal: true, Path: e.Path, Pos: e.Pos, Offset: e.Offset, Err: e.Err}
}

type verifier struct {
	r           *Reader
	opts        VerifyOptions
	report      *VerifyReport
	d           format.Durable
	assumed     error
	committed   uint64 // highest next_offset of the log's consumers, where DURABLE is lost
	segments    listing
	next        uint64 // after the last record of the segment checked last
	overlap     overlapChecker
	done, total int64
}

func (v *verifier) run(ctx context.Context) error {
	var err error
	if v.d, v.assumed, err = v.r.src.load(ctx); err != nil {
		return err
	}
	// Listed after the durable position was read, so that its segment is there.
	if v.segments, err = v.r.listTwice(); err != nil {
		return err
	}
	if v.assumed != nil {
		if v.committed, err = maxCommitted(v.r.dir, v.r.meta); err != nil {
			v.notice(format.ConsumersName, err)
		}
	}
	v.report.First, v.report.Next, err = v.r.Bounds(ctx)
	if err != nil {
		return err
	}
	v.checkNames()
	if v.total, err = totalSize(v.r.dir, v.segments); err != nil {
		return err
	}
	defer v.forgetLateIndexes()
	for i, base := range v.segments {
		if len(v.opts.Segments) > 0 && !slices.Contains(v.opts.Segments, base) {
			continue
		}
		v.next = 0
		if err := v.segment(ctx, i, base); err != nil {
			return err
		}
		if err := v.overlaps(ctx, i, v.next); err != nil {
			return err
		}
	}
	v.lackingAtEnd()
	return nil
}

// errInsideActive: DURABLE names an older segment than the active one, and an
// offset inside the active one. No writer leaves that.
var errInsideActive = errors.New("it names an older segment than the active one, and an offset inside that")

// checkNames looks at what can be told without reading segments.
func (v *verifier) checkNames() {
	if active := v.segments.active(); v.d.Base < active && v.d.NextOffset > active {
		v.add(Problem{
			Fatal: true, Path: pathOf(v.r.dir, format.DurableName), Offset: v.d.NextOffset, Err: errInsideActive,
		})
	}
	if v.assumed != nil {
		v.notice(format.DurableName, bare(v.assumed))
	}
	if v.r.metaErr != nil {
		v.notice(format.MetaName, bare(v.r.metaErr))
	}
	if active := v.segments.active(); v.d.Base > active {
		v.add(Problem{
			Fatal: true, Path: pathOf(v.r.dir, format.SegmentName(v.d.Base)), Offset: v.d.Base,
			Err: errors.New("the active segment is missing"),
		})
	}
}

func (v *verifier) notice(name string, err error) {
	v.add(Problem{Path: pathOf(v.r.dir, name), Err: err})
}

func (v *verifier) add(p Problem) { v.report.Problems = append(v.report.Problems, p) }

// totalSize adds up the files of the segments.
func totalSize(dir vfs.Dir, segments listing) (total int64, err error) {
	for _, base := range segments {
		info, err := dir.Stat(format.SegmentName(base))
		if err != nil {
			if gone(err) {
				continue
			}
			return 0, err
		}
		total += info.Size()
	}
	return total, nil
}

// segment checks one segment. What looks like damage in one that was removed or
// replaced meanwhile is none: it is looked at again.
func (v *verifier) segment(ctx context.Context, i int, base uint64) error {
	end, active := max(base, v.d.NextOffset), true
	if i+1 < len(v.segments) {
		end, active = v.segments[i+1], false
	}
	for tries := 0; ; tries++ {
		info, problems, err := v.check(ctx, base, end, active)
		if gone(err) {
			return v.vanished(ctx, base)
		}
		if err != nil {
			return err
		}
		if slices.ContainsFunc(problems, isFatal) && tries < maxDoubts {
			continue
		}
		v.report.Segments = append(v.report.Segments, info)
		v.report.Problems = append(v.report.Problems, problems...)
		v.report.Records += info.Records
		v.report.Bytes += info.Bytes
		v.done += info.FileBytes
		if v.opts.Progress != nil {
			v.opts.Progress(min(v.done, v.total), v.total)
		}
		return nil
	}
}

// vanished decides whether a segment that was listed and cannot be opened was
// removed properly.
func (v *verifier) vanished(_ context.Context, base uint64) error {
	segments, err := v.r.list()
	if err != nil {
		return err
	}
	if b, ok := segments.covering(base); ok && b == base {
		return wrap("open "+pathOf(v.r.dir, format.SegmentName(base)), fs.ErrNotExist)
	}
	return nil
}

// check reads one segment and compares it with its index.
func (v *verifier) check(ctx context.Context, base, end uint64, active bool) (SegmentInfo, []Problem, error) {
	f, err := openSegment(v.r.dir, base)
	if err != nil {
		return SegmentInfo{}, nil, err
	}
	defer f.Close()
	x, indexErr := openIndex(v.r.dir, base, f)
	if indexErr == nil {
		defer x.close()
	}
	entries := &entryChecker{x: x, err: indexErr}
	filter := newFilterChecker(entries.x)
	b := newIndexBuilder(base, 1<<62)
	durable := format.IndexHeader{Base: base}
	res, err := scanSegment(f, base, func(pos int64, h format.Header, rec []byte) error {
		b.add(pos, h)
		entries.record(pos, h, b.header.MaxTimeMS)
		filter.record(h, rec)
		v.overlap.record(h, rec)
		if h.Offset < end {
			durable = b.header
		}
		return ctx.Err()
	})
	if err != nil {
		return SegmentInfo{}, nil, wrap("read "+pathOf(v.r.dir, format.SegmentName(base)), err)
	}
	v.next = res.next
	info := SegmentInfo{Base: base, End: end, FileBytes: res.size, State: SegmentClosed}
	header := b.header
	if active {
		info.State, header = SegmentActive, durable
	}
	info.fill(header)
	var problems []Problem
	if p, ok := v.damage(ctx, base, end, active, res); ok {
		problems = append(problems, p)
		if p.Fatal {
			info.State, info.Err = SegmentDamaged, corrupt(v.r.dir, base, p.Pos, p.Offset, p.Err)
		}
	}
	if lost, ok := missingAtEnd(v.r.dir, base, f, res.next); ok && !active && res.err == io.EOF && !v.r.inGap(lost.From, lost.To) {
		p := Problem{
			Fatal: true, Path: pathOf(v.r.dir, format.SegmentName(base)), Pos: res.end, Offset: lost.From,
			LostOffsets: lost.To - lost.From, Err: errCutAtRecord,
		}
		problems = append(problems, p)
		info.State, info.Err = SegmentDamaged, corrupt(v.r.dir, base, p.Pos, p.Offset, p.Err)
	}
	problems = append(problems, v.checkIndex(entries, &info, b, res, active)...)
	if filter.err != nil {
		problems = append(problems, Problem{Path: pathOf(v.r.dir, format.IndexName(base)), Err: filter.err})
	}
	return info, problems, nil
}

// damage judges the place where the valid prefix ends.
func (v *verifier) damage(ctx context.Context, base, end uint64, active bool, res scanResult) (Problem, bool) {
	p := Problem{
		Path: pathOf(v.r.dir, format.SegmentName(base)), Pos: res.end, Offset: res.next,
		LostBytes: res.size - res.end, Err: notEOF(res.err),
	}
	switch {
	case !active && res.err != io.EOF:
		p.Fatal = true
		p.LostOffsets = end - min(end, res.next)
	case active && v.assumed == nil && v.d.NextOffset > base && res.next < v.d.NextOffset:
		p.Fatal = true
		p.LostOffsets = v.d.NextOffset - res.next
	case active && v.assumed != nil && v.committed > res.next:
		p.Fatal = true
		p.LostOffsets = v.committed - res.next
		p.Err = fmt.Errorf("DURABLE is lost and consumers have read up to offset %d: %w", v.committed, p.Err)
	case active && res.err != io.EOF && !v.preallocated(ctx, base, res):
		p.Err = fmt.Errorf("torn beyond the durable position: %w", p.Err)
	default:
		return p, false
	}
	return p, true
}

// preallocated reports whether what follows the valid prefix is only zeros, as
// a writer that is there, or was killed, leaves them.
func (v *verifier) preallocated(ctx context.Context, base uint64, res scanResult) bool {
	f, err := openSegment(v.r.dir, base)
	if err != nil {
		return false
	}
	defer f.Close()
	return zerosBetween(ctx, f, res.end, res.size)
}

// checkIndex compares the index with what reading the segment gave. A bad one
// is only a notice, but what it says about the segment's end is not: a file
// between this segment and the next is missing.
func (v *verifier) checkIndex(entries *entryChecker, info *SegmentInfo, b *indexBuilder, res scanResult, active bool) []Problem {
	name := format.IndexName(info.Base)
	x := entries.x
	if x == nil {
		err := entries.err
		if active {
			return nil // written at a clean close only
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = errIndexMissing
		}
		return []Problem{{Path: pathOf(v.r.dir, name), Err: err}}
	}
	info.Indexed = true
	if x.header.ClosedMS != 0 {
		info.Closed = timeOf(x.header.ClosedMS)
	}
	if x.header.CleanedMS > 0 {
		info.Cleaned, info.DirtyBytes = timeOf(x.header.CleanedMS), 0
	}
	var problems []Problem
	if err := compareIndex(entries, b.header, res); err != nil {
		problems = append(problems, Problem{Path: pathOf(v.r.dir, name), Err: err})
	}
	if end := x.header.End; !active && end != 0 && end < info.End && !v.r.inGap(end, info.End) {
		problems = append(problems, Problem{
			Fatal: true, Path: pathOf(v.r.dir, format.SegmentName(info.Base)), Pos: res.end, Offset: end,
			LostOffsets: info.End - end,
			Err:         fmt.Errorf("%w: the segment ends at offset %d, the next one begins at %d", errSegmentMissing, end, info.End),
		})
	}
	return problems
}

var errIndexMissing = errors.New("index is missing; opening for writing rebuilds it")

// forgetLateIndexes takes back what was said of indexes that are there now: a
// live writer writes the index of a segment that it has rolled a moment later.
func (v *verifier) forgetLateIndexes() {
	v.report.Problems = slices.DeleteFunc(v.report.Problems, func(p Problem) bool {
		if p.Err != errIndexMissing {
			return false
		}
		_, err := v.r.dir.Stat(filepath.Base(p.Path))
		return err == nil
	})
}

// entryChecker compares the entries of an index with the records of its
// segment as they are read, in order. Only that tells an entry which leads to
// bytes inside a record that look like another one.
type entryChecker struct {
	x    *index // nil: there is none that matches
	err  error  // why, or the first wrong entry
	next int    // entry to come
}

// record takes the next record of the segment, with the highest time so far.
func (c *entryChecker) record(pos int64, h format.Header, maxTimeMS int64) {
	if c.x == nil || c.err != nil || c.next >= c.x.len() {
		return
	}
	e, err := c.x.entry(c.next)
	switch {
	case err != nil:
		c.err = err
	case e.Pos > pos:
	case e.Pos < pos || e.Offset != h.Offset || e.MaxTimeMS != maxTimeMS:
		c.err = fmt.Errorf("%w: entry %d (offset %d, byte %d) does not fit the record there; evlog reindex mends it", format.ErrIndex, c.next, e.Offset, e.Pos)
	default:
		c.next++
	}
}

// compareIndex tests the sums in an index's header and that all its entries
// were met.
func compareIndex(c *entryChecker, read format.IndexHeader, res scanResult) error {
	h := c.x.header
	switch {
	case c.err != nil:
		return c.err
	case res.err != io.EOF:
		return nil
	case h.Records != read.Records || h.Tombstones != read.Tombstones,
		h.Records > 0 && (h.MaxTimeMS != read.MaxTimeMS || h.MinTimeMS != read.MinTimeMS):
		return errIndexStale
	case c.next < c.x.len():
		return fmt.Errorf("%w: entry %d leads to no record", format.ErrIndex, c.next)
	}
	return nil
}

// verifyClosed reads every closed segment, for an opening that is to fail if any
// of them is damaged or a file between them is missing.
func verifyClosed(ctx context.Context, dir vfs.Dir, segments listing, gaps []OffsetRange) error {
	for i, base := range segments[:len(segments)-1] {
		if err := verifyOne(ctx, dir, base, segments[i+1], gaps); err != nil {
			return fmt.Errorf("evlog: open: %w", err)
		}
	}
	return nil
}

func verifyOne(ctx context.Context, dir vfs.Dir, base, next uint64, gaps []OffsetRange) error {
	f, err := openSegment(dir, base)
	if err != nil {
		return err
	}
	defer f.Close()
	res, err := scanSegment(f, base, func(int64, format.Header, []byte) error { return ctx.Err() })
	if err != nil {
		return err
	}
	if res.err != io.EOF {
		return corrupt(dir, base, res.end, res.next, res.err)
	}
	x, err := openIndex(dir, base, f)
	if err != nil {
		if noIndex(err) {
			return nil
		}
		return err
	}
	defer x.close()
	if end := x.header.End; end != 0 && end < next && !covered(gaps, end, next) {
		return corrupt(dir, base, res.end, end, fmt.Errorf("%w: the next one begins at %d", errSegmentMissing, next))
	}
	return nil
}
