// Package clock is the system's clock in the shape of evlog.Clock, for every
// package that takes one.
package clock

import "time"

// System is the system's clock.
type System struct{ start time.Time }

// NewSystem returns the system's clock; Elapsed counts from now.
func NewSystem() System { return System{time.Now()} }

// Now is the wall clock.
func (System) Now() time.Time { return time.Now() }

// Elapsed is the time since NewSystem, by the monotonic clock.
func (c System) Elapsed() time.Duration { return time.Since(c.start) }

// Timer returns a channel that receives once after d, and what releases it.
func (System) Timer(d time.Duration) (<-chan time.Time, func()) {
	t := time.NewTimer(d)
	return t.C, func() { t.Stop() }
}
