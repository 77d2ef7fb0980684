// Package sqlbridge applies the records of a log to an application's own SQLite
// database, each exactly once: a consumer's cursor is a row of that database,
// and moves in the transaction that has the effects.
//
// It works on database/sql and imports no driver. Its tests run on
// modernc.org/sqlite, mattn/go-sqlite3 and ncruces/go-sqlite3.
//
// # What it promises
//
//   - Effects in this database happen exactly once, whatever crashes when: a
//     process, or in the journal modes that [Bridge.Check] calls safe, the
//     machine.
//   - Of two consumers under one name, one advances, and the other one gets a
//     [cursor.MovedError] before it has applied anything of that batch.
//   - A cursor is bound to the log's id. One of another log, one above
//     everything in the log or below its first record is an error with all
//     numbers; a consumer may choose to go on at either end instead, and what it
//     loses is noted in the database.
//   - A transaction that ends under its handler is noticed before the next
//     statement of the [Tx], and nothing is lost or applied twice.
//   - A record that cannot be applied stops the consumer at its offset, is tried
//     again, or is skipped with a note, as the application says. A full disk and
//     the like is no fault of the record, and never skips one.
//
// # What it does not promise
//
// Anything about effects elsewhere. A handler may be called several times for a
// record, of which one call takes effect in the database; a request that it
// sends is sent each time. See [cursor.IdempotencyKey]. Nor is the database
// safer than its settings: Check says what they are worth.
//
// Nor can it answer for what it does not see. Where a handler works on the
// [*sql.Tx] itself ([Tx.Raw]) or on statements that it prepared, and the
// transaction ends there, what it executes next is committed on its own. That
// stops the consumer ([ErrUnseen]), and the record is applied again when it is
// started again. Where it commits, by Raw or in a text that hides it, the
// consumer stands still ([ErrCommitted]) until [Bridge.Reset] says where to go on.
// A handler that executes its statements with the Tx, and reads the rows of each
// query that writes before the next statement, has none of this.
//
// # Using it
//
// [Bridge.Run] follows a log and applies it in batches:
//
//	db, err := sql.Open("sqlite", "file:app.db?_pragma=journal_mode(WAL)&_pragma=busy_timeout(5000)")
//	...
//	bridge, err := sqlbridge.Open(ctx, db, nil) // creates its tables
//	...
//	err = bridge.Run(ctx, reader, "totals", func(ctx context.Context, tx *sqlbridge.Tx, rec evlog.Record) error {
//		_, err := tx.ExecContext(ctx, `UPDATE total SET n = n + 1`)
//		return err
//	}, nil)
//
// [Bridge.Process] applies one batch. Applications that keep their own
// transactions use [Bridge.Cursor] and [Bridge.Advance]: read the records from
// the cursor on, and then advance it and apply them in one transaction.
//
//	pos, err := bridge.Cursor(ctx, db, "totals")
//	...
//	var recs []evlog.Record
//	for rec, err := range reader.Records(ctx, pos.Next) {
//		recs = append(recs, rec.Clone())
//		...
//	}
//	tx, err := db.BeginTx(ctx, nil)
//	...
//	err = bridge.Advance(ctx, tx, "totals", reader.ID(), pos.Next, recs[len(recs)-1].Offset+1)
//	... // apply recs in tx
//	err = tx.Commit()
//
// # Transactions
//
// While a batch is applied, its transaction holds the database's write lock, and
// other writers wait: keep handlers short, and let nothing but SQL happen in
// them. RunOptions.BatchTime bounds it. What a handler does in this database goes
// through its Tx: a write by the [*sql.DB] waits for that lock in vain, and with
// a pool of one connection even a read waits for ever.
//
// SQLite rolls a transaction back when a statement in it is cancelled, and
// database/sql then runs the following ones outside of any. So handlers get a
// context that never ends, and a Tx that notices. For the same reason nothing
// cuts a wait for a lock short: when ctx ends while another connection writes,
// [Bridge.Run], [Bridge.Process] and [Bridge.Advance] return after the busy
// timeout of the connection. Some drivers have a long one by default.
//
// A constraint that is checked at COMMIT (DEFERRABLE INITIALLY DEFERRED) fails
// the batch and not one of its records, so the consumer stops, and nothing is
// skipped.
package sqlbridge
