package sqlsuite

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/internal/sqlrule"
	"github.com/evlog-go/evlog/sqlbridge"
)

// Rules about locks, connections and contexts.
var lockRules = []rule{
	{name: "busy", off: sqlrule.BusyRetry, shows: "database is locked", check: ruleBusy},
	{name: "busy_at_commit", off: sqlrule.CommitRetry, shows: "the work was done again", bites: inRollback, check: ruleBusyAtCommit},
	{name: "read_then_write", off: sqlrule.WriteFirst, shows: "the cursor stands at 0", bites: inWAL, check: ruleReadThenWrite},
	{name: "one_connection", off: sqlrule.OneConn, shows: "context deadline exceeded", busyMS: 1000, check: ruleOneConn},
	{name: "cancelled_contexts", off: sqlrule.NoCancel, shows: "took effect 0 times", busyMS: 1000, check: ruleCancelled},
}

// Another process holds the lock, and the connection has no busy timeout.
func ruleBusy(e *env) error {
	l := logOf("A", 0, 20)
	wait := e.lockFor(100 * time.Millisecond)
	err := e.process(l, l.all(0)[:10], apply, nil)
	wait()
	if err := first(err, e.exactly(l.all(0)[:10], 10)); err != nil {
		return err
	}
	wait = e.lockFor(100 * time.Millisecond)
	err = e.runToEnd(l, apply, sqlbridge.RunOptions{BatchRecords: 3})
	wait()
	return first(err, e.exactly(l.all(0), 20))
}

// A reader is in the way of the COMMIT, but not of anything before.
func ruleBusyAtCommit(e *env) error {
	l := logOf("A", 0, 10)
	if err := e.process(l, l.all(0)[:1], apply, nil); err != nil {
		return err
	}
	conn, err := e.open(0).Conn(e.ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	_, err = conn.ExecContext(e.ctx, `BEGIN`)
	var n int
	if err := errors.Join(err, conn.QueryRowContext(e.ctx, `SELECT count(*) FROM effect`).Scan(&n)); err != nil {
		return err
	}
	released := make(chan error, 1)
	time.AfterFunc(100*time.Millisecond, func() {
		_, err := conn.ExecContext(context.WithoutCancel(e.ctx), `COMMIT`)
		released <- err
	})
	calls := 0
	err = e.process(l, l.all(1), func(ctx context.Context, tx *sqlbridge.Tx, rec evlog.Record) error {
		calls++
		return apply(ctx, tx, rec)
	}, nil)
	if err := first(<-released, err, e.exactly(l.all(0), 10)); err != nil {
		return err
	}
	if calls != 9 {
		return fmt.Errorf("the work was done again: the handler was called %d times for 9 records", calls)
	}
	return nil
}

// A transaction that reads first and writes later fails for good if somebody
// wrote in between (SQLITE_BUSY_SNAPSHOT). So the first statement is a write.
func ruleReadThenWrite(e *env) error {
	l := logOf("A", 0, 5)
	if err := e.process(l, l.all(0)[:1], apply, nil); err != nil {
		return err
	}
	other := e.open(0)
	calls := 0
	var foreign error
	err := e.process(l, l.all(1), func(ctx context.Context, tx *sqlbridge.Tx, rec evlog.Record) error {
		calls++
		if calls == 1 {
			_, foreign = other.ExecContext(ctx, `INSERT INTO noise (x) VALUES (1)`)
		}
		return apply(ctx, tx, rec)
	}, nil)
	if err := first(err, e.exactly(l.all(0), 5)); err != nil {
		return err
	}
	if !sqlbridge.IsBusy(foreign) || calls != 4 {
		return wrongf("another one could write (%v), and the handler was called %d times", foreign, calls)
	}
	return nil
}

// A pool of one connection: whoever asks for another one while it holds that one
// waits for ever.
func ruleOneConn(e *env) error {
	e.db.SetMaxOpenConns(1)
	ctx, cancel := context.WithTimeout(e.ctx, 3*time.Second)
	defer cancel()
	limited := *e
	limited.ctx = ctx
	e = &limited
	l := logOf("A", 0, 30)
	calls := map[uint64]int{}
	_, err := e.b.Check(e.ctx)
	return first(
		err,
		e.process(l, l.all(0)[:10], apply, nil),
		e.runToEnd(l, poison(calls, 12, 17), sqlbridge.RunOptions{BatchRecords: 4, Poison: sqlbridge.Skip}),
		e.exactly(without(l.all(0), 12, 17), 30),
		e.b.Reset(e.ctx, consumer, "A", 12, "once more"),
		e.b.Skip(e.ctx, consumer, 12, "no"),
		e.b.Remove(e.ctx, consumer),
	)
}

// Contexts end before, in and after everything, a thousand times. Each time it
// was the context and nothing else, and at the end all is as it should be.
func ruleCancelled(e *env) error {
	l := logOf("A", 0, 300)
	all := l.all(0)
	if err := ruleCancelledInHandler(e, l, all); err != nil {
		return err
	}
	rng := evtest.Rand(newSeed(e.t))
	slow := func(ctx context.Context, tx *sqlbridge.Tx, rec evlog.Record) error {
		_, err := tx.ExecContext(ctx, `UPDATE noise SET x = (WITH RECURSIVE c(i) AS
			(SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 200) SELECT max(i) FROM c)`)
		return errors.Join(err, apply(ctx, tx, rec))
	}
	for range 1000 {
		ctx, cancel := context.WithTimeout(e.ctx, time.Duration(rng.IntN(400))*time.Microsecond)
		if rng.IntN(4) == 0 {
			cancel()
		}
		n := e.cursor()
		err := e.b.Process(ctx, l, consumer, all[n:min(n+3, uint64(len(all)))], slow, nil)
		cancel()
		if err != nil && !errors.Is(err, ctx.Err()) {
			return err
		}
		if err := e.exactly(all[:e.cursor()], e.cursor()); err != nil {
			return err
		}
	}
	n := e.cursor()
	return first(e.cleanPool(), e.process(l, all[n:], apply, nil), e.exactly(all, 300))
}

// The context ends while a record is handled, which is finished and committed.
func ruleCancelledInHandler(e *env, l *fakeLog, all []evlog.Record) error {
	ctx, cancel := context.WithCancel(e.ctx)
	defer cancel()
	err := e.b.Process(ctx, l, consumer, all[:9], func(ctx context.Context, tx *sqlbridge.Tx, rec evlog.Record) error {
		if rec.Offset == 1 {
			cancel()
		}
		return apply(ctx, tx, rec)
	}, nil)
	return first(is(err, context.Canceled), e.exactly(all[:2], 2))
}
