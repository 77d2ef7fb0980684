package evlog

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"time"
)

const (
	// retainRetry is when what is due and could not go is tried again: a consumer
	// may have committed, a reader may have closed a file.
	retainRetry = 10 * time.Second
	// retainTick is the longest between two looks at the clock while ages count,
	// so that a jump is seen before it has any effect.
	retainTick = time.Hour
)

// retainer removes segments: a goroutine for the limits that the log was opened
// with, and calls of Log.Retain. It never has the turn while it removes, so that no
// append waits for that, which takes 45 ms for 64 MiB.
type retainer struct {
	l      *Log
	limits limits
	cancel context.CancelFunc
	done   chan struct{} // nil: no goroutine
	kicked chan struct{} // holds one signal

	closing chan struct{} // closed when the log is being closed

	// size is that of the active segment's file, fullAt the one from which all
	// files together take more than MaxBytes. Who sets one looks at the other.
	size, fullAt atomic.Int64

	one     chan struct{} // holds a token while a run goes on
	stopped chan struct{} // closed when no run may begin or go on
	facts   factCache     // belongs to who has the token

	// The goroutine's own.
	failed string        // the last failure that was told
	wait   time.Duration // until the next run; 0: none is planned
}

// prepare comes before anything that tells the retainer what happens.
func (r *retainer) prepare(l *Log) {
	r.l, r.limits = l, limitsOf(l.config, RetainOptions{})
	r.kicked, r.one, r.stopped = make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{})
	r.fullAt.Store(math.MaxInt64)
}

// start begins to remove segments, if there are limits.
func (r *retainer) start() {
	if r.l.opts.NoRetention || r.limits.maxAge == 0 && r.limits.maxBytes == 0 && r.limits.maxRecords == 0 {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel, r.done, r.closing = cancel, make(chan struct{}), make(chan struct{})
	go r.work(ctx)
}

// stop gives what is due a moment to go, since a log may never be open for
// longer, and waits for the removal of the segment that is under way. A run by
// hand ends there.
func (r *retainer) stop() {
	if r.done != nil {
		close(r.closing)
		t := time.AfterFunc(closeGrace, r.cancel)
		<-r.done
		t.Stop()
		r.cancel()
	}
	close(r.stopped)
	r.one <- struct{}{}
}

// begin waits until no other run goes on; the token is then the caller's.
func (r *retainer) begin(ctx context.Context) error {
	if err := r.usable(ctx); err != nil {
		return err
	}
	select {
	case r.one <- struct{}{}:
		return nil
	case <-r.stopped:
		return ErrClosed
	case <-ctx.Done():
		return wrap("retain", ctx.Err())
	}
}

// rolled says that a segment was closed.
func (r *retainer) rolled() {
	r.fullAt.Store(math.MaxInt64) // of another file
	r.size.Store(0)
	signal(r.kicked)
}

// kick asks for a run: there is more than there was.
func (r *retainer) kick() { signal(r.kicked) }

// grown says how large the active segment's file is.
func (r *retainer) grown(size int64) {
	r.size.Store(size)
	if size > r.fullAt.Load() {
		signal(r.kicked)
	}
}

// work runs retention at the start, when it is asked for, and when a time has
// come that follows from the data.
func (r *retainer) work(ctx context.Context) {
	defer close(r.done)
	var t timer
	defer t.clear()
	for ctx.Err() == nil {
		wait := r.runByItself(ctx)
		t.clear()
		if wait > 0 {
			t.set(r.l.clock, wait)
		}
		select {
		case <-r.closing:
			select {
			case <-r.kicked:
				r.runByItself(ctx)
			default:
			}
			return
		case <-r.kicked:
		case <-t.c:
		}
	}
}

// runByItself runs retention and returns when to do so again; 0 is never.
func (r *retainer) runByItself(ctx context.Context) time.Duration {
	var err error
	finished := false
	defer func() { r.l.poisonUnless(finished, recover(), &err) }()
	_, err = r.run(ctx, RetainOptions{}, false)
	r.tellFailure(ctx, err)
	finished = true
	switch {
	case err == nil:
		return r.wait
	case ctx.Err() != nil || r.l.failure() != nil:
		return 0
	}
	return retainRetry
}

// tellFailure logs why a run failed, once until another reason comes.
func (r *retainer) tellFailure(ctx context.Context, err error) {
	text := ""
	if err != nil && ctx.Err() == nil {
		text = err.Error()
	}
	if text != "" && text != r.failed {
		r.l.logger.Warn("retention failed; it is tried again", "err", err)
	}
	r.failed = text
}

// usable returns why a run must not go on.
func (r *retainer) usable(ctx context.Context) error {
	select {
	case <-r.stopped:
		return ErrClosed
	default:
	}
	return errors.Join(ctx.Err(), r.l.failure())
}

// planner makes what decides about a run, for who has the token.
func (r *retainer) planner(ctx context.Context, opts RetainOptions) *retainPlanner {
	l := r.l
	now := l.clock.Now().Round(0) // before the look, which so sees a jump that this has in it
	l.lookAtClock(ctx)
	p := &retainPlanner{
		dir: l.dir, id: l.id, limits: limitsOf(l.config, opts), now: now,
		waits: l.clocks.wait, facts: &r.facts, active: l.activeFacts,
	}
	// Before anything is counted: a roll in between makes the count too low.
	p.closedBelow = l.closed.below.Load()
	return p
}

// learn takes from a run when there should be another one. The goroutine has the
// token.
func (r *retainer) learn(p *retainPlanner, done []DueSegment) {
	r.facts.forget(p.report.First)
	r.wait = 0
	if r.limits.maxAge > 0 || len(r.limits.holdFor) > 0 && r.limits.holdAge > 0 {
		r.wait = retainTick
	}
	plan := func(d time.Duration) {
		if d = max(d, time.Millisecond); r.wait == 0 || d < r.wait {
			r.wait = d
		}
	}
	if !p.next.IsZero() {
		plan(p.next.Sub(p.now))
	}
	if len(p.report.Held) > 0 || len(done) < len(p.report.Removed) {
		plan(retainRetry)
	}
	full := int64(math.MaxInt64) // where nothing can be done about it before the next roll
	if room := r.limits.maxBytes - p.report.Bytes; r.limits.maxBytes > 0 && room >= 0 {
		if active, ok := p.files.of[p.closedBelow]; ok {
			full = active.log + room
		}
	}
	r.fullAt.Store(full)
	if r.size.Load() > full {
		signal(r.kicked) // it has grown since
	}
}
