// Package outboxrule names the rules that package outbox keeps, so that a test
// can switch one off and show that it notices. Nobody else uses it: an outbox
// that was opened without Without keeps them all.
package outboxrule

import "context"

// Rule is one rule, or a set of them.
type Rule uint

// The rules.
const (
	// Extra: the relay's transactions are synced when they commit.
	Extra Rule = 1 << iota
	// Intent: what is about to be appended, and where, is committed before.
	Intent
	// Gate: nobody appends between the choice of the offset and the append.
	Gate
	// Settle: after an append that failed, or a COMMIT of which nobody knows, the
	// intent is resolved before anybody else appends.
	Settle
	// HookFirst: an intent is resolved before the opened log is appended to.
	HookFirst
	// SyncFirst: rows are deleted only after their records are durable.
	SyncFirst
	// ByOffset: how far the log has got tells what was appended, not what its
	// records look like.
	ByOffset
	// Gaps: offsets that repair left without records were not appended.
	Gaps
	// ByUID: a row is deleted only if it is the one that was relayed, not another
	// one under its id.
	ByUID
	// Fence: a relay that another one has replaced does nothing more.
	Fence
	// OneRelay: there is one relay of an outbox in a process.
	OneRelay
	// InTx: Put refuses to work outside a transaction.
	InTx
	// Park: a row that cannot be appended is set aside.
	Park
	// Ahead: a log that ends below what was acknowledged is an error.
	Ahead
	// LogID: another log is an error.
	LogID
	// Sums: records that differ from what was intended are an error.
	Sums
	// Note: a database that is older than the log is an error.
	Note
	// NoPin: where the pool has one connection, it is not kept.
	NoPin
	// Poll: commits of other processes are looked for.
	Poll
	// Retry: what failed for want of a lock or of space is tried again without
	// being woken.
	Retry
	// Dedupe: a second row with the same key is none.
	Dedupe
)

type key struct{}

// Without returns a context; an outbox opened with it does not keep the rules.
func Without(ctx context.Context, rules Rule) context.Context {
	return context.WithValue(ctx, key{}, rules)
}

// From returns the rules that a context switches off.
func From(ctx context.Context) Rule {
	r, _ := ctx.Value(key{}).(Rule)
	return r
}

// Off reports whether one of the rules is switched off.
func (r Rule) Off(rules Rule) bool { return r&rules != 0 }
