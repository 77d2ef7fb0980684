package evlog

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/internal/clock"
)

// handClock stands still, and counts how often it is asked for the time of day.
type handClock struct {
	clock.System
	wall    time.Time
	elapsed time.Duration
	asked   int
}

func (c *handClock) Now() time.Time {
	c.asked++
	return c.wall
}

func (c *handClock) Elapsed() time.Duration { return c.elapsed }

func (c *handClock) advance(d time.Duration) {
	c.wall, c.elapsed = c.wall.Add(d), c.elapsed+d
}

// The wall clock is asked again when its millisecond is over, and no earlier.
func TestStamper_AsksOnceInAMillisecond(t *testing.T) {
	c := &handClock{wall: time.UnixMilli(1000).Add(700 * time.Microsecond)}
	s := stamper{clock: c, system: true}
	for _, step := range []struct {
		passed time.Duration
		ms     int64
		asked  int
	}{
		{0, 1000, 1},
		{299 * time.Microsecond, 1000, 1},
		{time.Microsecond, 1001, 2},
		{999 * time.Microsecond, 1001, 2},
		{time.Microsecond, 1002, 3},
		{time.Hour, 3_601_002, 4},
	} {
		c.advance(step.passed)
		require.Equal(t, step.ms, s.now())
		require.Equal(t, step.asked, c.asked)
	}
	c.wall = c.wall.Add(-time.Hour) // it jumps, and is seen when the millisecond is over
	require.EqualValues(t, 3_601_002, s.now())
	c.advance(time.Millisecond)
	require.EqualValues(t, 1003, s.now())
}

// Of a clock that is not the system's each jump is seen at once.
func TestStamper_AsksAnotherClockEachTime(t *testing.T) {
	c := &handClock{}
	var s stamper
	s.use(c)
	for _, ms := range []int64{1000, 5000, -3} {
		c.wall = time.UnixMilli(ms)
		require.Equal(t, ms, s.now())
	}
	s.use(clock.NewSystem())
	require.True(t, s.system)
}
