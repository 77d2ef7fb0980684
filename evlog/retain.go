package evlog

import (
	"context"
	"errors"
	"time"

	"github.com/evlog-go/evlog/internal/format"
)

// RetainOptions are the limits of one run of Log.Retain or Reader.PlanRetain.
// The first three mean what they mean in Options: zero takes the stored limit,
// negative is none.
type RetainOptions struct {
	MaxAge     time.Duration
	MaxBytes   int64
	MaxRecords int64
	// Below removes the closed segments that end at or below this offset too,
	// whatever the limits say. 0 is none.
	Below uint64
	// IgnoreHold removes what is due without regard to Options.HoldFor.
	IgnoreHold bool
	// Progress is called with the segments removed so far and those to be
	// removed: after each, on the goroutine of Retain, which waits for it. It begins
	// again at 1 where the rest was planned anew, because compaction has changed
	// segments meanwhile. It may call the log, but neither Retain nor Close. Nil is
	// none.
	Progress func(done, total int)
}

// RetainReason is why a segment is due for removal.
type RetainReason string

// Reasons, in the order in which they are looked at.
const (
	RetainBelow   RetainReason = "below"   // RetainOptions.Below
	RetainAge     RetainReason = "age"     // older than MaxAge
	RetainBytes   RetainReason = "bytes"   // all files together take more than MaxBytes
	RetainRecords RetainReason = "records" // newer segments hold MaxRecords
)

// DueSegment is a segment that is due for removal.
type DueSegment struct {
	Base, End uint64 // it covers the offsets [Base, End)
	Bytes     int64  // of the segment and its index together
	Reason    RetainReason
	// Time is what its age counts from: the highest time of its records or the
	// time when it was closed, whichever is earlier; where neither is plausible,
	// the closing of the next segment of which that is. One without records goes
	// with the next one that has some, if that is earlier. Zero where it was not
	// asked for or is not known.
	Time time.Time
	// Overruled are the consumers that had not finished it, in spite of whom it
	// goes: Options.HoldBytes or Options.HoldAge is passed.
	Overruled []string
}

// RetainReport says what retention removed, or would remove, and what it leaves
// although it is due.
type RetainReport struct {
	Removed []DueSegment // oldest first
	// Rolls says that the active segment is due too: it is closed first. In a
	// plan it is the last one of Removed.
	Rolls bool
	// Held are segments that are due and stay, oldest first, and Holds is for
	// whom they stay.
	Held  []DueSegment
	Holds []Hold
	First uint64 // lower bound of the offsets left
	Bytes int64  // of all files of the log that are left
	// ClockWait is for how long no age counts, because the wall clock has jumped
	// forwards; 0 if it has not.
	ClockWait time.Duration
}

// Retain removes the closed segments that are due, oldest first, and returns
// when that is durable. What is done by then is in the report, also beside an
// error. Appends, readers and compaction go on meanwhile. One run goes on at a
// time: a call waits for the one before, be it the log's own. ctx ends the wait,
// and the run between two segments; so does Close.
//
// The log does the same by itself for the limits it was opened with. Retain is
// for other limits, for Below, and for those who must know when it is done. An
// active segment that is older than MaxAge is rolled first. A removal needs no
// space on the disk.
//
// After a crash the removals that were durable stay so, others may be undone:
// what is left never has a hole at its old end. A failed sync of the directory
// poisons the log.
func (l *Log) Retain(ctx context.Context, opts *RetainOptions) (*RetainReport, error) {
	o, err := opts.checked()
	if err != nil {
		return nil, err
	}
	return l.retain.run(ctx, o, true)
}

// PlanRetain says what Log.Retain would do now, and changes nothing: it takes no
// lock and needs no right to write. Limits that are not stored in log.json have
// to be in opts.
func (r *Reader) PlanRetain(ctx context.Context, opts *RetainOptions) (*RetainReport, error) {
	o, err := opts.checked()
	if err != nil {
		return nil, err
	}
	m, err := readMeta(r.dir) // as it is now
	if err != nil {
		m = r.meta
	}
	if m == nil {
		m = &meta{}
	}
	for tries := 0; ; tries++ {
		d, err := r.durable(ctx)
		if err != nil {
			return nil, err
		}
		p, err := r.planRetain(ctx, m, o, d)
		if gone(err) && tries < maxVanished {
			continue // removed since it was listed
		}
		return &p.report, r.closedOr(wrap("plan retention", err))
	}
}

func (r *Reader) planRetain(ctx context.Context, m *meta, opts RetainOptions, d format.Durable) (*retainPlanner, error) {
	p := &retainPlanner{
		dir: r.dir, id: r.ID(), limits: limitsOf(m.Config.stored(), opts), now: r.clock.Now().Round(0),
		closedBelow: d.Base, facts: &factCache{},
	}
	p.waits = func(limit time.Duration) time.Duration { return m.clockWait(p.now, limit) }
	p.active = func(ctx context.Context) (activeFacts, error) { return r.activeFacts(ctx, d) }
	err := p.plan(ctx)
	if err == nil && p.rolls != nil {
		p.takeActive()
	}
	return p, err
}

// checked returns a copy, the zero value for nil.
func (o *RetainOptions) checked() (RetainOptions, error) {
	if o == nil {
		return RetainOptions{}, nil
	}
	if inPart(o.MaxAge) {
		return RetainOptions{}, badOption("MaxAge", "is %v, not whole milliseconds", o.MaxAge)
	}
	return *o, nil
}

// run is one run of retention. The plan is made without a lock; if closed
// segments are changed meanwhile, another one is made. By hand, the active
// segment is rolled when it is due; otherwise its age sees to that.
func (r *retainer) run(ctx context.Context, opts RetainOptions, byHand bool) (*RetainReport, error) {
	if err := r.begin(ctx); err != nil {
		return &RetainReport{}, err
	}
	defer func() { <-r.one }()
	if byHand {
		defer signal(r.kicked) // what comes next by itself may have changed
	}
	rep := &RetainReport{}
	rolled, waited := false, false
	for {
		mark := r.l.closed.mark()
		p := r.planner(ctx, opts)
		if err := r.usable(ctx); err != nil {
			return rep, err
		}
		if err := p.plan(ctx); err != nil {
			if gone(err) && r.l.closed.mark() != mark {
				continue // merged into another one since it was listed
			}
			return rep, wrap("retain", err)
		}
		done, err := r.remove(ctx, p, mark, opts.Progress)
		rep.add(p, done)
		if !byHand {
			r.learn(p, done)
		}
		if errors.Is(err, errReplan) {
			continue
		}
		if err != nil {
			return rep, err
		}
		if byHand && !waited && p.rolling(ctx) {
			waited = true
			if err := r.l.acquireTurn(ctx); err != nil {
				return rep, wrap("retain", err)
			}
			r.l.releaseTurn()
			continue
		}
		if p.rolls == nil || rolled || !byHand {
			return rep, nil
		}
		// Last, since it needs space, which there may be now.
		rolled = true
		if err := r.l.Roll(ctx); err != nil {
			return rep, wrap("retain", err)
		}
		rep.Rolls = true
	}
}

// add takes over what a part of the run has done.
func (rep *RetainReport) add(p *retainPlanner, done []DueSegment) {
	removed := append(rep.Removed, done...)
	rolls := rep.Rolls
	*rep = p.report
	rep.Removed, rep.Rolls = removed, rolls
	for _, s := range p.report.Removed[len(done):] {
		rep.Bytes += s.Bytes
	}
	if left := p.report.Removed[len(done):]; len(left) > 0 {
		rep.First = left[0].Base
	}
}

// errReplan: somebody changed closed segments since the plan was made.
var errReplan = errors.New("closed segments have changed")

// remove removes what is planned, oldest first, and returns what is gone.
func (r *retainer) remove(ctx context.Context, p *retainPlanner, mark uint64, progress func(done, total int)) (done []DueSegment, err error) {
	if err := r.l.settleRemovals(ctx, p.names, p.listing); err != nil {
		r.l.logger.Warn("indexes of removed segments not removed; a later run will", "err", err)
	}
	for i, s := range p.report.Removed {
		if err := r.usable(ctx); err != nil {
			return done, err
		}
		if mark, err = r.removeOne(s.Base, mark); err != nil {
			return done, err
		}
		done = append(done, s)
		r.l.tellRemoved(s)
		if progress != nil {
			progress(i+1, len(p.report.Removed))
		}
	}
	return done, nil
}

// removeOne removes a closed segment, which is durable before the next one goes.
// So after a crash what is left begins with a segment and has no hole behind it.
func (r *retainer) removeOne(base, mark uint64) (uint64, error) {
	l := r.l
	c := &l.closed
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changes.Load() != mark {
		return mark, errReplan
	}
	l.reader.leaves(base)
	err := l.unlinkSegment(base)
	mark = c.changes.Add(1)
	if err != nil && !l.poisoned() {
		err = wrap("retain: remove segment", err)
	}
	return mark, err
}

// tellRemoved tells of a segment that is gone.
func (l *Log) tellRemoved(s DueSegment) {
	l.mu.Lock()
	l.stats.Removed++
	l.stats.RemovedBytes += uint64(s.Bytes)
	l.mu.Unlock()
	if len(s.Overruled) > 0 {
		l.logger.Warn("removed records that consumers had not finished", "from", s.Base, "to", s.End, "consumers", s.Overruled)
	}
	l.logger.Info("segment removed", "base", s.Base, "end", s.End, "bytes", s.Bytes, "reason", string(s.Reason))
	l.event(Event{Kind: EventRemoved, Base: s.Base, Offset: s.End, Bytes: s.Bytes})
}
