// Package sqlrule names the rules that package sqlbridge keeps, so that a test
// can switch one off and show that it notices. Nobody else uses it: a bridge
// that was opened without Without keeps them all.
package sqlrule

import (
	"context"
	"sync"
)

// Rule is one rule, or a set of them.
type Rule uint

// The rules.
const (
	// CompareAndSet: the cursor moves only from where this consumer left it.
	CompareAndSet Rule = 1 << iota
	// Guard: a transaction that ended under the handler is noticed, and nothing
	// more is written through it.
	Guard
	// Claim: a handler that commits by itself leaves a mark in the database.
	Claim
	// LogID: a cursor moves only for the log it was made for.
	LogID
	// Ahead and Behind: a cursor outside the log is an error, or reset by policy.
	Ahead
	Behind
	// BusyRetry: a transaction that finds the database locked is tried again.
	BusyRetry
	// CommitRetry: so is a COMMIT, without doing the transaction again.
	CommitRetry
	// CleanUp: a transaction that is left by an error or a panic is rolled back,
	// and its connection goes back to the pool.
	CleanUp
	// WriteFirst: the first statement of a transaction is the cursor's.
	WriteFirst
	// Holes: a batch begins with the first record that the cursor has not passed.
	Holes
	// Empty: a batch of nothing is nothing to do.
	Empty
	// BatchLimit: a transaction takes no more than the batch's records and bytes.
	BatchLimit
	// OneConn: no second connection is asked for while one is held.
	OneConn
	// NoCancel: a context that ends interrupts no statement of a transaction.
	NoCancel
	// InTx: Advance refuses to work outside a transaction.
	InTx
	// Savepoint: what a skipped record did is undone.
	Savepoint
	// Attempts: a record is tried as often as it was asked for, not more.
	Attempts
	// Int64: an offset that does not fit SQLite's integers is refused.
	Int64
)

// Switches says which rules are off. A nil *Switches, as everybody but the suite
// has it, says none.
type Switches struct {
	off Rule

	mu    sync.Mutex // guards later
	later []func()
}

type key struct{}

// Without returns a context; a bridge opened with it does not keep the rules.
// release does what was left undone without them; call it at the end.
func Without(ctx context.Context, rules Rule) (without context.Context, release func()) {
	s := &Switches{off: rules}
	return context.WithValue(ctx, key{}, s), s.release
}

// From returns the switches of a context.
func From(ctx context.Context) *Switches {
	s, _ := ctx.Value(key{}).(*Switches)
	return s
}

// Off reports whether one of the rules is off.
func (s *Switches) Off(rules Rule) bool { return s != nil && s.off&rules != 0 }

// Later leaves f for release.
func (s *Switches) Later(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.later = append(s.later, f)
}

func (s *Switches) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.later {
		f()
	}
	s.later = nil
}
