package evlog

import (
	"context"
	"time"

	"github.com/evlog-go/evlog/internal/vfs"
)

// limits are what decides about a segment. Zero is no limit.
type limits struct {
	maxAge     time.Duration
	maxBytes   int64
	maxRecords int64
	below      uint64
	holdFor    []string
	holdBytes  int64
	holdAge    time.Duration
}

// limitsOf merges the stored limits with those of a call.
func limitsOf(c StoredConfig, o RetainOptions) limits {
	l := limits{
		maxAge: c.MaxAge, maxBytes: c.MaxBytes, maxRecords: c.MaxRecords, below: o.Below,
		holdFor: c.HoldFor, holdBytes: c.HoldBytes, holdAge: c.HoldAge,
	}
	if o.MaxAge != 0 {
		l.maxAge = max(0, o.MaxAge)
	}
	if o.MaxBytes != 0 {
		l.maxBytes = max(0, o.MaxBytes)
	}
	if o.MaxRecords != 0 {
		l.maxRecords = max(0, o.MaxRecords)
	}
	if o.IgnoreHold {
		l.holdFor = nil
	}
	return l
}

// retainPlanner decides what goes. It reads and changes nothing.
type retainPlanner struct {
	dir         vfs.Dir
	id          string // of the log; empty: not known
	limits      limits
	now         time.Time
	waits       func(limit time.Duration) time.Duration // for how long such an age does not count
	closedBelow uint64                                  // segments with lower bases are closed for good
	facts       *factCache
	active      func(context.Context) (activeFacts, error)

	// What plan finds out.
	report  RetainReport
	rolls   *DueSegment // the active segment, where everything before it goes and it is due too
	names   []string
	listing listing
	closed  listing // of these, the segments that are closed for good
	files   logFiles
	later   boundTime // when those below were closed, at the latest
	above   boundTime // what the age of the first one with records counts from
	left    int64     // bytes of all files without the segments judged due so far
	records int64     // the same of records; only with maxRecords
	counts  []int64   // records of the closed segments, each counted once
	act     *activeFacts
	next    time.Time // when an age may decide otherwise; zero: never
}

// activeFacts are what retention asks about the active segment.
type activeFacts struct {
	base, next uint64
	records    int64 // durable ones
	maxMS      int64 // highest time of its records, if there are any
}

// plan fills in the report.
func (p *retainPlanner) plan(ctx context.Context) (err error) {
	if p.names, err = allNames(p.dir); err != nil {
		return err
	}
	if p.files, err = statFiles(p.dir, p.names); err != nil {
		return err
	}
	if p.listing = p.files.segments(); len(p.listing) == 0 {
		return nil
	}
	p.report.First, p.report.Bytes, p.left = p.listing[0], p.files.total, p.files.total
	if p.limits.maxAge > 0 {
		p.report.ClockWait = p.waits(p.limits.maxAge)
	}
	p.closed = p.listing[:len(p.listing)-1]
	for len(p.closed) > 0 && p.closed[len(p.closed)-1] >= p.closedBelow {
		p.closed = p.closed[:len(p.closed)-1]
	}
	if p.limits.maxRecords > 0 {
		if err := p.count(ctx); err != nil {
			return err
		}
	}
	holds := holdsOf(p.dir, p.id, p.limits.holdFor)
	all, err := p.choose(ctx, holds)
	if err == nil && all {
		err = p.chooseActive(ctx, holds)
	}
	p.report.Holds = blocking(holds, p.report.Held)
	return err
}

// count adds up the records of the log. Those of a segment that a merge has put
// into one below, and not removed yet, are there twice and count once, in the one
// below: readers find them there, and they go with it.
func (p *retainPlanner) count(ctx context.Context) error {
	act, err := p.activeFacts(ctx)
	if err != nil {
		return err
	}
	p.records = act.records
	p.counts = make([]int64, len(p.closed))
	next := uint64(0) // after the last record so far
	for i, base := range p.closed {
		f, err := p.fact(ctx, base)
		if err != nil {
			return err
		}
		if base >= next {
			p.counts[i] = f.records
		}
		next = max(next, f.next)
		p.records += p.counts[i]
	}
	return nil
}

// choose goes through the closed segments from the oldest on, up to the first
// that is not due, and reports whether there was none. Behind one that is held
// all that is due stays.
func (p *retainPlanner) choose(ctx context.Context, holds []Hold) (all bool, err error) {
	for i, base := range p.closed {
		s := DueSegment{Base: base, End: p.listing[i+1], Bytes: p.files.of[base].bytes()}
		if s.Reason, err = p.reason(ctx, i, &s); err != nil || s.Reason == "" {
			return false, err
		}
		if err := p.place(ctx, s, holds); err != nil {
			return false, err
		}
		p.left -= s.Bytes
		if p.limits.maxRecords > 0 {
			p.records -= p.counts[i]
		}
	}
	return true, nil
}

// place puts a segment that is due among those that go or those that stay.
func (p *retainPlanner) place(ctx context.Context, s DueSegment, holds []Hold) error {
	held, err := p.held(ctx, &s, holds)
	switch {
	case err != nil:
	case held:
		p.report.Held = append(p.report.Held, s)
	default:
		p.report.Removed = append(p.report.Removed, s)
		p.report.First, p.report.Bytes = s.End, p.report.Bytes-s.Bytes
	}
	return err
}

// held reports whether a segment that is due stays for consumers' sake, and fills
// in those in spite of whom it goes.
func (p *retainPlanner) held(ctx context.Context, s *DueSegment, holds []Hold) (bool, error) {
	by := holding(holds, s.End)
	if len(p.report.Held) > 0 || len(by) == 0 {
		return len(p.report.Held) > 0, nil
	}
	over, err := p.overrules(ctx, s)
	if over {
		s.Overruled = namesOf(by)
	}
	return !over, err
}

// reason returns why the closed segment i is due; empty: it is not.
func (p *retainPlanner) reason(ctx context.Context, i int, s *DueSegment) (RetainReason, error) {
	if s.End <= p.limits.below {
		return RetainBelow, nil
	}
	if p.limits.maxAge > 0 {
		old, err := p.older(ctx, s, p.limits.maxAge)
		if err != nil || old {
			return RetainAge, err
		}
	}
	if p.limits.maxBytes > 0 && p.left > p.limits.maxBytes {
		return RetainBytes, nil
	}
	if p.limits.maxRecords > 0 && p.records-p.counts[i] >= p.limits.maxRecords {
		return RetainRecords, nil
	}
	return "", nil
}

// overrules reports whether a segment goes though consumers have not finished
// it: what is held for them is bounded.
func (p *retainPlanner) overrules(ctx context.Context, s *DueSegment) (bool, error) {
	if p.limits.holdBytes > 0 && p.left > p.limits.holdBytes {
		return true, nil
	}
	if p.limits.holdAge <= 0 {
		return false, nil
	}
	return p.older(ctx, s, p.limits.holdAge)
}

// older reports whether a segment is older than limit, and notes when it will be.
// It fills in the segment's time.
func (p *retainPlanner) older(ctx context.Context, s *DueSegment, limit time.Duration) (bool, error) {
	at, ok, err := p.time(ctx, s.Base)
	if err != nil || !ok {
		return false, err
	}
	s.Time = at
	return p.passed(at, limit), nil
}

// rolling reports whether a segment is not the active one any more, and was not yet
// closed for good when the plan was made, which so leaves it out.
func (p *retainPlanner) rolling(ctx context.Context) bool {
	act, err := p.activeFacts(ctx)
	return err == nil && act.base > p.closedBelow
}

// chooseActive takes the active segment, if it is due by its age, or by hand;
// rolling it comes first.
func (p *retainPlanner) chooseActive(ctx context.Context, holds []Hold) error {
	if p.limits.maxAge <= 0 && p.limits.below == 0 {
		return nil
	}
	act, err := p.activeFacts(ctx)
	if err != nil || act.records == 0 {
		return err
	}
	s := DueSegment{Base: act.base, End: act.next, Bytes: p.files.of[act.base].bytes()}
	switch {
	case act.next <= p.limits.below:
		s.Reason = RetainBelow
	case p.limits.maxAge > 0:
		if old, err := p.older(ctx, &s, p.limits.maxAge); err != nil || !old {
			return err
		}
		s.Reason = RetainAge
	default:
		return nil
	}
	held, err := p.held(ctx, &s, holds)
	switch {
	case err != nil:
	case held:
		p.report.Held = append(p.report.Held, s)
	default:
		p.rolls = &s
	}
	return err
}

// takeActive counts the active segment among those that go, for a plan.
func (p *retainPlanner) takeActive() {
	p.report.Rolls = true
	p.report.Removed = append(p.report.Removed, *p.rolls)
	p.report.First, p.report.Bytes = p.rolls.End, p.report.Bytes-p.rolls.Bytes
}

func (p *retainPlanner) activeFacts(ctx context.Context) (activeFacts, error) {
	if p.act == nil {
		act, err := p.active(ctx)
		if err != nil {
			return act, err
		}
		p.act = &act
	}
	return *p.act, nil
}

func (p *retainPlanner) fact(ctx context.Context, base uint64) (segFact, error) {
	return p.facts.of(ctx, p.dir, base, p.files.of[base])
}
