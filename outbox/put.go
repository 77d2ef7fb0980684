package outbox

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/outboxrule"
	"github.com/evlog-go/evlog/internal/sqldb"
)

// Put stores the records in the outbox as a part of the transaction tx: a
// *sql.Tx, a *sql.Conn after BEGIN, or what wraps one. They are relayed after it
// has committed, in this order, and never if it does not. The time of a record
// without one is now; Offset is ignored.
//
// A *sql.DB, or a transaction that SQLite has rolled back meanwhile, is
// ErrNotInTx. A transaction of another database that has an outbox too is not
// noticed: the records go there. After an error roll the transaction back. What a record may be is
// found out by the relay: one that is too large for the log is parked there.
func (b *Box) Put(ctx context.Context, tx DBTX, records ...evlog.Record) error {
	if err := b.inTransaction(ctx, tx); err != nil {
		return wrap("put", err)
	}
	for some := range slices.Chunk(records, rowsAtOnce) {
		if err := b.insert(ctx, tx, some); err != nil {
			return wrap("put", err)
		}
	}
	return nil
}

// rowsAtOnce is how many rows one statement inserts.
const rowsAtOnce = 32

// insert inserts rows without dedupe keys.
func (b *Box) insert(ctx context.Context, q DBTX, records []evlog.Record) error {
	args := make([]any, 0, insertColumns*len(records))
	for _, r := range records {
		columns, err := b.columns(r)
		if err != nil {
			return err
		}
		args = append(args, columns[:]...)
	}
	_, err := q.ExecContext(ctx, insertRows[len(records)], args...)
	return tableError(err)
}

const insertColumns = 5

// insertRows are the statements for 1 to rowsAtOnce rows.
var insertRows = func() (queries [rowsAtOnce + 1]string) {
	query := `INSERT INTO main.evlog_outbox (uid, schema, ts_ms, key, value) VALUES `
	for n := 1; n <= rowsAtOnce; n++ {
		if n > 1 {
			query += `, `
		}
		query += `(?, ?, ?, ?, ?)`
		queries[n] = query
	}
	return queries
}()

// columns are uid, schema, ts_ms, key and value of a new row.
func (b *Box) columns(r evlog.Record) (columns [insertColumns]any, err error) {
	t := r.Time
	if t.IsZero() {
		t = b.clock.Now()
	}
	ms := t.UnixMilli()
	if time.UnixMilli(ms).Unix() != t.Unix() {
		return columns, fmt.Errorf("time %v: %w", r.Time, evlog.ErrTooLarge)
	}
	var uid UID
	rand.Read(uid[:]) // never fails
	return [insertColumns]any{uid[:], int64(r.Schema), ms, nullIfEmpty(r.Key), nullIfEmpty(r.Value)}, nil
}

// PutOnce is Put for a record that must not come twice: if a row with this
// dedupe key is in the outbox, queued, parked, or kept after it was relayed (see
// Options.KeepFor), it does nothing and returns false. The key must not be empty.
func (b *Box) PutOnce(ctx context.Context, tx DBTX, dedupeKey string, r evlog.Record) (put bool, err error) {
	if dedupeKey == "" {
		return false, fmt.Errorf("outbox: put: the dedupe key is empty: %w", evlog.ErrBadOptions)
	}
	if err := b.inTransaction(ctx, tx); err != nil {
		return false, wrap("put", err)
	}
	columns, err := b.columns(r)
	if err != nil {
		return false, wrap("put", err)
	}
	var key any = dedupeKey
	if b.rules.Off(outboxrule.Dedupe) {
		key = nil
	}
	res, err := tx.ExecContext(ctx, insertOnce, append(columns[:], key)...)
	if err != nil {
		return false, wrap("put", tableError(err))
	}
	n, err := res.RowsAffected()
	return n > 0, wrap("put", err)
}

const insertOnce = `INSERT INTO main.evlog_outbox (uid, schema, ts_ms, key, value, dedupe)
	SELECT ?1, ?2, ?3, ?4, ?5, ?6
	WHERE NOT EXISTS (SELECT 1 FROM main.evlog_outbox_kept WHERE dedupe = ?6)
	ON CONFLICT (dedupe) WHERE dedupe IS NOT NULL DO NOTHING`

func (b *Box) inTransaction(ctx context.Context, q DBTX) error {
	if b.rules.Off(outboxrule.InTx) {
		return nil
	}
	return sqldb.InTransaction(ctx, q, false, ErrNotInTx)
}

// nullIfEmpty: an empty key and none are the same to a log, and not every driver
// reads an empty blob back as one.
func nullIfEmpty(b []byte) any {
	if len(b) == 0 {
		return nil
	}
	return b
}

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
// fn must neither call InTx, which would wait for its own lock for a minute, nor
// append to the log: the relay may be at the log's gate and need the lock. If both
// wait for each other, the relay poisons the log after 5 s.
//
// After an error nothing was committed, unless it is an I/O error of the commit
// itself, which leaves that open: PutOnce makes it harmless to try again.
func (b *Box) InTx(ctx context.Context, fn func(ctx context.Context, tx *sql.Tx) error) error {
	conn, err := b.db.Conn(ctx)
	if err != nil {
		return wrap("begin", err)
	}
	defer func() { _ = conn.Close() }()
	nc := context.WithoutCancel(ctx)
	t, err := b.beginWriting(ctx, conn)
	if err != nil {
		return wrap("begin", err)
	}
	defer func() {
		// After a COMMIT this only tells the *sql.Tx.
		if err := t.Rollback(); err != nil && !sqldb.IsNoTx(err) {
			(&tx{connection: &connection{conn: conn}, ctx: nc}).rollback()
		}
	}()
	if err := fn(nc, t); err != nil {
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
		return tableError(err)
	})
	return t, err
}
