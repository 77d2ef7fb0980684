// Package outbox gets events out of an application's SQLite database and into a
// log, each exactly once: an event is a row of the database, written in the
// transaction that it tells of, and a relay appends the rows to the log in the
// order of the commits.
//
// It works on database/sql and imports no driver. Its tests run on
// modernc.org/sqlite, mattn/go-sqlite3 and ncruces/go-sqlite3.
//
// # What it promises
//
//   - A record is in the log exactly once if its transaction was committed, and
//     never if not, whatever crashes when: the process, or the machine.
//   - Records come in the order of the commits, and within a transaction in the
//     order of Put. Rows that were parked come later.
//   - With a WAL the application may commit with synchronous=NORMAL: no event is
//     in the log whose transaction a power failure takes back.
//   - Any number of processes may put events into the database. One of them has
//     the log open, and relays.
//   - A log or a database that was deleted, made anew or replaced by an older copy
//     is an error that says so, and goes on only as Options.Policy says. A copy of
//     the database that is younger than the last start of the relay cannot be told
//     from the database itself: what it sends again has the same Row.UID.
//
// # Using it
//
// The log is opened with the outbox's hook:
//
//	db, err := sql.Open("sqlite", "file:app.db?_pragma=journal_mode(WAL)&_pragma=busy_timeout(5000)")
//	...
//	box, err := outbox.Open(ctx, db, nil) // creates its tables
//	...
//	log, err := evlog.Open(ctx, "events", &evlog.Options{OpenHook: box.Hook()})
//	...
//	ctx, stop := context.WithCancel(ctx)
//	go func() {
//		defer stop() // if it ends by itself, so does all that waits for it
//		done <- box.Run(ctx, log)
//	}()
//	...
//	err = box.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
//		if _, err := tx.ExecContext(ctx, `INSERT INTO orders ...`); err != nil {
//			return err
//		}
//		_, err := box.Put(ctx, tx, evlog.Record{Key: []byte("order:42"), Value: event})
//		return err
//	})
//
// [Box.Wait] waits until the log has what was committed. At the end:
//
//	stop()
//	if err := <-done; !errors.Is(err, context.Canceled) {
//		...
//	}
//	err = log.Close() // after Run: it needs the log
//
// Stopping does not wait for the queue. What is committed and not in the log yet
// stays in the database, and is relayed after the next start; call Wait before for
// an empty queue.
//
// Applications that keep their own transactions call [Box.Put] in them, and
// [Box.Notify] after the commit. [Box.PutOnce] makes it harmless to do it again.
// A handler of sqlbridge calls Put in the transaction that it is given: what it
// has consumed, its cursor and what it tells are committed together.
// Other processes open an outbox too, and do not relay; the relay finds their rows
// by polling. Other languages insert with
//
//	INSERT INTO evlog_outbox (key, value) VALUES (CAST(? AS BLOB), CAST(? AS BLOB))
//
// since both columns refuse TEXT. They may set ts_ms (milliseconds since 1970, now
// by default), schema (0 to 65535) and dedupe, which is unique among the rows that
// are queued or parked: INSERT OR IGNORE. Whether a row with the key is kept, only
// evlog_outbox_kept knows.
//
// When the log fails, [Box.Run] ends, and the application opens the log again:
// [Box.RunOpening] does both.
//
// # How it works
//
// One batch takes these steps:
//
//  1. The relay takes the log's append gate (evlog.Log.Gate), so that nobody else
//     appends and the next offset is known: N.
//  2. In one transaction that is synced, it deletes the rows of the batch before,
//     and writes the intent: these rows are about to be appended at N.
//  3. It appends them, as one batch, and lets the gate go.
//  4. It waits until they are durable. They are deleted with the next intent, or
//     after a moment without one.
//
// A crash leaves the intent, and the log. When the log is opened again, the hook
// finds its end, E, and everything below E is durable by then. Nobody else could
// append at N, so E - N of the rows are in the log. The hook deletes those and
// closes the intent, in one transaction; the rest are relayed again. What records
// look like plays no part in it: two events may be equal.
//
// From step 2 on the gate is kept until nothing is in doubt. If the append fails,
// because the disk is full, the intent is resolved in the same way before anybody
// else appends. docs/DESIGN.md has what a crash leaves after each step.
package outbox
