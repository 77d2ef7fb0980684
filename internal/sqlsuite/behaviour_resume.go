package sqlsuite

import (
	"context"
	"database/sql"
	"errors"
	"iter"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/cursor"
	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/sqlbridge"
)

// A write by another connection, in a handler, cannot succeed. The error says
// what is known of it.
func testHandlerBusyElsewhere(t *testing.T, e *env) {
	other := e.open(0)
	l := logOf("A", 0, 5)
	err := e.process(l, l.all(0), func(ctx context.Context, tx *sqlbridge.Tx, rec evlog.Record) error {
		if rec.Offset == 3 {
			_, err := other.ExecContext(ctx, `INSERT INTO noise (x) VALUES (1)`)
			return err
		}
		return apply(ctx, tx, rec)
	}, nil)
	stopsAt(t, err, 3)
	require.ErrorContains(t, err, "not met by the handler's Tx")
	require.NoError(t, e.exactly(l.all(0)[:3], 3))
}

// Between the decision of a policy and its being stored, somebody else moves the
// cursor, or commits in a handler.
func testResetRaces(t *testing.T, e *env) {
	l := logOf("A", 0, 10)
	for _, c := range []struct {
		query string
		want  error
	}{
		{`UPDATE evlog_cursor SET next = 120`, cursor.ErrMoved},
		{`UPDATE evlog_cursor SET log_id = 'B'`, cursor.ErrWrongLog},
		{`UPDATE evlog_cursor SET claimed = 120`, sqlbridge.ErrCommitted},
	} {
		require.NoError(t, e.b.Reset(e.ctx, consumer, "A", 99, "ahead"))
		before, err := sqlbridge.Skips(e.ctx, e.db, consumer)
		require.NoError(t, err)
		err = e.runToEnd(l, apply, sqlbridge.RunOptions{Reset: cursor.Earliest, OnReset: func(cursor.Start) {
			_, err := e.db.Exec(c.query)
			require.NoError(t, err)
		}})
		require.ErrorIs(t, err, c.want)
		after, err := sqlbridge.Skips(e.ctx, e.db, consumer)
		require.NoError(t, err)
		require.Equal(t, before, after)
		got, err := e.effects()
		require.NoError(t, err)
		require.Empty(t, got)
	}
}

// movingLog has lost what was asked for by the time it is read.
type movingLog struct {
	*fakeLog
	times int
}

func (l *movingLog) Records(ctx context.Context, from uint64) iter.Seq2[evlog.Record, error] {
	if l.times > 0 {
		l.times--
		l.add(20)
		l.drop(l.end() - 10)
	}
	return l.fakeLog.Records(ctx, from)
}

// Retention is quicker than the consumer, many times in a row.
func testFastRetention(t *testing.T, e *env) {
	l := &movingLog{fakeLog: logOf("A", 0, 10), times: 7}
	resets := 0
	err := e.b.Run(e.ctx, l, consumer, apply, &sqlbridge.RunOptions{
		UntilEnd: true, Reset: cursor.Earliest, OnReset: func(cursor.Start) { resets++ },
	})
	require.NoError(t, err)
	require.Equal(t, 7, resets)
	require.NoError(t, e.exactly(l.all(140), 150))
}

// BusyFor is the whole time, wherever the lock is met.
func testBusyOnce(t *testing.T, e *env) {
	const busyFor = 400 * time.Millisecond
	b, err := sqlbridge.Open(e.ctx, e.db, &sqlbridge.Options{BusyFor: busyFor})
	require.NoError(t, err)
	l := logOf("A", 0, 5)
	require.NoError(t, e.process(l, l.all(0)[:1], apply, nil))
	_, err = e.db.Exec(`PRAGMA busy_timeout = 0`)
	require.NoError(t, err)
	e.db.SetMaxOpenConns(1)
	conn, err := e.open(0).Conn(e.ctx)
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_, err = conn.ExecContext(e.ctx, `BEGIN`)
	require.NoError(t, err)
	var n int
	require.NoError(t, conn.QueryRowContext(e.ctx, `SELECT count(*) FROM effect`).Scan(&n))
	if e.m.wal() { // where a reader is in nobody's way
		_, err = conn.ExecContext(e.ctx, `INSERT INTO noise (x) VALUES (1)`)
		require.NoError(t, err)
	}
	calls := 0
	began := time.Now()
	err = b.Process(e.ctx, l, consumer, l.all(1), func(ctx context.Context, tx *sqlbridge.Tx, rec evlog.Record) error {
		calls++
		return apply(ctx, tx, rec)
	}, nil)
	took := time.Since(began)
	require.True(t, sqlbridge.IsBusy(err), err)
	require.GreaterOrEqual(t, took, busyFor)
	require.LessOrEqual(t, calls, 4, "it was all done again after %v", took)
	_, err = conn.ExecContext(e.ctx, `ROLLBACK`)
	require.NoError(t, err)
	require.NoError(t, e.exactly(l.all(0)[:1], 1))
}

// Whoever drops a table finds it again, empty, and not a part of them.
func testDroppedTable(t *testing.T, e *env) {
	for _, table := range []string{"evlog_cursor", "evlog_skipped", "evlog_schema"} {
		require.NoError(t, e.b.Reset(e.ctx, consumer, "A", 3, "by hand"))
		_, err := e.db.Exec(`DROP TABLE ` + table)
		require.NoError(t, err)
		e.b, err = sqlbridge.Open(e.ctx, e.db, nil)
		require.NoError(t, err, table)
		p, err := e.b.Cursor(e.ctx, e.db, consumer)
		require.NoError(t, err)
		require.Equal(t, table == "evlog_cursor", p.Next == 0)
	}
}

// A table of the same name in another schema is not meant.
func testShadowedTable(t *testing.T, e *env) {
	e.db.SetMaxOpenConns(1)
	for _, table := range []string{"evlog_cursor", "evlog_skipped", "evlog_schema"} {
		_, err := e.db.Exec(`CREATE TEMP TABLE ` + table + ` AS SELECT * FROM main.` + table + ` LIMIT 0`)
		require.NoError(t, err)
	}
	b, err := sqlbridge.Open(e.ctx, e.db, nil)
	require.NoError(t, err)
	e.b = b
	l := logOf("A", 0, 10)
	require.NoError(t, e.process(l, l.all(0), poison(map[uint64]int{}, 3), &sqlbridge.RunOptions{Poison: sqlbridge.Skip}))
	require.NoError(t, e.exactly(without(l.all(0), 3), 10))
	for table, want := range map[string]int{
		"main.evlog_cursor": 1, "main.evlog_skipped": 1, "temp.evlog_cursor": 0, "temp.evlog_skipped": 0, "temp.evlog_schema": 0,
	} {
		var n int
		require.NoError(t, e.db.QueryRow(`SELECT count(*) FROM `+table).Scan(&n))
		require.Equal(t, want, n, table)
	}
	_, err = e.db.Exec(`DROP TABLE temp.evlog_cursor`)
	require.NoError(t, err)
}

// What is refused leaves no consumer behind.
func testNotRegistered(t *testing.T, e *env) {
	l := logOf("A", 0, 10)
	require.ErrorIs(t, e.process(l, l.all(3), apply, nil), sqlbridge.ErrGap)
	require.ErrorIs(t, e.process(l, l.all(0), nil, nil), evlog.ErrBadOptions)
	require.ErrorIs(t, e.b.Run(e.ctx, l, consumer, nil, nil), evlog.ErrBadOptions)
	all, err := sqlbridge.Positions(e.ctx, e.db)
	require.NoError(t, err)
	require.Empty(t, all)

	// Messages name the consumer once, and are one line.
	for _, err := range []error{
		e.b.Remove(e.ctx, "nobody"),
		e.b.Skip(e.ctx, "nobody", 0, "no"),
	} {
		require.ErrorIs(t, err, cursor.ErrUnknownConsumer)
		require.Regexp(t, `^sqlbridge: (remove|skip) for consumer "nobody": no such consumer$`, err.Error())
	}
	err = e.process(l, l.all(0), func(ctx context.Context, tx *sqlbridge.Tx, _ evlog.Record) error {
		_, err1 := tx.Raw().ExecContext(ctx, `COMMIT`)
		_, err2 := tx.Raw().ExecContext(ctx, `BEGIN IMMEDIATE`)
		if errors.Is(err2, sql.ErrTxDone) { // noticed in between
			err2 = nil
		}
		return errors.Join(err1, err2)
	}, nil)
	require.ErrorIs(t, err, sqlbridge.ErrCommitted)
	require.NotContains(t, err.Error(), "\n")
}
