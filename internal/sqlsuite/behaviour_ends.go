package sqlsuite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/cursor"
	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/sqlbridge"
)

// both are the policies, under which some things must be the same.
var both = []sqlbridge.Poison{sqlbridge.Stop, sqlbridge.Skip}

// stopsAt tests an error that ends a consumer at a record.
func stopsAt(t *testing.T, err error, offset uint64) {
	t.Helper()
	var handler *cursor.HandlerError
	require.ErrorAs(t, err, &handler)
	require.Equal(t, offset, handler.Offset)
}

// A full disk is no fault of the records: none is skipped.
func testFullDisk(t *testing.T, e *env) {
	e.db.SetMaxOpenConns(1)
	_, err := e.db.Exec(`PRAGMA max_page_count = 40`)
	require.NoError(t, err)
	l := logOf("A", 0, 50)
	for name, insert := range map[string]func(ctx context.Context, tx *sqlbridge.Tx, rec evlog.Record) error{
		"exec": func(ctx context.Context, tx *sqlbridge.Tx, rec evlog.Record) error {
			rec.Value = make([]byte, 9000)
			return apply(ctx, tx, rec)
		},
		"row_in_own_words": func(ctx context.Context, tx *sqlbridge.Tx, rec evlog.Record) error {
			var n int
			if tx.QueryRowContext(ctx, applySQL+` RETURNING n`, int64(rec.Offset), nil, make([]byte, 9000)).Scan(&n) != nil {
				return errors.New("it did not work")
			}
			return nil
		},
		"raw": func(ctx context.Context, tx *sqlbridge.Tx, rec evlog.Record) error {
			_, err := tx.Raw().ExecContext(ctx, applySQL, int64(rec.Offset), nil, make([]byte, 9000))
			return err
		},
	} {
		err := e.process(l, l.all(0), insert, &sqlbridge.RunOptions{
			Poison: sqlbridge.Skip, Attempts: 2, RetryDelay: time.Microsecond,
		})
		n := e.cursor()
		require.NotZero(t, n, name)
		require.Less(t, n, uint64(50), name)
		stopsAt(t, err, n)
		require.NoError(t, e.exactly(l.all(0)[:n], n), name)
		require.NoError(t, e.skips(0), name)
		require.NoError(t, e.startOver())
	}
}

// Nor is one where the transaction goes on after the error.
func testReadOnly(t *testing.T, e *env) {
	l := logOf("A", 0, 5)
	for name, exec := range map[string]func(ctx context.Context, tx *sqlbridge.Tx, query string, args ...any) (sql.Result, error){
		"seen": func(ctx context.Context, tx *sqlbridge.Tx, query string, args ...any) (sql.Result, error) {
			return tx.ExecContext(ctx, query, args...)
		},
		"raw": func(ctx context.Context, tx *sqlbridge.Tx, query string, args ...any) (sql.Result, error) {
			return tx.Raw().ExecContext(ctx, query, args...)
		},
	} {
		err := e.process(l, l.all(0), func(ctx context.Context, tx *sqlbridge.Tx, rec evlog.Record) error {
			if rec.Offset != 3 {
				return apply(ctx, tx, rec)
			}
			_, err1 := exec(ctx, tx, `PRAGMA query_only = 1`)
			_, err := exec(ctx, tx, applySQL, int64(rec.Offset), rec.Key, rec.Value)
			_, err2 := exec(ctx, tx, `PRAGMA query_only = 0`)
			require.NoError(t, errors.Join(err1, err2), name)
			return err
		}, &sqlbridge.RunOptions{Poison: sqlbridge.Skip})
		stopsAt(t, err, 3)
		require.ErrorContains(t, err, "readonly", name)
		require.NoError(t, e.exactly(l.all(0)[:3], 3), name)
		require.NoError(t, e.startOver())
	}
}

// What only looks like a full disk is a record that fails.
func testFullDiskUnseen(t *testing.T, e *env) {
	l := logOf("A", 0, 5)
	require.NoError(t, e.process(l, l.all(0), func(ctx context.Context, tx *sqlbridge.Tx, rec evlog.Record) error {
		if rec.Offset == 3 {
			return fmt.Errorf("unknown kind %q", "database or disk is full")
		}
		return apply(ctx, tx, rec)
	}, &sqlbridge.RunOptions{Poison: sqlbridge.Skip}))
	require.NoError(t, e.exactly(without(l.all(0), 3), 5))
}

// The transaction ends under statements that are not seen, and the next ones are
// committed on their own. That cannot be helped; but the record is not applied a
// second time as if nothing had been.
func testEndsUnseen(t *testing.T, e *env) {
	prepared := func(ctx context.Context, tx *sqlbridge.Tx, query string, args ...any) error {
		st, err := tx.PrepareContext(ctx, query)
		if err != nil {
			return err
		}
		_, err = st.ExecContext(ctx, args...)
		return err
	}
	raw := func(ctx context.Context, tx *sqlbridge.Tx, query string, args ...any) error {
		_, err := tx.Raw().ExecContext(ctx, query, args...)
		return err
	}
	// Statements that were there before, as an application has them.
	var kept *sql.Tx
	early := func(ctx context.Context, tx *sqlbridge.Tx, query string, args ...any) error {
		if kept == nil {
			kept = tx.Raw()
		}
		_, err := kept.ExecContext(ctx, query, args...)
		return err
	}
	for _, policy := range both {
		for name, exec := range map[string]func(ctx context.Context, tx *sqlbridge.Tx, query string, args ...any) error{
			"prepared": prepared, "raw": raw, "raw_kept": early,
		} {
			l := logOf("A", 0, 10)
			calls := map[uint64]int{}
			err := e.process(l, l.all(0), func(ctx context.Context, tx *sqlbridge.Tx, rec evlog.Record) error {
				if rec.Offset == 0 {
					kept = nil
				}
				if calls[rec.Offset]++; rec.Offset == 3 {
					if err := exec(ctx, tx, `INSERT INTO noise (x) VALUES (1)`); err != nil {
						return err
					}
					_ = exec(ctx, tx, `INSERT OR ROLLBACK INTO noise (id, x) VALUES (1, 1), (1, 2)`)
				}
				return exec(ctx, tx, applySQL, int64(rec.Offset), rec.Key, rec.Value)
			}, &sqlbridge.RunOptions{Attempts: 3, RetryDelay: time.Microsecond, Poison: policy})
			if name == "raw_kept" {
				require.ErrorIs(t, err, sqlbridge.ErrUnseen, name)
			}
			if errors.Is(err, sqlbridge.ErrUnseen) {
				stopsAt(t, err, 3)
				require.ErrorIs(t, err, sqlbridge.ErrTxEnded, name)
				require.Equal(t, 1, calls[3], name)
			} else {
				// Asking for it again has noticed the end in time.
				stopsOrSkips(t, e, err, policy)
			}
			got, err := e.effects()
			require.NoError(t, err)
			for o, n := range got {
				require.Equal(t, 1, n, "%s: record %d", name, o)
			}
			require.NoError(t, e.startOver())
			_, err = e.db.Exec(`DELETE FROM noise`)
			require.NoError(t, err)
		}
	}
}

// Two queries write, and with some drivers do so as their rows are read: the
// second one outside of the transaction that the first one has ended.
func testEndsInRows(t *testing.T, e *env) {
	l := logOf("A", 0, 10)
	calls := 0
	err := e.process(l, l.all(0), func(ctx context.Context, tx *sqlbridge.Tx, rec evlog.Record) error {
		if rec.Offset != 3 {
			return apply(ctx, tx, rec)
		}
		calls++
		query := `INSERT INTO noise (x) VALUES (1), (2) RETURNING id`
		if calls == 1 {
			query = orRollbackReturning
		}
		first, err1 := tx.QueryContext(ctx, query)
		second, err2 := tx.QueryContext(ctx, applySQL+` RETURNING n`, int64(rec.Offset), rec.Key, rec.Value)
		for _, rows := range []*sql.Rows{first, second} {
			if rows != nil {
				drain(rows)
			}
		}
		return errors.Join(err1, err2)
	}, &sqlbridge.RunOptions{Attempts: 3, RetryDelay: time.Microsecond})
	if errors.Is(err, sqlbridge.ErrUnseen) {
		stopsAt(t, err, 3)
		require.Equal(t, 1, calls)
		got, err := e.effects()
		require.NoError(t, err)
		require.Equal(t, map[int64]int{0: 1, 1: 1, 2: 1, 3: 1}, got)
		return
	}
	require.NoError(t, err)
	require.NoError(t, e.exactly(l.all(0), 10))
	require.Equal(t, 2, e.noise())
}

// stopsOrSkips tests that record 3 failed three times.
func stopsOrSkips(t *testing.T, e *env, err error, policy sqlbridge.Poison) {
	t.Helper()
	if policy == sqlbridge.Stop {
		stopsAt(t, err, 3)
		require.ErrorIs(t, err, sqlbridge.ErrTxEnded)
		return
	}
	require.NoError(t, err)
	notes, err := sqlbridge.Skips(e.ctx, e.db, consumer)
	require.NoError(t, err)
	require.Len(t, notes, 1)
}

// To begin and end transactions is the bridge's business.
func testControl(t *testing.T, e *env) {
	l := logOf("A", 0, 5)
	texts := []string{`COMMIT`, `commit;`, ` END TRANSACTION`, `BEGIN IMMEDIATE`, "-- name: X :exec\nROLLBACK", `rollback transaction`}
	err := e.process(l, l.all(0), func(ctx context.Context, tx *sqlbridge.Tx, rec evlog.Record) error {
		for _, text := range texts {
			_, err := tx.ExecContext(ctx, text)
			require.ErrorIs(t, err, sqlbridge.ErrControl)
			_, err = tx.QueryContext(ctx, text) //nolint:sqlclosecheck,rowserrcheck // there are none
			require.ErrorIs(t, err, sqlbridge.ErrControl)
			_, err = tx.PrepareContext(ctx, text) //nolint:sqlclosecheck // there is none
			require.ErrorIs(t, err, sqlbridge.ErrControl)
		}
		return apply(ctx, tx, rec)
	}, nil)
	require.NoError(t, err)
	require.NoError(t, e.exactly(l.all(0), 5))
	err = e.inHandler(func(ctx context.Context, tx *sqlbridge.Tx) error {
		var n int
		return tx.QueryRowContext(ctx, `COMMIT`).Scan(&n)
	})
	require.ErrorIs(t, err, sql.ErrTxDone)
}

// Nobody goes back to a savepoint of the bridge.
func testGuardSavepoint(t *testing.T, e *env) {
	l := logOf("A", 0, 10)
	for _, policy := range both {
		err := e.process(l, l.all(0), func(ctx context.Context, tx *sqlbridge.Tx, rec evlog.Record) error {
			if err := apply(ctx, tx, rec); err != nil {
				return err
			}
			for _, text := range []string{`PRAGMA user_version`, `ROLLBACK TO evlog_guard`, `RELEASE evlog_guard`, `ROLLBACK TO evlog_record`, `RELEASE evlog_record`} {
				_, err := tx.ExecContext(ctx, text)
				require.Equal(t, text != `PRAGMA user_version`, err != nil, text)
			}
			return nil
		}, &sqlbridge.RunOptions{Poison: policy})
		require.NoError(t, err)
		require.NoError(t, e.exactly(l.all(0), 10))
		require.NoError(t, e.startOver())
	}
}

// A handler's goroutine goes on with a Tx that is over.
func testKeptTx(t *testing.T, e *env) {
	l := logOf("A", 0, 300)
	stop, done := make(chan struct{}), make(chan int)
	var kept *sqlbridge.Tx
	started := false
	i := 0
	err := e.runToEnd(l, func(ctx context.Context, tx *sqlbridge.Tx, rec evlog.Record) error {
		i++
		if kept != nil && kept != tx && !started { // that of a batch before
			started = true
			go func(tx *sqlbridge.Tx) {
				for n := 0; ; n++ {
					select {
					case <-stop:
						done <- n
						return
					default:
					}
					if _, err := tx.ExecContext(ctx, fmt.Sprintf(`INSERT INTO noise (x) VALUES (%d)`, n)); !errors.Is(err, sqlbridge.ErrTxEnded) {
						t.Errorf("a statement was not refused: %v", err)
					}
					_, _ = tx.QueryContext(ctx, `SELECT 1`) //nolint:sqlclosecheck,rowserrcheck // there are none
					_ = tx.QueryRowContext(ctx, `SELECT 1`)
					_, _ = tx.PrepareContext(ctx, `SELECT 1`) //nolint:sqlclosecheck // there is none
					_ = tx.Raw()
				}
			}(kept)
		}
		kept = tx
		_, err := tx.ExecContext(ctx, fmt.Sprintf(`UPDATE noise SET x = %d WHERE id < 0`, i))
		return errors.Join(err, apply(ctx, tx, rec))
	}, sqlbridge.RunOptions{BatchRecords: 4})
	close(stop)
	require.NoError(t, err)
	require.NotZero(t, <-done)
	require.NoError(t, e.exactly(l.all(0), 300))
	require.Zero(t, e.noise())
}
