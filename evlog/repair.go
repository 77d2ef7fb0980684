package evlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"

	"github.com/evlog-go/evlog/internal/clock"
	"github.com/evlog-go/evlog/internal/format"
	"github.com/evlog-go/evlog/internal/vfs"
)

// RepairStep is one thing that Repair does, or would do.
type RepairStep struct {
	Path    string
	Pos     int64       // bytes from here on are cut,
	Cut     int64       // this many,
	SavedAs string      // and kept under this name beside the log; empty if none are
	Gap     OffsetRange // offsets that are without records from now on
	Intact  uint64      // valid records among the bytes that are cut
	What    string      // the step in words
}

// RepairReport says what Repair did, or would do.
type RepairReport struct {
	Steps    []RepairStep
	Next     uint64 // next offset of the repaired log
	Executed bool
	// NewID is set where log.json had to be written anew: the log has another
	// identity now, and cursors must be bound again.
	NewID string
}

// RepairOptions are the choices of Repair.
type RepairOptions struct {
	// Execute does it. Otherwise Repair takes no lock and changes nothing.
	Execute bool
	// Progress is called with the bytes read and the bytes there are, on the
	// caller's goroutine. Nil is none.
	Progress func(done, total int64)
}

// Repair is the way out of ErrCorrupt: it cuts damaged segments back to their
// valid prefix, keeps what it cuts in files beside the log, and records the
// offsets that are lost as gaps in log.json. The next offset never goes down.
// It can be interrupted anywhere, and run again. A log that is not damaged is
// left alone, with no steps in the report. Executing takes the writer's lock:
// ErrLocked.
func Repair(ctx context.Context, dir string, opts *RepairOptions) (*RepairReport, error) {
	var o RepairOptions
	if opts != nil {
		o = *opts
	}
	d, err := vfs.FromContext(ctx).OpenDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("evlog: repair %s: %w: the directory is missing", dir, ErrNoLog)
	}
	if err != nil {
		return nil, wrap("repair", err)
	}
	if err := mustHoldDamaged(d); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	p := &repairer{ctx: ctx, dir: d, opts: o, report: &RepairReport{Executed: o.Execute}, clock: clock.NewSystem()}
	var lock *writerLock
	if o.Execute {
		if lock, err = lockWriter(d, p.clock); err != nil {
			return nil, errors.Join(err, d.Close())
		}
	}
	err = p.run(ctx)
	for tries := 0; err == nil && !o.Execute && len(p.report.Steps) > 0 && tries < maxDoubts; tries++ {
		// A writer may be rolling under the dry run: only what repeats counts.
		*p = repairer{ctx: ctx, dir: d, opts: o, report: &RepairReport{}, clock: p.clock}
		err = p.run(ctx)
	}
	if lock != nil {
		err = errors.Join(err, lock.release())
	}
	return p.report, errors.Join(err, d.Close())
}

type repairer struct {
	ctx        context.Context // of the call, for the steps
	dir        vfs.Dir
	opts       RepairOptions
	report     *RepairReport
	clock      Clock
	segments   listing
	meta       *meta // nil: to be written anew
	durable    format.Durable
	durableErr error
	committed  uint64 // highest next_offset of the log's consumers
	pending    []func() error
}

func (p *repairer) run(ctx context.Context) error {
	if err := p.survey(); err != nil {
		return err
	}
	if p.meta == nil {
		p.renew()
	}
	total, err := totalSize(p.dir, p.segments)
	if err != nil {
		return wrap("repair", err)
	}
	var done int64
	for i, base := range p.segments {
		size, err := p.segment(ctx, i, base)
		if err != nil {
			return err
		}
		done += size
		if p.opts.Progress != nil {
			p.opts.Progress(min(done, total), total)
		}
	}
	if len(p.segments) == 0 {
		p.empty()
	}
	if !p.opts.Execute {
		return nil
	}
	for _, do := range p.pending {
		if err := do(); err != nil {
			return wrap("repair", err)
		}
	}
	return nil
}

// survey reads what all steps depend on.
func (p *repairer) survey() error {
	var err error
	// Before listing, so that the segment it names is listed.
	p.durable, p.durableErr = readDurable(p.dir)
	if p.durableErr != nil && !durableUnknown(p.durableErr) {
		return wrap("read DURABLE", p.durableErr)
	}
	if p.segments, err = listSegments(p.dir); err != nil {
		return wrap("repair", err)
	}
	p.meta, err = readMeta(p.dir)
	if errors.Is(err, ErrVersion) {
		return wrap("repair "+pathOf(p.dir, format.MetaName), err)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errMeta) {
		return wrap("repair", err)
	}
	if p.committed, err = maxCommitted(p.dir, p.meta); err != nil {
		return fmt.Errorf("evlog: repair: %w; it says how far consumers have read", err)
	}
	if len(p.segments) == 0 && p.durable.NextOffset == 0 && p.committed == 0 {
		return fmt.Errorf("evlog: repair %s: %w: opening for writing creates one", p.dir.Path(), ErrNoLog)
	}
	return nil
}

// renew gives the log a new identity, since the old one is not known.
func (p *repairer) renew() {
	p.meta = newMeta(p.clock)
	p.meta.Config.fillDefaults()
	p.report.NewID = p.meta.ID
	p.step(RepairStep{
		Path: pathOf(p.dir, format.MetaName),
		What: "write log.json anew, with a new id and default settings; cursors must be bound again",
	}, func() error { return p.meta.store(p.dir) })
	if !p.opts.Execute {
		p.report.NewID = ""
	}
}

func (p *repairer) step(s RepairStep, do func() error) {
	p.report.Steps = append(p.report.Steps, s)
	p.pending = append(p.pending, do)
}

// mustHoldDamaged tests that there is, or was, a log: nothing is left behind in a
// directory that never held one.
func mustHoldDamaged(dir vfs.Dir) error {
	_, err := mustHold(dir)
	if errors.Is(err, ErrCorrupt) {
		return nil
	}
	if committed, cerr := maxCommitted(dir, metaIfKnown(dir)); cerr != nil || committed > 0 {
		return nil
	}
	return err
}

// segment plans what a segment needs, and returns the size of its file.
func (p *repairer) segment(ctx context.Context, i int, base uint64) (int64, error) {
	f, err := openSegment(p.dir, base)
	if err != nil {
		return 0, wrap("repair", err)
	}
	res, err := scanSegment(f, base, func(int64, format.Header, []byte) error { return ctx.Err() })
	end := p.claimedEnd(f, base)
	d := damage{scanResult: res}
	if err == nil && res.err != io.EOF {
		d.intact, err = countIntact(ctx, f, res)
	}
	d.lost, _ = missingAtEnd(p.dir, base, f, res.next)
	if err := errors.Join(err, f.Close()); err != nil {
		return 0, wrap("repair", err)
	}
	if i+1 < len(p.segments) {
		p.closed(base, p.segments[i+1], end, d)
	} else {
		p.active(base, d)
	}
	return res.size, nil
}

// damage is where a segment's valid prefix ends, and what stands behind.
type damage struct {
	scanResult
	intact uint64      // valid records
	lost   OffsetRange // missing behind an end that looks whole; empty: none
}

// claimedEnd is where the segment's index says that it ends; 0 if it does not.
func (p *repairer) claimedEnd(f vfs.File, base uint64) uint64 {
	x, err := openIndex(p.dir, base, f)
	if err != nil {
		return 0
	}
	defer x.close()
	return x.header.End
}

// closed plans the repair of a closed segment: its valid prefix stays.
func (p *repairer) closed(base, next, end uint64, res damage) {
	if res.err != io.EOF {
		gap := OffsetRange{res.next, max(res.next, next)}
		p.cut(base, res, gap)
		return
	}
	if gap := res.lost; gap.From < gap.To && !covered(p.meta.Gaps, gap.From, gap.To) {
		p.step(RepairStep{
			Path: pathOf(p.dir, format.SegmentName(base)), Pos: res.end, Gap: gap,
			What: "accept that records at the end of this segment are missing",
		}, func() error { return p.addGap(gap) })
	}
	if end != 0 && end < next && !covered(p.meta.Gaps, end, next) {
		gap := OffsetRange{end, next}
		p.step(RepairStep{
			Path: pathOf(p.dir, format.SegmentName(base)), Pos: res.end, Gap: gap,
			What: "accept that a segment file behind this one is missing",
		}, func() error { return p.addGap(gap) })
	}
}

// cut plans to save what follows the valid prefix and to replace the file by
// the prefix. The gap is durable before the file is replaced: from then on
// nothing shows that there was more.
func (p *repairer) cut(base uint64, res damage, gap OffsetRange) {
	p.keep(base, res, gap)
	p.pending = append(p.pending,
		func() error { return p.addGap(gap) },
		func() error { return p.replace(base, res) })
}

// keep plans to save what will be cut.
func (p *repairer) keep(base uint64, res damage, gap OffsetRange) {
	n := len(p.report.Steps)
	p.step(RepairStep{
		Path: pathOf(p.dir, format.SegmentName(base)), Pos: res.end, Cut: res.size - res.end,
		SavedAs: format.TornName(base, res.end, 0), Gap: gap, Intact: res.intact,
		What: "cut the damaged segment back to its valid prefix",
	}, func() (err error) {
		p.report.Steps[n].SavedAs, err = p.save(p.ctx, base, res)
		return err
	})
}

func (p *repairer) save(ctx context.Context, base uint64, res damage) (string, error) {
	f, err := openSegment(p.dir, base)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return saveTorn(ctx, p.dir, f, base, res.end, res.size)
}

// replace puts the valid prefix in the place of a segment, with its time. The
// index goes with what it described.
func (p *repairer) replace(base uint64, res damage) error {
	name := format.SegmentName(base)
	info, err := p.dir.Stat(name)
	if err != nil {
		return err
	}
	tmp := name + format.TempSuffix
	if err := p.copyPrefix(base, tmp, res.end); err != nil {
		return err
	}
	// No file is open now: Windows renames over no open one.
	if err := p.dir.Chtimes(tmp, info.ModTime()); err != nil {
		return err
	}
	if err := renameTemp(p.dir, tmp, name); err != nil {
		return err
	}
	if err := p.dir.Sync(); err != nil {
		return err
	}
	if err := p.dir.Remove(format.IndexName(base)); err != nil && !gone(err) {
		return err
	}
	return nil
}

// copyPrefix writes the first n bytes of a segment into the file tmp, synced.
func (p *repairer) copyPrefix(base uint64, tmp string, n int64) error {
	from, err := openSegment(p.dir, base)
	if err != nil {
		return err
	}
	defer from.Close()
	return writeTemp(p.dir, tmp, func(to vfs.File) error { return copyBytes(p.ctx, to, from, 0, n) })
}

// addGap records offsets that were lost.
func (p *repairer) addGap(gap OffsetRange) error {
	if gap.From >= gap.To || covered(p.meta.Gaps, gap.From, gap.To) {
		return nil
	}
	p.meta.Gaps = append(p.meta.Gaps, gap)
	return p.meta.store(p.dir)
}

// active plans the repair of the last segment. Where acknowledged records are
// damaged or missing, what will be cut is saved, a new segment begins above
// everything that was ever given out, and only then the damaged file is cut. A
// crash in between leaves a damaged closed segment, which is repaired as such.
func (p *repairer) active(base uint64, res damage) {
	p.report.Next = res.next
	if !p.lost(base, res) {
		if p.durableErr == nil && p.durable.Base < base && p.durable.NextOffset > base {
			p.step(RepairStep{
				Path: pathOf(p.dir, format.DurableName),
				What: "publish the base of the active segment; opening for writing goes on from there",
			}, func() error { return p.publish(format.Durable{NextOffset: base, Base: base}) })
		}
		return // opening for writing does the rest
	}
	next := p.restartAt(base, res)
	p.report.Next = next
	gap := OffsetRange{res.next, next}
	if res.end < res.size {
		p.keep(base, res, OffsetRange{}) // the gap is told with the new segment
	}
	p.step(RepairStep{
		Path: pathOf(p.dir, format.SegmentName(next)), Gap: gap,
		What: fmt.Sprintf("start a new segment at offset %d, above every offset that was given out", next),
	}, func() error { return p.restart(next, gap) })
	// Also where nothing is cut: the copy is synced, which the file may not be.
	p.pending = append(p.pending, func() error { return p.replace(base, res) })
}

// empty plans the repair of a log that lost every segment.
func (p *repairer) empty() {
	next := max(p.durable.NextOffset, p.durable.Base, p.committed)
	p.report.Next = next
	gap := OffsetRange{0, next}
	p.step(RepairStep{
		Path: pathOf(p.dir, format.SegmentName(next)), Gap: gap,
		What: fmt.Sprintf("every segment is missing: start a new one at offset %d", next),
	}, func() error { return p.restart(next, gap) })
}

// lost reports whether opening for writing refuses the active segment.
func (p *repairer) lost(base uint64, res damage) bool {
	if p.durableErr != nil {
		return p.committed > res.next
	}
	return p.durable.Base > base || p.durable.NextOffset > res.next
}

// restartAt is an offset above everything that was ever given out: a record
// takes 28 bytes at least. Where the offsets end, it is the last number there is:
// such a log takes no more records.
func (p *repairer) restartAt(base uint64, res damage) uint64 {
	cut := uint64(res.size - res.end)
	most := (cut + format.HeaderSize - 1) / format.HeaderSize
	next := max(res.next+min(most, math.MaxUint64-res.next), p.committed, base+1)
	if p.durableErr == nil {
		next = max(next, p.durable.NextOffset, p.durable.Base)
	}
	for _, g := range p.meta.Gaps {
		next = max(next, g.To)
	}
	return next
}

// restart makes the new active segment and publishes it.
func (p *repairer) restart(next uint64, gap OffsetRange) error {
	if err := p.addGap(gap); err != nil {
		return err
	}
	f, err := p.dir.OpenFile(format.SegmentName(next), os.O_RDWR|os.O_CREATE|os.O_EXCL, filePerm)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := p.dir.Sync(); err != nil {
		return err
	}
	return p.publish(format.Durable{NextOffset: next, Base: next})
}

func (p *repairer) publish(position format.Durable) error {
	d := (&durableFile{}).at(p.dir)
	err := d.open(position)
	return errors.Join(err, d.close())
}

// Reindex writes every index of the log in dir anew, taking the writer's lock,
// and returns how many. progress is called with the indexes done and the ones
// there are; nil is none.
func Reindex(ctx context.Context, dir string, progress func(done, total int)) (int, error) {
	l, err := Open(ctx, dir, &Options{MustExist: true, NoPreallocate: true, NoRetention: true})
	if err != nil {
		return 0, err
	}
	n, err := l.Reindex(ctx, progress)
	if activeErr := l.reindexActive(ctx); activeErr == nil {
		n++
	} else {
		err = errors.Join(err, activeErr)
	}
	return n, errors.Join(err, l.Close())
}
