//go:build linux || darwin

package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

// SinceBoot is the time since the machine was started, by a clock that never
// jumps and goes on while the machine sleeps, which the one of Elapsed does not.
func (c System) SinceBoot() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(bootClock, &t); err != nil {
		return c.Elapsed()
	}
	return time.Duration(t.Nano())
}
