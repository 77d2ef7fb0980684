package evlog

import (
	"context"
	"sync"
	"time"
)

const (
	// compactRetry is how long the writer waits after a compaction that could not
	// do all its work; each further one doubles it, up to compactRetryMax.
	compactRetry    = time.Minute
	compactRetryMax = time.Hour
	// compactPause is the shortest time between two looks, and compactRoll the
	// shortest age at which a quiet active segment is rolled.
	compactPause = time.Second
	compactRoll  = time.Minute
)

// compactor runs compactions, one at a time: by hand, and in a goroutine of its
// own where log.json says so. Without anything to do that one sleeps.
type compactor struct {
	l      *Log
	ctx    context.Context // ends when the log is closed
	cancel context.CancelCauseFunc
	one    chan struct{} // holds a token while a compaction runs
	wake   chan struct{} // a segment was rolled
	done   chan struct{} // closed when the goroutine has ended
	since  uint64        // base of the active segment when the log was opened
	tried  []triedFile   // ascending; of whoever has the token

	mu   sync.Mutex // guards the rest
	dirt dirtyState // about; each run finds out
}

// prepare comes before any goroutine that may roll: rolled is then called.
func (k *compactor) prepare(l *Log) {
	k.l = l
	k.ctx, k.cancel = context.WithCancelCause(context.Background())
	k.one, k.wake = make(chan struct{}, 1), make(chan struct{}, 1)
	k.done = make(chan struct{})
	k.since = l.act.base
}

func (k *compactor) start() {
	if l := k.l; !l.config.Compact || l.opts.NoCompaction {
		close(k.done)
		return
	}
	go k.loop()
}

// stop ends what runs, and lets nothing run after it.
func (k *compactor) stop() {
	k.cancel(ErrClosed)
	k.one <- struct{}{}
	<-k.done
}

// rolled says that a segment of this size was closed.
func (k *compactor) rolled(bytes int64) {
	k.mu.Lock()
	k.dirt.closed += bytes
	k.dirt.dirty += bytes
	k.mu.Unlock()
	signal(k.wake)
}

// run does one compaction. ready is asked, where it is not nil, whether to go on
// when the segments have been looked at.
func (k *compactor) run(ctx context.Context, o CompactOptions, ready func(*compaction) bool) (*CompactReport, error) {
	c, err := k.compaction(ctx, o, ready)
	return c.report, err
}

func (k *compactor) compaction(ctx context.Context, o CompactOptions, ready func(*compaction) bool) (*compaction, error) {
	l := k.l
	c := &compaction{dir: l.dir, log: l, logger: l.logger, report: &CompactReport{}}
	if err := l.failure(); err != nil {
		return c, err
	}
	select {
	case k.one <- struct{}{}:
		defer func() { <-k.one }()
	case <-k.ctx.Done():
		return c, ErrClosed
	case <-ctx.Done():
		return c, wrap("compact", ctx.Err())
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(k.ctx, func() { cancel(ErrClosed) })()
	l.mu.Lock()
	gaps := l.meta.Gaps
	l.mu.Unlock()
	c.configure(o, l.config, gaps, l.clock)
	c.own = k.since
	if ready != nil {
		c.tried = k.tried // by hand all is tried again
	}
	if l.lookAtClock(ctx); l.failure() != nil {
		return c, l.failure()
	}
	c.report.ClockWait = l.clocks.wait(o.Grace)
	err := c.do(ctx, l.closed.below.Load(), ready)
	if len(c.report.Changes) > 0 {
		l.compacted(c.report, l.clock.Elapsed()-c.running, err)
	}
	c.sweep()
	c.settle()
	if c.complete && !c.inUse() {
		k.remember(c)
	}
	k.mu.Lock()
	k.dirt = c.dirt()
	k.mu.Unlock()
	return c, err
}

// compacted tells of a compaction that has changed something, and took this long.
func (l *Log) compacted(rep *CompactReport, took time.Duration, err error) {
	freed := rep.Before - rep.After
	l.mu.Lock()
	l.stats.Compactions++
	l.stats.CompactedBytes += freed
	l.mu.Unlock()
	l.logger.Info("compacted", "segments", len(rep.Changes), "superseded", rep.Superseded, "tombstones", rep.Tombstones,
		"freed_bytes", freed, "took", took.Round(time.Millisecond))
	l.event(Event{Kind: EventCompacted, Base: rep.Changes[0].Base, Bytes: freed, Err: err})
}

// loop compacts when it is time.
func (k *compactor) loop() {
	defer close(k.done)
	var t timer
	defer t.clear()
	retry := compactRetry
	next := time.Duration(0)
	for {
		if next == 0 {
			var ok bool
			if next, ok = k.attempt(); ok {
				retry = compactRetry
			} else {
				next = max(next, retry)
				retry = min(2*retry, compactRetryMax)
			}
			next = max(next, compactPause)
			t.set(k.l.clock, next)
		}
		select {
		case <-k.ctx.Done():
			return
		case <-k.l.dead:
			return
		case <-t.c:
			t.clear()
			next = 0
		case <-k.wake:
			if lag := max(k.l.config.MinLag, compactPause); k.dirtyEnough() && retry == compactRetry && lag < next {
				next = lag
				t.set(k.l.clock, next)
			}
		}
	}
}

func (k *compactor) dirtyEnough() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.dirt.enough(k.l.config.MinDirtyRatio)
}

// attempt compacts if it is time, and returns when it will be. ok is false where
// something was in the way that may go away by itself.
func (k *compactor) attempt() (next time.Duration, ok bool) {
	l := k.l
	quiet := k.rollQuiet()
	o, err := (*CompactOptions)(nil).withDefaults(l.config)
	if err != nil {
		return compactRetryMax, false // no option is bad
	}
	c, err := k.compaction(k.ctx, o, (*compaction).due)
	if err != nil && k.ctx.Err() == nil && !l.poisoned() {
		l.logger.Warn("compaction failed; it is tried again", "err", err)
	}
	return min(quiet, c.untilDue()), err == nil && !c.inUse()
}

// quietAge is how long what is not cleaned may stay so.
func (c StoredConfig) quietAge() time.Duration {
	return max(c.TombstoneGrace, c.MinLag)
}

// rollQuiet rolls an active segment that has had records for as long as that, and
// returns when the present one will have.
func (k *compactor) rollQuiet() time.Duration {
	l := k.l
	limit := max(l.config.quietAge(), compactRoll)
	left, some := l.untilAge(limit)
	switch {
	case !some:
		return limit
	case left > 0:
		return left
	}
	if err := l.Roll(k.ctx); err != nil {
		return compactRetry
	}
	return limit
}
