// Package invariant checks what must always hold, where it is worth the time:
// in builds with the tag invariants, and under the race detector.
//
//	if invariant.Enabled {
//		invariant.Check(pos <= size, "position %d beyond size %d", pos, size)
//	}
//
// Without the tag Enabled is a false constant, and the compiler drops the
// block together with the evaluation of its arguments.
package invariant
