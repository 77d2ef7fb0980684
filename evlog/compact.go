package evlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"syscall"
	"time"

	"github.com/evlog-go/evlog/internal/format"
	"github.com/evlog-go/evlog/internal/vfs"
)

// Defaults of CompactOptions.
const (
	DefaultCompactMemory = 64 << 20
	// DefaultCompactRate is what a compaction reads and writes in a second, so
	// that appends beside it stay quick.
	DefaultCompactRate = 32 << 20
)

// CompactOptions are the choices of one compaction. Nil and the zero value mean
// defaults.
type CompactOptions struct {
	// Grace is how long a tombstone stays after the segment that it is in was
	// first cleaned. Zero is the log's own (Options.TombstoneGrace); negative is
	// none: tombstones go at once, and a reader that is slower never learns that
	// the key was deleted.
	Grace time.Duration
	// MinLag leaves alone the segments that were closed less than this ago, as if
	// they did not exist: a reader that began less than MinLag ago and reads up to
	// the end as it was then misses no key. Zero is the log's own
	// (Options.MinLag); negative is none: then such a reader may miss a key of
	// which a new record came above its end, in a segment that was closed
	// meanwhile, and for whose sake the one below its end was removed.
	MinLag time.Duration
	// MemoryBytes bounds what is remembered of keys: 24 bytes a key, a third more
	// for room, and an eighth of all for which records go, so that 64 MiB are for
	// 1.8 million keys. More keys than fit are done in more passes, each of which
	// reads the log above what it cleans. Up to 10 MiB come on top: 1 MiB for
	// buffers, the rest for the index and the key filter of a copy. Default 64 MiB;
	// from 1.
	MemoryBytes int64
	// BytesPerSecond bounds what is read and written in a second. Default 32
	// MiB; negative is no bound.
	BytesPerSecond int64
	// DryRun says what would be done, and changes nothing.
	DryRun bool
	// Progress is called with the work done and the work there is, in bytes: for
	// each MiB, or each hundredth of the work where that is less, and when all of
	// it is done, with done equal to total. Not where there was nothing to do, and
	// not while small segments that have not changed are merged, before that last
	// call. It is called on the goroutine of Compact, which waits for it and holds
	// no lock then: it may call the log, but neither Compact nor Close. Nil is none.
	Progress func(done, total int64)
}

func (o *CompactOptions) withDefaults(c StoredConfig) (CompactOptions, error) {
	var r CompactOptions
	if o != nil {
		r = *o
	}
	if r.MemoryBytes < 0 {
		return r, badOption("MemoryBytes", "is %d", r.MemoryBytes)
	}
	if r.MemoryBytes == 0 {
		r.MemoryBytes = DefaultCompactMemory
	}
	if r.BytesPerSecond == 0 {
		r.BytesPerSecond = DefaultCompactRate
	}
	if r.Grace == 0 {
		r.Grace = c.TombstoneGrace
	}
	r.Grace = max(r.Grace, 0)
	if r.MinLag == 0 {
		r.MinLag = c.MinLag
	}
	r.MinLag = max(r.MinLag, 0)
	return r, nil
}

// CompactReport says what a compaction did, or, after a dry run, would do.
type CompactReport struct {
	// Executed is false after a dry run.
	Executed bool
	// Passes is how often the keys in memory were exchanged.
	Passes int
	// Changes are the segments that were rewritten or merged, in order.
	Changes []CompactChange
	// Superseded is the number of records that went because a newer one has their
	// key, Tombstones that of the tombstones whose time was over.
	Superseded, Tombstones uint64
	// Before and After are the bytes of all closed segments.
	Before, After int64
	// TombstonesLeft tells whether tombstones stay for now.
	TombstonesLeft bool
	// ClockWait is for how long no grace is over, because the wall clock has jumped
	// forwards; 0 if it has not.
	ClockWait time.Duration
	// Young is the number of closed segments that were left alone because of
	// MinLag.
	Young int
	// Refused are the segments that were left as they are: *CorruptError for
	// damage, or that somebody has a file open that cannot be replaced then.
	// While there is one, no tombstone above it goes.
	Refused []error
}

// CompactChange is a segment that was rewritten, or merged into one below. Where
// nothing was dropped and nothing merged, it was written again because after a
// power failure the disk might have had an older file under its name.
type CompactChange struct {
	Base uint64
	// Into is the segment that it was merged into; its own base otherwise.
	Into uint64
	// Superseded and Tombstones count the records dropped; see CompactReport.
	Superseded, Tombstones uint64
	Before, After          int64 // bytes
}

// Compact removes from the closed segments every record whose key has a newer
// one in them, and tombstones whose grace is over, and merges small neighbours.
// The newest record of each key stays, as does every record without a key; what
// stays keeps its bytes and its offset. The active segment is never touched, and
// counts when it is closed (see Roll) and, unless CompactOptions.MinLag says
// otherwise, has been so for Options.MinLag.
//
// Appends and readers go on meanwhile. It can be cancelled, or killed, at any
// time, and be run again; a second run with nothing new to do writes nothing.
// The report is never nil, and says after an error what was done before it. On
// a full disk the error wraps ENOSPC and everything is as it was. One
// compaction runs at a time; a second call waits.
func (l *Log) Compact(ctx context.Context, opts *CompactOptions) (*CompactReport, error) {
	o, err := opts.withDefaults(l.config)
	if err != nil {
		return &CompactReport{}, err
	}
	if o.DryRun {
		return l.reader.PlanCompact(ctx, opts)
	}
	return l.compact.run(ctx, o, nil)
}

// PlanCompact is what Log.Compact would do at this moment, without a lock and
// without a change: Compact's dry run for those who are not the writer. It is exact
// for a writer that is opened then. One that is open already drops the same
// records, but knows of the segments that it has made itself that the disk has
// them: the plan may also name such a one as written again, without a record less,
// and with that other small ones as merged. What is appended, rolled or removed
// meanwhile is another matter; a segment that another one takes the place of while
// it is read is left out.
func (r *Reader) PlanCompact(ctx context.Context, opts *CompactOptions) (*CompactReport, error) {
	c := &compaction{dir: r.dir, logger: slog.New(slog.DiscardHandler), report: &CompactReport{}}
	o, err := opts.withDefaults(r.config())
	if err != nil {
		return c.report, err
	}
	if err := r.usable(); err != nil {
		return c.report, err
	}
	c.configure(o, r.config(), r.gaps(), r.clock)
	c.own = math.MaxUint64
	if s, ok := r.src.(logSource); ok {
		c.own = s.l.compact.since
		s.l.clocks.look()
		c.report.ClockWait = s.l.clocks.wait(o.Grace)
	} else if r.meta != nil {
		c.report.ClockWait = r.meta.clockWait(r.clock.Now(), o.Grace)
	}
	d, _, err := r.src.load(ctx)
	if err != nil {
		return c.report, err
	}
	err = c.do(ctx, d.Base, nil)
	return c.report, r.closedOr(err)
}

// compaction is one run. It belongs to one goroutine.
type compaction struct {
	dir    vfs.Dir
	log    *Log // nil: nothing is changed
	logger *slog.Logger
	opts   CompactOptions
	config StoredConfig
	gaps   []OffsetRange
	report *CompactReport

	clock   Clock
	nowMS   int64
	running time.Duration // since the writer was opened
	own     uint64        // segments from here on were made by this very writer
	tried   []triedFile   // by an earlier run; ascending

	segs    []closedSegment
	scope   int    // of segs: those above do not exist for this run
	records uint64 // in all of segs, at first
	unsure  int    // above this one of segs no tombstone goes, and nothing is noted as clean

	complete bool // it has been through all that it could

	keys   *keyMap
	drops  dropSet
	hashes []uint64 // memory for those of one copy after the other
	out    *output  // under way, also between passes: of the segment in which the last one ended

	work pacer
}

func (c *compaction) configure(o CompactOptions, config StoredConfig, gaps []OffsetRange, clock Clock) {
	c.opts, c.config, c.gaps, c.clock = o, config, gaps, clock
	c.nowMS = clock.Now().UnixMilli()
	c.running = clock.Elapsed()
	c.work = pacer{rate: o.BytesPerSecond, progress: o.Progress}
}

// do is the run, for closed segments below below. ready is asked, where it is not
// nil, whether to begin.
func (c *compaction) do(ctx context.Context, below uint64, ready func(*compaction) bool) error {
	err := c.steps(ctx, below, ready)
	if errors.Is(err, errInUse) && !(c.log != nil && c.log.poisoned()) {
		c.refused(err) // no other replacement before this merge is through
		return nil
	}
	return err
}

func (c *compaction) steps(ctx context.Context, below uint64, ready func(*compaction) bool) error {
	c.report.Executed = c.log != nil
	all, err := c.list(ctx)
	if err != nil {
		return err
	}
	if err := c.survey(ctx, all, below); err != nil {
		return err
	}
	if ready != nil && !ready(c) {
		return nil
	}
	if err := c.clearOverlaps(ctx); err != nil {
		return err
	}
	c.sweep()
	c.scope = c.old(c.opts.MinLag)
	c.report.Young = len(c.segs) - c.scope
	for i := range c.segs {
		c.report.Before += c.segs[i].size
	}
	err = c.clean(ctx)
	c.sweep()
	if err == nil {
		err = c.merge(ctx)
	}
	if err == nil {
		c.complete = true
		c.work.finish()
	}
	for i := range c.segs {
		if s := &c.segs[i]; !s.gone {
			c.report.After += s.size
			c.report.TombstonesLeft = c.report.TombstonesLeft || s.tombs
		}
	}
	return err
}

// list lists the segments, when all removals are settled: the file that is put under
// a name for that is no segment, and gone a moment later. Whoever took it for one
// would take the next segment for what an interrupted merge left, and remove it.
func (c *compaction) list(ctx context.Context) (listing, error) {
	names, err := allNames(c.dir)
	if l := c.log; err == nil && l != nil {
		if err := l.settleRemovals(ctx, names, segmentsOf(names)); err != nil {
			return nil, wrap("compact", err)
		}
		l.closed.mu.Lock() // the housekeeper, or retention, may be about it
		names, err = allNames(c.dir)
		l.closed.mu.Unlock()
	}
	return segmentsOf(names), wrap("compact: list "+c.dir.Path(), err)
}

// settle finds out up to where the run may draw conclusions about tombstones.
func (c *compaction) settle() {
	c.unsure = len(c.segs)
	for i := range c.segs {
		if s := &c.segs[i]; !s.gone && (s.refused || s.apart || s.overlaps) {
			c.unsure = i
			return
		}
	}
}

// refuse leaves a damaged segment as it is. An error that says nothing about the
// segment comes back.
func (c *compaction) refuse(s *closedSegment, pos int64, offset uint64, err error) error {
	if !invalidRecord(err) && !errors.Is(err, syscall.EIO) {
		return err
	}
	damage := corrupt(c.dir, s.base, pos, offset, err)
	s.refused = true
	c.report.Refused = append(c.report.Refused, damage)
	c.logger.Warn("damaged segment not compacted; evlog verify shows it, evlog repair is the way out", "err", damage)
	if c.log == nil {
		return nil
	}
	return c.note(context.Background(), s, format.Refused) // which reads nothing
}

// note stores in the index of a segment that it was cleaned, or why it was not.
// An index is derived data: what cannot be stored is found out again.
func (c *compaction) note(ctx context.Context, s *closedSegment, cleanedMS int64) error {
	f, err := openSegment(c.dir, s.base)
	if gone(err) {
		s.gone = true // by retention
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	l := c.log
	set := func() error {
		l.closed.mu.Lock()
		defer l.closed.mu.Unlock()
		if err := l.stillThere(s.base, f); err != nil {
			return err
		}
		l.reader.forget(s.base) // by the rules of Windows its index would be in use
		return l.setFacts(s.base, f, func(h *format.IndexHeader) { h.CleanedMS = cleanedMS })
	}
	err = set()
	if noIndex(err) && cleanedMS > 0 {
		if err = l.rebuildIndex(ctx, f, s.base, &c.work); err == nil {
			err = set()
		}
	}
	if err != nil && l.poisoned() {
		return l.failure()
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		c.logger.Warn("not noted in the index", "segment", s.base, "err", err)
	}
	return nil
}

// tick is called with the bytes of each record read.
func (c *compaction) tick(ctx context.Context, n int64) error {
	if c.work.pending += n; c.work.pending < pacerStep {
		return nil
	}
	return c.pace(ctx, 0)
}

// pace is called with bytes written.
func (c *compaction) pace(ctx context.Context, n int64) error {
	n += c.work.pending
	c.work.pending = 0
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	if c.log != nil && c.log.poisoned() {
		return c.log.failure()
	}
	return c.work.spend(ctx, n)
}

// pacer spreads work over time. Nil does not.
type pacer struct {
	rate        int64           // bytes a second; negative is no bound
	hurry       <-chan struct{} // closed: no bound from now on; nil is never
	pending     int64           // read and not yet counted
	free        time.Time
	done, total int64 // for progress
	told        int64 // of done
	progress    func(done, total int64)
}

const (
	pacerStep = 64 << 10
	// pacerBurst is how much may be done at once after a rest.
	pacerBurst = 4 * time.Millisecond
	// progressStep is how much is done from one call of Progress to the next.
	progressStep = 1 << 20
)

// spend waits until n bytes more may be worked on.
func (p *pacer) spend(ctx context.Context, n int64) error {
	if p == nil || p.rate <= 0 {
		return nil
	}
	now := time.Now()
	if earliest := now.Add(-pacerBurst); p.free.Before(earliest) {
		p.free = earliest
	}
	p.free = p.free.Add(time.Duration(float64(n) / float64(p.rate) * float64(time.Second)))
	wait := p.free.Sub(now)
	if wait <= 0 {
		return nil
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-p.hurry:
		p.rate = -1
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// advance counts work that was done.
func (p *pacer) advance(n int64) {
	p.done += n
	if p.progress != nil && p.done < p.total && p.done-p.told >= min(progressStep, p.total/100) {
		p.told = p.done
		p.progress(p.done, p.total)
	}
}

// again takes back what was counted since done: it has to be done once more.
func (p *pacer) again(done int64) { p.done = done }

// finish says that all work is done.
func (p *pacer) finish() {
	if p.progress != nil && p.total > 0 {
		p.progress(p.total, p.total)
	}
}

var errInUse = errors.New("somebody has the file open, and it cannot be replaced then; a later compaction tries again")

// refuseInUse leaves a segment as it is that could not be replaced.
func (c *compaction) refuseInUse(s *closedSegment, err error) {
	s.refused = true
	c.refused(fmt.Errorf("evlog: compact %s: %w: %w", pathOf(c.dir, format.SegmentName(s.base)), errInUse, err))
}

func (c *compaction) refused(err error) {
	c.report.Refused = append(c.report.Refused, err)
	c.logger.Warn("not compacted", "err", err)
}

// sweep takes the segments that are gone out of the list.
func (c *compaction) sweep() {
	kept := c.segs[:0]
	scope := 0
	for i := range c.segs {
		if c.segs[i].gone {
			continue
		}
		if i < c.scope {
			scope++
		}
		kept = append(kept, c.segs[i])
	}
	c.segs, c.scope = kept, scope
}
