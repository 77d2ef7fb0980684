package sqlsuite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/sqlbridge"
)

// inHandler runs f as the handler of one record.
func (e *env) inHandler(f func(ctx context.Context, tx *sqlbridge.Tx) error) error {
	l := logOf("A", 0, 1)
	_ = e.b.Remove(e.ctx, consumer)
	return e.process(l, l.all(0), func(ctx context.Context, tx *sqlbridge.Tx, _ evlog.Record) error { return f(ctx, tx) }, nil)
}

func (e *env) noise() (n int) {
	e.t.Helper()
	require.NoError(e.t, e.db.QueryRow(`SELECT count(*) FROM noise`).Scan(&n))
	return n
}

// Everything that a transaction can do, a handler can.
func testTx(t *testing.T, e *env) {
	var escaped *sqlbridge.Tx
	err := e.inHandler(func(ctx context.Context, tx *sqlbridge.Tx) error {
		escaped = tx
		for i := range 10 { // from the second on it is prepared
			res, err := tx.ExecContext(ctx, `INSERT INTO noise (id, x) VALUES (?1, ?2)`, i+1, 10*i)
			require.NoError(t, err)
			n, err := res.RowsAffected()
			require.NoError(t, err)
			require.EqualValues(t, 1, n)
			id, err := res.LastInsertId()
			require.NoError(t, err)
			require.EqualValues(t, i+1, id)
		}
		var x int
		require.NoError(t, tx.QueryRowContext(ctx, `SELECT x FROM noise WHERE id = ?1`, 3).Scan(&x))
		require.Equal(t, 20, x)
		require.NoError(t, tx.QueryRowContext(ctx, `INSERT INTO noise (x) VALUES (7) RETURNING id`).Scan(&x))
		require.Equal(t, 11, x)

		rows, err := tx.QueryContext(ctx, `SELECT id FROM noise ORDER BY id`)
		require.NoError(t, err)
		n := 0
		for rows.Next() {
			var id int
			require.NoError(t, rows.Scan(&id))
			if n++; n == 3 { // writing while reading
				_, err := tx.ExecContext(ctx, `UPDATE noise SET x = x + 1 WHERE id = ?1`, id)
				require.NoError(t, err)
			}
		}
		require.NoError(t, rows.Err())
		require.Equal(t, 11, n)

		st, err := tx.PrepareContext(ctx, `DELETE FROM noise WHERE id = ?1`)
		require.NoError(t, err)
		_, err = st.ExecContext(ctx, 1)
		require.NoError(t, err)
		require.NoError(t, st.Close())
		_, err = tx.Raw().ExecContext(ctx, `DELETE FROM noise WHERE id = 2`)
		require.NoError(t, err)

		// A constraint fails one statement, and nothing else.
		_, err = tx.ExecContext(ctx, `INSERT INTO noise (id, x) VALUES (?1, ?2)`, 3, 0)
		require.Error(t, err)
		_, err = tx.ExecContext(ctx, `SAVEPOINT mine`)
		require.NoError(t, err)
		_, err = tx.ExecContext(ctx, `DELETE FROM noise`)
		require.NoError(t, err)
		_, err = tx.ExecContext(ctx, `ROLLBACK TO mine`)
		require.NoError(t, err)
		// Cursors of other names move with the same transaction.
		return e.b.Advance(ctx, tx, "other", "A", 0, 9)
	})
	require.NoError(t, err)
	require.Equal(t, 9, e.noise())
	p, err := e.b.Cursor(e.ctx, e.db, "other")
	require.NoError(t, err)
	require.EqualValues(t, 9, p.Next)
	_, err = escaped.ExecContext(e.ctx, `DELETE FROM noise`)
	require.Error(t, err, "a transaction that a handler kept")
	require.Equal(t, 9, e.noise())
}

// A handler that forgets to close its rows is no reason to fail.
func testOpenRows(t *testing.T, e *env) {
	_, err := e.db.Exec(`INSERT INTO noise (x) VALUES (1), (2), (3)`)
	require.NoError(t, err)
	for range 2 {
		err := e.inHandler(func(ctx context.Context, tx *sqlbridge.Tx) error {
			rows, err := tx.QueryContext(ctx, `SELECT x FROM noise`)
			require.NoError(t, err)
			require.True(t, rows.Next())
			_, err = tx.ExecContext(ctx, `INSERT INTO noise (x) VALUES (4)`)
			return err
		})
		require.NoError(t, err)
	}
	require.Equal(t, 5, e.noise())
}

// With a shared cache it is tables that are locked, and the error is another
// one.
func testSharedCache(t *testing.T, e *env) {
	db, err := sql.Open(e.d.Name, e.m.dsn(e.path, 0)+"&cache=shared")
	require.NoError(t, err)
	defer func() { _ = db.Close() }()
	shared := *e
	shared.db = db
	shared.b, err = sqlbridge.Open(e.ctx, db, nil)
	require.NoError(t, err)
	l := logOf("A", 0, 20)
	require.NoError(t, shared.process(l, l.all(0)[:10], apply, nil))
	reader, err := db.Conn(e.ctx)
	require.NoError(t, err)
	defer func() { _ = reader.Close() }()
	_, err = reader.ExecContext(e.ctx, `BEGIN`)
	require.NoError(t, err)
	_, err = sqlbridge.Positions(e.ctx, reader)
	require.NoError(t, err)
	done := make(chan error, 1)
	time.AfterFunc(50*time.Millisecond, func() {
		_, err := reader.ExecContext(context.WithoutCancel(e.ctx), `COMMIT`)
		done <- err
	})
	require.NoError(t, shared.process(l, l.all(10), apply, nil))
	require.NoError(t, <-done)
	require.NoError(t, shared.exactly(l.all(0), 20))
}

// Texts of every kind do what they do without the statements being kept.
func testTxTexts(t *testing.T, e *env) {
	err := e.inHandler(func(ctx context.Context, tx *sqlbridge.Tx) error {
		for range 3 {
			_, err := tx.ExecContext(ctx, `INSERT INTO noise (x) VALUES (1); INSERT INTO noise (x) VALUES (2)`)
			require.NoError(t, err)
			_, err = tx.ExecContext(ctx, "-- name: AddNoise :exec\n  insert into noise (x) values (?)", 3)
			require.NoError(t, err)
			_, err = tx.ExecContext(ctx, `INSERT INTO noise (x) VALUES (4);`)
			require.NoError(t, err)
			_, err = tx.ExecContext(ctx, `WITH w(x) AS (SELECT 5) INSERT INTO noise (x) SELECT x FROM w`)
			require.NoError(t, err)
			_, err = tx.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS later (x) `)
			require.NoError(t, err)
		}
		for i := range 200 { // more than are remembered
			for range 2 {
				_, err := tx.ExecContext(ctx, fmt.Sprintf(`INSERT INTO noise (x) VALUES (%d)`, 100+i))
				require.NoError(t, err)
			}
		}
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, 3*5+400, e.noise())
}

// testIsBusy meets the real errors.
func testIsBusy(t *testing.T, e *env) {
	wait := e.lockFor(50 * 1e6)
	_, err := e.open(0).Exec(`INSERT INTO noise (x) VALUES (1)`)
	wait()
	require.Error(t, err)
	require.True(t, sqlbridge.IsBusy(err), err)
	require.True(t, sqlbridge.IsBusy(fmt.Errorf("wrapped: %w", err)))

	if e.m.wal() { // SQLITE_BUSY_SNAPSHOT
		tx, err := e.open(0).Begin()
		require.NoError(t, err)
		var n int
		require.NoError(t, tx.QueryRow(`SELECT count(*) FROM noise`).Scan(&n))
		_, err = e.db.Exec(`INSERT INTO noise (x) VALUES (1)`)
		require.NoError(t, err)
		_, err = tx.Exec(`INSERT INTO noise (x) VALUES (1)`)
		require.True(t, sqlbridge.IsBusy(err), err)
		require.NoError(t, tx.Rollback())
	}
	_, err = e.db.Exec(`INSERT INTO nowhere (x) VALUES (1)`)
	require.Error(t, err)
	require.False(t, sqlbridge.IsBusy(err))
	require.False(t, sqlbridge.IsBusy(nil))
	for _, text := range []string{"database table is locked: noise", "database schema is locked: main", "locking protocol"} {
		require.True(t, sqlbridge.IsBusy(errors.New("driver: "+text)))
	}
}
