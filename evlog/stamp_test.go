package evlog

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/internal/clock"
)

// A record has the time at which it came, to the millisecond, whoever asks beside it.
func TestStamper_IsTheWallClock(t *testing.T) {
	var s stamper
	s.use(clock.NewSystem())
	require.True(t, s.system)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for begin := time.Now(); time.Since(begin) < 20*time.Millisecond; {
				before := time.Now().UnixMilli()
				got := s.now()
				after := time.Now().UnixMilli()
				if got < before-1 || got > after { // the wall clock may be made to go faster
					t.Errorf("%d is not between %d and %d", got, before, after)
					return
				}
			}
		})
	}
	all.Wait()
}

type steppedClock struct {
	clock.System
	wall time.Time
}

func (c *steppedClock) Now() time.Time { return c.wall }

// Of a clock that is not the system's each jump is seen at once.
func TestStamper_AsksAnotherClockEachTime(t *testing.T) {
	c := &steppedClock{clock.NewSystem(), time.UnixMilli(1000)}
	var s stamper
	s.use(c)
	for _, ms := range []int64{1000, 5000, -3} {
		c.wall = time.UnixMilli(ms)
		require.Equal(t, ms, s.now())
	}
}
