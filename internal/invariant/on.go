//go:build invariants || race

package invariant

import "fmt"

// Enabled reports whether Check checks.
const Enabled = true

// Check panics with the message when ok is false.
func Check(ok bool, format string, args ...any) {
	if !ok {
		panic("invariant violated: " + fmt.Sprintf(format, args...))
	}
}
