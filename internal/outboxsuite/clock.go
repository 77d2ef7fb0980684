package outboxsuite

import (
	"sync/atomic"
	"time"

	"github.com/evlog-go/evlog/outbox"
)

// testClock is the system's clock, with a hand on it. It starts when its box is
// opened.
type testClock struct {
	start   time.Time
	skipped atomic.Int64 // how far it was put forward
	polls   atomic.Int64 // how often the relay began to wait for the next poll
}

func newTestClock() *testClock { return &testClock{start: time.Now()} }

func (c *testClock) skip(d time.Duration) { c.skipped.Add(int64(d)) }

func (c *testClock) Now() time.Time { return time.Now().Add(time.Duration(c.skipped.Load())) }

func (c *testClock) Elapsed() time.Duration {
	return time.Since(c.start) + time.Duration(c.skipped.Load())
}

// slowClock makes everything take long.
type slowClock struct{ *testClock }

func (c *slowClock) Elapsed() time.Duration {
	c.skip(40 * time.Millisecond)
	return c.testClock.Elapsed()
}

// stoppedClock has no time pass, though timers end.
type stoppedClock struct{ *testClock }

func (stoppedClock) Elapsed() time.Duration { return time.Hour }

// stuckClock can be stuck: then no timer ends.
type stuckClock struct {
	*testClock
	stuck atomic.Bool
	asked atomic.Int64 // for a timer, while it is stuck
}

func (c *stuckClock) Timer(d time.Duration) (<-chan time.Time, func()) {
	if c.stuck.Load() {
		c.asked.Add(1)
		return nil, func() {}
	}
	return c.testClock.Timer(d)
}

// panickingClock panics when the relay looks at it.
type panickingClock struct {
	*testClock
	armed bool
}

func (c *panickingClock) Elapsed() time.Duration {
	if c.armed {
		panic("ouch")
	}
	return c.testClock.Elapsed()
}

func (c *testClock) Timer(d time.Duration) (<-chan time.Time, func()) {
	if d == outbox.DefaultPollInterval {
		c.polls.Add(1)
	}
	t := time.NewTimer(d)
	return t.C, func() { t.Stop() }
}
