// Package cursor keeps where consumers of a log stand: committed offsets under
// names, so that a consumer that ends, or dies, goes on where it was.
//
// # What it promises
//
//   - [Run] delivers every record at least once and in order. It commits what
//     was handled after a number of records, after a time, and at the end.
//   - A commit that was acknowledged survives a power failure ([File]).
//   - Of two consumers under one name, the one that commits second gets a
//     [MovedError]: a commit says where the cursor was and where it goes
//     (compare and set).
//   - A cursor is bound to the log's id. One of another log, one above
//     everything in the log, or one below its first record is an error with all
//     numbers; the application may choose to go on at either end instead
//     ([Policy]), and is told what it lost.
//   - A damaged file is an error that names it, never a start from 0.
//
// # What it does not promise
//
// Exactly once. A consumer that dies between its work and the commit does that
// work again. To have the effects once: keep the cursor with the effects in one
// transaction (package sqlbridge, for SQLite), or send the [IdempotencyKey] of
// each record to a receiver that ignores what it has seen. Nor do consumers
// under one name share work: there are no groups.
//
// # Using it
//
//	r, err := evlog.OpenReader(ctx, "events", nil)
//	...
//	store, err := cursor.OpenFile(ctx, "events", nil)
//	...
//	err = cursor.Run(ctx, r, store, "uplink", func(ctx context.Context, rec evlog.Record) error {
//		return send(ctx, cursor.IdempotencyKey(r.ID(), rec.Offset), rec.Value)
//	}, nil)
//
// Other logs can stand behind [Log] and other places for cursors behind [Store];
// package cursortest tells whether they keep the contract.
package cursor
