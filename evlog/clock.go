package evlog

import (
	"time"

	"github.com/evlog-go/evlog/internal/clock"
)

// Clock is the time as the log sees it. The zero Options use the system's;
// evlogtest has one that tests can move. Safe for concurrent use.
type Clock interface {
	// Now is the wall clock, used for record times and ages. It may jump.
	Now() time.Time
	// Elapsed is the time since some fixed moment by a clock that never jumps.
	Elapsed() time.Duration
	// Timer returns a channel that receives once after d, and a function that
	// releases the timer.
	Timer(d time.Duration) (c <-chan time.Time, stop func())
}

var _ Clock = clock.System{}
