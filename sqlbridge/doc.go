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
//     [cursor.MovedError] before it has done anything.
//   - A cursor is bound to the log's id. One of another log, one above
//     everything in the log or below its first record is an error with all
//     numbers; a consumer may choose to go on at either end instead, and what it
//     loses is noted in the database.
//   - A handler can do what it likes with its transaction: what ends it is
//     noticed, and does not make records get lost or applied twice.
//   - A record that cannot be applied stops the consumer at its offset, is tried
//     again, or is skipped with a note, as the application says.
//
// # What it does not promise
//
// Anything about effects elsewhere. A handler may be called several times for a
// record, of which one call takes effect in the database; a request that it
// sends is sent each time. See [cursor.IdempotencyKey]. Nor is the database
// safer than its settings: Check says what they are worth.
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
// them. RunOptions.BatchTime bounds it.
//
// SQLite rolls a transaction back when a statement in it is cancelled, and
// database/sql then runs the following ones outside of any. So handlers get a
// context that never ends, and a [Tx] that notices.
package sqlbridge
