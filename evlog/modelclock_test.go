package evlog_test

import (
	"sync"
	"testing"
	"time"

	"github.com/evlog-go/evlog/evlog/evlogtest"
)

// drive lets a clock run by itself, this many times as fast as the system's, until
// the test ends.
func drive(t testing.TB, c *evlogtest.Clock, speed int) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				c.Advance(time.Duration(speed) * time.Millisecond)
			case <-stop:
				return
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-stopped
	})
}

// jumps is what the log must have noticed of the wall clock's jumps forwards by the
// looks that it takes in any case, and for how long ages wait because of them at
// least. Safe for concurrent use.
type jumps struct {
	clock *evlogtest.Clock

	mu          sync.Mutex
	wall        time.Time     // when the log looked last
	steady      time.Duration // the same by the clock that never jumps
	doubt, ever bool          // a jump was noticed; the clock was ever set ahead
	at          time.Duration // when, by steady
	stored      time.Time     // when, by what log.json says; zero: never
	unsaved     bool          // that has to change
}

// opens: a writer is about to begin with what log.json says.
func (j *jumps) opens() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.wall, j.steady = j.clock.Now(), j.clock.Elapsed()
	j.doubt = !j.stored.IsZero()
	if j.doubt {
		j.at = j.steady - max(0, j.wall.Sub(j.stored))
		// One too far: the wait begins anew. Any look stores that, by the wall clock of
		// its own moment; after a crash before the first one, the next writer begins so too.
		if j.stored.After(j.wall) {
			j.stored, j.unsaved = j.wall, true
		}
	}
}

// look: the log looks at its clocks, and stores what it finds.
func (j *jumps) look() {
	j.mu.Lock()
	defer j.mu.Unlock()
	wall, steady := j.clock.Now(), j.clock.Elapsed()
	if lead := wall.Sub(j.wall) - (steady - j.steady); lead > time.Hour+time.Minute {
		j.doubt, j.at, j.stored, j.unsaved = true, steady, wall, false
	}
	if at := wall.Add(j.at - steady); j.unsaved && at.Before(j.stored) {
		j.stored = at
	}
	j.unsaved = false
	j.wall, j.steady = wall, steady
}

// wait is for how long an age of limit does not count, at least.
func (j *jumps) wait(limit time.Duration) time.Duration { return j.waiting()(limit) }

// waiting is wait as it is now.
func (j *jumps) waiting() func(limit time.Duration) time.Duration {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.doubt {
		return func(time.Duration) time.Duration { return 0 }
	}
	passed := j.clock.Elapsed() - j.at
	return func(limit time.Duration) time.Duration { return max(0, limit-passed) }
}

func (j *jumps) waits(limit time.Duration) bool { return j.wait(limit) > 0 }
