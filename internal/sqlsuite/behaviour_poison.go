package sqlsuite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/cursor"
	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/sqlbridge"
)

// A record that cannot be applied stops the consumer each time, until somebody
// says that it is to be left out.
func testStopAndSkip(t *testing.T, e *env) {
	l := logOf("A", 0, 6)
	l.skip(3)
	l.add(4) // 9 to 12
	calls := map[uint64]int{}
	for range 3 {
		err := e.runToEnd(l, poison(calls, 9), sqlbridge.RunOptions{})
		var handler *cursor.HandlerError
		require.True(t, errors.As(err, &handler), err)
		require.Equal(t, &cursor.HandlerError{Name: consumer, Offset: 9, Err: errPoison}, handler)
		require.NoError(t, e.exactly(l.all(0)[:6], 9))
	}
	require.Equal(t, 3, calls[9])
	require.ErrorIs(t, e.b.Skip(e.ctx, consumer, 8, "no"), cursor.ErrMoved)
	require.ErrorIs(t, e.b.Skip(e.ctx, "nobody", 8, "no"), cursor.ErrUnknownConsumer)
	require.NoError(t, e.b.Skip(e.ctx, consumer, 9, "the order was cancelled"))
	require.NoError(t, e.runToEnd(l, poison(calls, 9), sqlbridge.RunOptions{}))
	require.NoError(t, e.exactly(without(l.all(0), 9), 13))
	notes, err := sqlbridge.Skips(e.ctx, e.db, consumer)
	require.NoError(t, err)
	require.Len(t, notes, 1)
	require.Equal(t, "the order was cancelled", notes[0].Error)
	require.Equal(t, evlog.OffsetRange{From: 9, To: 10}, notes[0].Range)
}

// Pauses double, and no transaction is open meanwhile.
func testRetryBackoff(t *testing.T, e *env) {
	clock := e.withClock()
	l := logOf("A", 0, 5)
	calls := make(chan struct{}, 10)
	done := make(chan error, 1)
	go func() {
		done <- e.process(l, l.all(0), func(ctx context.Context, tx *sqlbridge.Tx, rec evlog.Record) error {
			if err := apply(ctx, tx, rec); err != nil || rec.Offset != 2 {
				return err
			}
			calls <- struct{}{}
			return errPoison
		}, &sqlbridge.RunOptions{Attempts: 4, RetryDelay: 10 * time.Second})
	}()
	<-calls
	for _, pause := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second} {
		clock.WaitTimers(1)
		require.NoError(t, e.cleanPool())
		clock.Advance(pause - 1)
		require.Empty(t, calls)
		clock.WaitTimers(1)
		clock.Advance(1)
		<-calls
	}
	err := <-done
	require.ErrorIs(t, err, errPoison)
	require.ErrorContains(t, err, "offset 2: 4 attempts: poison")
	require.NoError(t, e.exactly(l.all(0)[:2], 2))
}

// What fails now and then is applied once all the same.
func testRetrySucceeds(t *testing.T, e *env) {
	for i, policy := range []sqlbridge.Poison{sqlbridge.Stop, sqlbridge.Skip} {
		l := logOf("A", uint64(100*i), 60)
		calls := map[uint64]int{}
		err := e.b.Run(e.ctx, l, fmt.Sprint(policy), func(ctx context.Context, tx *sqlbridge.Tx, rec evlog.Record) error {
			calls[rec.Offset]++
			if err := apply(ctx, tx, rec); err != nil {
				return err
			}
			if rec.Offset%7 == 3 && calls[rec.Offset] < 3 {
				return errPoison
			}
			return nil
		}, &sqlbridge.RunOptions{
			UntilEnd: true, BatchRecords: 25, Attempts: 10, RetryDelay: time.Microsecond, Poison: policy,
		})
		require.NoError(t, err)
		for _, r := range l.all(uint64(100 * i)) {
			got, err := e.effects()
			require.NoError(t, err)
			require.Equal(t, 1, got[int64(r.Offset)], "record %d", r.Offset)
		}
	}
	notes, err := sqlbridge.Skips(e.ctx, e.db, "")
	require.NoError(t, err)
	require.Empty(t, notes)
}

// A record under which the transaction ends takes those before it along, also
// where each has a savepoint. They are applied again, and it is skipped.
func testSkipAfterRollback(t *testing.T, e *env) {
	l := logOf("A", 0, 10)
	err := e.process(l, l.all(0), func(ctx context.Context, tx *sqlbridge.Tx, rec evlog.Record) error {
		if err := apply(ctx, tx, rec); err != nil {
			return err
		}
		if rec.Offset == 0 || rec.Offset == 6 {
			rollBackBySQLite(ctx, tx)
			return errPoison
		}
		return nil
	}, &sqlbridge.RunOptions{Poison: sqlbridge.Skip, Attempts: 2, RetryDelay: time.Microsecond})
	require.NoError(t, err)
	require.NoError(t, e.exactly(without(l.all(0), 0, 6), 10))
	require.NoError(t, e.skips(2, 0, 6))
}

// Savepoints of records, of the guard and of the handler do not get into each
// other's way.
func testSkipWithRaw(t *testing.T, e *env) {
	l := logOf("A", 0, 12)
	err := e.process(l, l.all(0), func(ctx context.Context, tx *sqlbridge.Tx, rec evlog.Record) error {
		raw := tx.Raw()
		for _, query := range []string{`SAVEPOINT mine`, `INSERT INTO noise (x) VALUES (1)`, `RELEASE mine`} {
			if _, err := raw.ExecContext(ctx, query); err != nil {
				return err
			}
		}
		if err := apply(ctx, tx, rec); err != nil {
			return err
		}
		if rec.Offset%4 == 0 {
			return errPoison
		}
		return nil
	}, &sqlbridge.RunOptions{Poison: sqlbridge.Skip})
	require.NoError(t, err)
	require.NoError(t, e.exactly(without(l.all(0), 0, 4, 8), 12))
	require.NoError(t, e.skips(1, 0, 4, 8))
	require.Equal(t, 9, e.noise())
}

// attached opens a bridge on a pool of one connection, to which another database
// is attached, and a connection to that one alone.
func (e *env) attached(opts *sqlbridge.Options) *sql.Conn {
	e.t.Helper()
	path := filepath.ToSlash(filepath.Join(e.t.TempDir(), "other.db"))
	other, err := sql.Open(e.d.Name, e.m.dsn(path, 0))
	require.NoError(e.t, err)
	e.t.Cleanup(func() { _ = other.Close() })
	conn, err := other.Conn(e.ctx)
	require.NoError(e.t, err)
	_, err = conn.ExecContext(e.ctx, `CREATE TABLE elsewhere (id INTEGER PRIMARY KEY) STRICT`)
	require.NoError(e.t, err)

	e.db.SetMaxOpenConns(1)
	for _, query := range []string{`PRAGMA busy_timeout = 1`, `ATTACH '` + path + `' AS other`} {
		_, err = e.db.Exec(query)
		require.NoError(e.t, err)
	}
	e.b, err = sqlbridge.Open(e.ctx, e.db, opts)
	require.NoError(e.t, err)
	return conn
}

// locked has the connection hold the write lock until unlock is called.
func locked(t *testing.T, conn *sql.Conn) (unlock func()) {
	t.Helper()
	_, err := conn.ExecContext(t.Context(), `BEGIN IMMEDIATE`)
	require.NoError(t, err)
	return sync.OnceFunc(func() {
		_, err := conn.ExecContext(t.Context(), `ROLLBACK`)
		require.NoError(t, err)
	})
}

// elsewhere are the ways in which a handler can write to the attached database.
var elsewhere = map[string]func(ctx context.Context, tx *sqlbridge.Tx, rec evlog.Record) error{
	"exec": func(ctx context.Context, tx *sqlbridge.Tx, rec evlog.Record) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO elsewhere VALUES (?1)`, int64(rec.Offset))
		return err
	},
	"exec_in_own_words": func(ctx context.Context, tx *sqlbridge.Tx, rec evlog.Record) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO elsewhere VALUES (?1)`, int64(rec.Offset)); err != nil {
			return errors.New("it did not work")
		}
		return nil
	},
	"row": func(ctx context.Context, tx *sqlbridge.Tx, rec evlog.Record) error {
		var id int
		if tx.QueryRowContext(ctx, `INSERT INTO elsewhere VALUES (?1) RETURNING id`, int64(rec.Offset)).Scan(&id) != nil {
			return errors.New("it did not work")
		}
		return nil
	},
	"rows": func(ctx context.Context, tx *sqlbridge.Tx, rec evlog.Record) error {
		rows, err := tx.QueryContext(ctx, `INSERT INTO elsewhere VALUES (?1) RETURNING id`, int64(rec.Offset))
		if err != nil {
			return errors.New("it did not work")
		}
		defer func() { _ = rows.Close() }()
		if !rows.Next() {
			return errors.New("it did not work")
		}
		return nil
	},
	"raw": func(ctx context.Context, tx *sqlbridge.Tx, rec evlog.Record) error {
		_, err := tx.Raw().ExecContext(ctx, `INSERT INTO elsewhere VALUES (?1)`, int64(rec.Offset))
		return err
	},
}

// A lock that a handler's statement meets is waited for like one of the
// bridge's, whatever the handler makes of the error.
func testHandlerBusy(t *testing.T, e *env) {
	conn := e.attached(nil)
	l := logOf("A", 0, 5)
	for name, insert := range elsewhere {
		unlock := locked(t, conn)
		calls := 0
		err := e.process(l, l.all(0), func(ctx context.Context, tx *sqlbridge.Tx, rec evlog.Record) error {
			if rec.Offset == 3 {
				if calls++; calls == 4 {
					unlock()
				}
				if err := insert(ctx, tx, rec); err != nil {
					return err
				}
			}
			return apply(ctx, tx, rec)
		}, &sqlbridge.RunOptions{Poison: sqlbridge.Skip})
		require.NoError(t, err, name)
		require.Equal(t, 4, calls, name)
		require.NoError(t, e.exactly(l.all(0), 5), name)
		require.NoError(t, e.startOver())
		_, err = conn.ExecContext(e.ctx, `DELETE FROM elsewhere`)
		require.NoError(t, err)
	}
}

// When it has been waited for long enough, the record has failed.
func testHandlerBusyTooLong(t *testing.T, e *env) {
	conn := e.attached(&sqlbridge.Options{BusyFor: 20 * time.Millisecond})
	l := logOf("A", 0, 5)
	for name, insert := range elsewhere {
		unlock := locked(t, conn)
		h := func(ctx context.Context, tx *sqlbridge.Tx, rec evlog.Record) error {
			if rec.Offset == 3 {
				return insert(ctx, tx, rec)
			}
			return apply(ctx, tx, rec)
		}
		o := &sqlbridge.RunOptions{Attempts: 2, RetryDelay: time.Microsecond}
		var handler *cursor.HandlerError
		require.ErrorAs(t, e.process(l, l.all(0), h, o), &handler, name)
		require.EqualValues(t, 3, handler.Offset, name)
		require.NoError(t, e.exactly(l.all(0)[:3], 3), name)
		o.Poison = sqlbridge.Skip
		require.NoError(t, e.process(l, l.all(3), h, o), name)
		require.NoError(t, e.exactly(without(l.all(0), 3), 5), name)
		notes, err := sqlbridge.Skips(e.ctx, e.db, consumer)
		require.NoError(t, err)
		require.Len(t, notes, 1, name)
		require.Equal(t, 2, notes[0].Attempts, name)
		unlock()
		require.NoError(t, e.startOver())
	}
}

type ctxKey struct{}

func testHandlerContext(t *testing.T, e *env) {
	l := logOf("A", 0, 1)
	ctx := context.WithValue(e.ctx, ctxKey{}, "value")
	err := e.b.Process(ctx, l, consumer, l.all(0), func(ctx context.Context, tx *sqlbridge.Tx, rec evlog.Record) error {
		require.Equal(t, "value", ctx.Value(ctxKey{}))
		require.Nil(t, ctx.Done())
		return apply(ctx, tx, rec)
	}, nil)
	require.NoError(t, err)
}

// A handler that waits for something else may give up with the context's error.
// What was handled before is committed, as long as it can be told from what that
// handler has done.
func testHandlerStops(t *testing.T, e *env) {
	for _, c := range []struct {
		name   string
		policy sqlbridge.Poison
		first  func(ctx context.Context, tx *sqlbridge.Tx, rec evlog.Record) error // what it does before it waits
		next   uint64
	}{
		{name: "nothing", first: nil, next: 2},
		{name: "writes", first: apply, next: 0},
		{name: "reads", first: readsSome, next: 0},
		{name: "nothing_skip", policy: sqlbridge.Skip, first: nil, next: 2},
		{name: "writes_skip", policy: sqlbridge.Skip, first: apply, next: 2},
	} {
		l := logOf("A", 0, 5)
		ctx, cancel := context.WithCancel(e.ctx)
		err := e.b.Process(ctx, l, consumer, l.all(0), func(inner context.Context, tx *sqlbridge.Tx, rec evlog.Record) error {
			if rec.Offset != 2 {
				return apply(inner, tx, rec)
			}
			if c.first != nil {
				require.NoError(t, c.first(inner, tx, rec))
			}
			cancel()
			return fmt.Errorf("waiting for the gateway: %w", ctx.Err())
		}, &sqlbridge.RunOptions{Poison: c.policy})
		require.Equal(t, context.Canceled, err, c.name)
		require.NoError(t, e.skips(0), c.name)
		require.NoError(t, e.exactly(l.all(0)[:c.next], c.next), c.name)
		require.NoError(t, e.process(l, l.all(c.next), apply, nil), c.name)
		require.NoError(t, e.exactly(l.all(0), 5), c.name)
		require.NoError(t, e.startOver())
	}
}

func readsSome(ctx context.Context, tx *sqlbridge.Tx, _ evlog.Record) error {
	var n int
	return tx.QueryRowContext(ctx, `SELECT count(*) FROM effect`).Scan(&n)
}

// COMMIT can be refused for good: a deferred constraint is looked at there.
func testCommitRefused(t *testing.T, e *env) {
	l := logOf("A", 0, 5)
	for _, query := range []string{
		`CREATE TABLE parent (id INTEGER PRIMARY KEY) STRICT`,
		`CREATE TABLE child (id INTEGER REFERENCES parent DEFERRABLE INITIALLY DEFERRED) STRICT`,
	} {
		_, err := e.db.Exec(query)
		require.NoError(t, err)
	}
	e.db.SetMaxOpenConns(1)
	_, err := e.db.Exec(`PRAGMA foreign_keys = ON`)
	require.NoError(t, err)
	err = e.process(l, l.all(0), func(ctx context.Context, tx *sqlbridge.Tx, rec evlog.Record) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO child VALUES (?1)`, int64(rec.Offset))
		return errors.Join(err, apply(ctx, tx, rec))
	}, nil)
	require.ErrorContains(t, err, "commit for consumer")
	require.ErrorContains(t, err, "FOREIGN KEY")
	require.NoError(t, e.exactly(nil, 0))
	require.NoError(t, e.process(l, l.all(0), apply, nil))
	require.NoError(t, e.exactly(l.all(0), 5))
}
