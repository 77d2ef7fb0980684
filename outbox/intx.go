package outbox

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/evlog-go/evlog/internal/sqldb"
)

// InTx runs fn in a transaction, commits it, and wakes the relay. An error of fn
// or a panic rolls back. The transaction has the write lock from its beginning,
// which is waited for up to a minute, so that nothing in it can find the database
// locked, and fn is called once.
//
// fn's context has the values of ctx and does not end, because SQLite rolls a
// transaction back in which a statement is cancelled. If that happens all the
// same (a full disk, INSERT OR ROLLBACK), InTx returns ErrNotInTx. fn must not
// end the transaction itself.
//
// fn must not call InTx on the same database: with fn's context that is
// ErrNested at once, and with another one it waits for its own lock. Nor must it
// append to the log: the relay may be at the log's gate and need the lock. If
// both wait for each other, the relay poisons the log after 5 s.
//
// Inside fn everything composes that takes a transaction: Put, and sqlbridge's
// Advance. A handler of sqlbridge has a transaction already: there call Put.
//
// After an error nothing was committed, unless it is an I/O error of the commit
// itself, which leaves that open: PutOnce makes it harmless to try again.
func (b *Box) InTx(ctx context.Context, fn func(ctx context.Context, tx *sql.Tx) error) error {
	if nested(ctx, b.file) {
		return wrap("begin", ErrNested)
	}
	conn, err := b.db.Conn(ctx)
	if err != nil {
		return wrap("begin", err)
	}
	defer func() { _ = conn.Close() }()
	nc := context.WithoutCancel(ctx)
	t, err := b.beginWriting(ctx, conn)
	if err != nil {
		return wrap("begin", b.maybeNested(err))
	}
	b.writing.Add(1)
	defer b.writing.Add(-1)
	defer func() {
		// After a COMMIT this only tells the *sql.Tx.
		if err := t.Rollback(); err != nil && !sqldb.IsNoTx(err) {
			(&tx{connection: &connection{conn: conn}, ctx: nc}).rollback()
		}
	}()
	if err := fn(context.WithValue(nc, writingKey{b.file}, true), t); err != nil {
		return err
	}
	if err := b.inTransaction(nc, t); err != nil {
		return wrap("commit", err)
	}
	// Not Commit: drivers have to roll back when it fails, and with a rollback
	// journal a COMMIT that finds a reader in its way can be tried again.
	err = b.patiently(ctx, func() error {
		_, err := t.ExecContext(nc, `COMMIT`)
		return err
	})
	if err != nil {
		return wrap("commit", err)
	}
	b.Notify()
	return nil
}

// writingKey marks the contexts of functions that have a transaction on file.
type writingKey struct{ file string }

func nested(ctx context.Context, file string) bool {
	is, _ := ctx.Value(writingKey{file}).(bool)
	return is
}

// maybeNested says why the database may be locked, where that is this box's own
// doing.
func (b *Box) maybeNested(err error) error {
	if n := b.writing.Load(); n > 0 && sqldb.IsBusy(err) {
		return fmt.Errorf("%w (%d calls of InTx are at work: one inside another waits for itself)", err, n)
	}
	return err
}

// beginWriting begins a transaction and takes the write lock.
func (b *Box) beginWriting(ctx context.Context, conn *sql.Conn) (t *sql.Tx, err error) {
	nc := context.WithoutCancel(ctx)
	err = b.patiently(ctx, func() error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if t, err = conn.BeginTx(nc, nil); err != nil {
			return err
		}
		if _, err = t.ExecContext(nc, `UPDATE main.evlog_outbox SET id = id WHERE 0`); err != nil {
			_ = t.Rollback()
		}
		return tables.Error(err)
	})
	return t, err
}
