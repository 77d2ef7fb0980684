package evlog

import (
	"context"
	"sync/atomic"
	"time"
)

const (
	// durableIdle is how long after the last append DURABLE itself is synced.
	durableIdle = 100 * time.Millisecond
	// fullRetry is how long after a write failed for lack of space it is tried
	// again for records that were enqueued.
	fullRetry = time.Second
)

// flusher is the goroutine that does what no caller waits for: syncs of
// enqueued records, DURABLE's own sync when it gets quiet, and the roll of a
// segment that has grown old. Without anything to do it sleeps.
type flusher struct {
	l      *Log
	cancel context.CancelFunc
	done   chan struct{}

	kicked, nudged, full chan struct{} // each holds one signal
	armed                atomic.Bool   // SyncInterval: a sync is planned
	arming               chan struct{}
	watching             atomic.Bool // DURABLE's own sync is planned
}

func (f *flusher) start(l *Log) {
	ctx, cancel := context.WithCancel(context.Background())
	f.l, f.cancel = l, cancel
	f.done = make(chan struct{})
	for _, c := range []*chan struct{}{&f.kicked, &f.nudged, &f.full, &f.arming} {
		*c = make(chan struct{}, 1)
	}
	go f.run(ctx)
}

func (f *flusher) stop() {
	f.cancel()
	<-f.done
}

// kick asks for a sync of everything accepted so far.
func (f *flusher) kick() { signal(f.kicked) }

// nudge says that the segment got its first record.
func (f *flusher) nudge() { signal(f.nudged) }

// published says that DURABLE was written, and plans its sync, unless one is
// planned: waking the flusher for each commit would cost a part of the commit.
func (f *flusher) published() {
	if f.watching.CompareAndSwap(false, true) {
		signal(f.nudged)
	}
}

// retryLater says that the disk was full.
func (f *flusher) retryLater() { signal(f.full) }

// arm plans a sync one interval from now, unless one is planned.
func (f *flusher) arm() {
	if f.armed.CompareAndSwap(false, true) {
		signal(f.arming)
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (f *flusher) run(ctx context.Context) {
	defer close(f.done)
	clock := f.l.clock
	var interval, idle, age, retry timer
	defer func() {
		for _, t := range []*timer{&interval, &idle, &age, &retry} {
			t.clear()
		}
	}()
	f.nudge() // for the segment that is already there
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.kicked:
			f.sync(ctx)
		case <-f.arming:
			interval.set(clock, f.l.config.SyncInterval)
		case <-interval.c:
			interval.clear()
			f.armed.Store(false)
			f.sync(ctx)
		case <-f.full:
			retry.set(clock, fullRetry)
		case <-retry.c:
			retry.clear()
			f.sync(ctx)
		case <-f.nudged:
			if idle.c == nil && f.watching.Load() {
				idle.set(clock, durableIdle)
			}
			f.planAge(&age)
		case <-idle.c:
			idle.clear()
			f.watching.Store(false) // what is published from here on plans anew
			if wait := f.syncDurable(ctx); wait > 0 {
				f.watching.Store(true)
				idle.set(clock, wait)
			}
		case <-age.c:
			age.clear()
			if f.rollAged(ctx) {
				f.planAge(&age)
			} else {
				age.set(clock, fullRetry)
			}
		}
	}
}

// sync commits what is buffered. Its error is in the commits, or in the log.
func (f *flusher) sync(ctx context.Context) {
	if f.l.acquireTurn(ctx) != nil {
		return
	}
	defer f.l.releaseTurn()
	_ = f.l.commit(true)
}

// syncDurable syncs DURABLE if nothing was published for a while, and otherwise
// returns how long to wait.
func (f *flusher) syncDurable(ctx context.Context) (wait time.Duration) {
	l := f.l
	if l.acquireTurn(ctx) != nil {
		return 0
	}
	defer l.releaseTurn()
	a := &l.act
	if !a.durable.dirty || l.failure() != nil {
		return 0
	}
	if quiet := l.clock.Elapsed() - a.published; quiet < durableIdle {
		return durableIdle - quiet
	}
	if err := a.durable.sync(); err != nil {
		_ = l.poison(wrap("sync DURABLE", err))
		return 0
	}
	if err := l.activeInPlace(); err != nil {
		_ = l.poison(wrap("look at the active segment", err))
	}
	return 0
}

// planAge sets the timer for the moment when the active segment gets too old.
func (f *flusher) planAge(t *timer) {
	if left, ok := f.l.ageLeft(); ok && t.c == nil {
		t.set(f.l.clock, left)
	}
}

// rollAged rolls the active segment if it is too old, and reports false if that
// did not work.
func (f *flusher) rollAged(ctx context.Context) bool {
	if left, ok := f.l.ageLeft(); !ok || left > 0 {
		return true
	}
	return f.l.Roll(ctx) == nil
}

// ageLeft returns how long the active segment has until it is too old; ok is
// false where it has no record or no age is set.
func (l *Log) ageLeft() (left time.Duration, ok bool) {
	limit := l.config.rollAge()
	if limit <= 0 || l.failure() != nil {
		return 0, false
	}
	return l.untilAge(limit)
}

// untilAge returns how long it takes until the first record of the active segment
// was appended limit ago; ok is false where there is none.
func (l *Log) untilAge(limit time.Duration) (left time.Duration, ok bool) {
	l.act.indexMu.Lock()
	defer l.act.indexMu.Unlock()
	if l.act.index.header.Records == 0 {
		return 0, false
	}
	now := l.clock.Now()
	age := now.Sub(l.act.began)
	if age < 0 { // the clock was set back: the age begins anew
		l.act.began, age = now, 0
	}
	return max(0, limit-age), true
}

// timer is a timer that may be off.
type timer struct {
	c    <-chan time.Time
	halt func()
}

func (t *timer) set(clock Clock, d time.Duration) {
	t.clear()
	t.c, t.halt = clock.Timer(d)
}

func (t *timer) clear() {
	if t.halt != nil {
		t.halt()
	}
	t.c, t.halt = nil, nil
}
