package evlogtest

import (
	"slices"
	"sync"
	"time"
)

// Clock is an evlog.Clock that stands still until the test moves it. Safe for
// concurrent use.
type Clock struct {
	// mu guards all below.
	mu      sync.Mutex
	wall    time.Time
	elapsed time.Duration
	timers  []*timer
	changed chan struct{} // closed and replaced when a timer comes or goes
}

type timer struct {
	at time.Duration
	c  chan time.Time
}

// NewClock returns a clock that shows start.
func NewClock(start time.Time) *Clock {
	return &Clock{wall: start, changed: make(chan struct{})}
}

// Now is the wall clock.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wall
}

// Elapsed is the sum of all that Advance was given.
func (c *Clock) Elapsed() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.elapsed
}

// Timer fires when Advance has gone d further. One of zero or less fires at
// once.
func (c *Clock) Timer(d time.Duration) (<-chan time.Time, func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &timer{at: c.elapsed + d, c: make(chan time.Time, 1)}
	if d <= 0 {
		t.c <- c.wall
		return t.c, func() {}
	}
	c.timers = append(c.timers, t)
	c.wakeLocked()
	return t.c, func() { c.remove(t) }
}

func (c *Clock) remove(t *timer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.Index(c.timers, t); i >= 0 {
		c.timers = slices.Delete(c.timers, i, i+1)
		c.wakeLocked()
	}
}

func (c *Clock) wakeLocked() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// Advance lets d pass on both clocks, and fires the timers that become due in
// their order.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	end := c.elapsed + d
	for {
		next := c.dueLocked(end)
		if next == nil {
			break
		}
		c.wall = c.wall.Add(next.at - c.elapsed)
		c.elapsed = next.at
		next.c <- c.wall
		c.timers = slices.Delete(c.timers, slices.Index(c.timers, next), slices.Index(c.timers, next)+1)
	}
	c.wall = c.wall.Add(end - c.elapsed)
	c.elapsed = end
	c.wakeLocked()
}

// dueLocked is the earliest timer that fires until end, nil if there is none.
func (c *Clock) dueLocked(end time.Duration) *timer {
	var first *timer
	for _, t := range c.timers {
		if t.at <= end && (first == nil || t.at < first.at) {
			first = t
		}
	}
	return first
}

// SetWall sets the wall clock, forwards or back, as a user or NTP does: no time
// passes, and no timer fires.
func (c *Clock) SetWall(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall = t
}

// WaitTimers waits until at least n timers are set, so that Advance meets them.
// It panics after ten seconds (of the real clock).
func (c *Clock) WaitTimers(n int) {
	deadline := time.NewTimer(10 * time.Second)
	defer deadline.Stop()
	for {
		c.mu.Lock()
		have, changed := len(c.timers), c.changed
		c.mu.Unlock()
		if have >= n {
			return
		}
		select {
		case <-changed:
		case <-deadline.C:
			panic("evlogtest: nobody set a timer")
		}
	}
}
