//go:build !linux && !darwin

package clock

import "time"

// SinceBoot is Elapsed: whether that goes on while the machine sleeps is the
// system's matter.
func (c System) SinceBoot() time.Duration { return c.Elapsed() }
