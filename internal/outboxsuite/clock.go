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

func (c *testClock) Timer(d time.Duration) (<-chan time.Time, func()) {
	if d == outbox.DefaultPollInterval {
		c.polls.Add(1)
	}
	t := time.NewTimer(d)
	return t.C, func() { t.Stop() }
}
