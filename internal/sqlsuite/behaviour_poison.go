package sqlsuite

import (
	"context"
	"errors"
	"fmt"
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
	require.NoError(t, e.skips(0))
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

// A lock that a handler meets elsewhere is waited for like one of the bridge's.
func testHandlerBusy(t *testing.T, e *env) {
	l := logOf("A", 0, 5)
	busy := 5
	err := e.process(l, l.all(0), func(ctx context.Context, tx *sqlbridge.Tx, rec evlog.Record) error {
		if rec.Offset == 3 && busy > 0 {
			busy--
			return errors.New("the other database: database is locked")
		}
		return apply(ctx, tx, rec)
	}, nil)
	require.NoError(t, err)
	require.NoError(t, e.exactly(l.all(0), 5))
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
func testHandlerStops(t *testing.T, e *env) {
	l := logOf("A", 0, 5)
	ctx, cancel := context.WithCancel(e.ctx)
	err := e.b.Process(ctx, l, consumer, l.all(0), func(inner context.Context, tx *sqlbridge.Tx, rec evlog.Record) error {
		if rec.Offset == 2 {
			cancel()
			return fmt.Errorf("waiting for the gateway: %w", ctx.Err())
		}
		return apply(inner, tx, rec)
	}, &sqlbridge.RunOptions{Poison: sqlbridge.Skip})
	require.Equal(t, context.Canceled, err)
	require.NoError(t, e.skips(0))
	require.NoError(t, e.exactly(nil, 0))
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
