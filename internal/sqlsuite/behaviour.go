package sqlsuite

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/cursor"
	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/evlog/evlogtest"
	"github.com/evlog-go/evlog/sqlbridge"
)

// behaviours are what users see; each gets a database of its own.
var behaviours = []struct {
	name string
	test func(t *testing.T, e *env)
}{
	{"new_consumer", testNewConsumer},
	{"follow", testFollow},
	{"evlog", testEvlog},
	{"batch_time", testBatchTime},
	{"batch_delay", testBatchDelay},
	{"batch_delay_of_the_rest", testBatchDelayRest},
	{"resets", testResets},
	{"overtaken", testOvertaken},
	{"stop_and_skip", testStopAndSkip},
	{"retry_backoff", testRetryBackoff},
	{"retry_succeeds", testRetrySucceeds},
	{"skip_after_rollback", testSkipAfterRollback},
	{"skip_with_raw", testSkipWithRaw},
	{"handler_busy", testHandlerBusy},
	{"handler_busy_too_long", testHandlerBusyTooLong},
	{"handler_busy_elsewhere", testHandlerBusyElsewhere},
	{"full_disk", testFullDisk},
	{"full_disk_unseen", testFullDiskUnseen},
	{"full_disk_or_read_only", testReadOnly},
	{"ends_unseen", testEndsUnseen},
	{"ends_unseen_in_rows", testEndsInRows},
	{"control", testControl},
	{"guard_savepoint", testGuardSavepoint},
	{"kept_tx", testKeptTx},
	{"reset_races", testResetRaces},
	{"fast_retention", testFastRetention},
	{"busy_once", testBusyOnce},
	{"dropped_table", testDroppedTable},
	{"shadowed_table", testShadowedTable},
	{"not_registered", testNotRegistered},
	{"handler_context", testHandlerContext},
	{"handler_stops_with_context", testHandlerStops},
	{"commit_refused", testCommitRefused},
	{"tx", testTx},
	{"tx_texts", testTxTexts},
	{"open_rows", testOpenRows},
	{"kept_rows", func(t *testing.T, e *env) { require.NoError(t, ruleOrRollbackKept(e, 0)) }},
	{"shared_cache", testSharedCache},
	{"is_busy", testIsBusy},
	{"positions", testPositions},
	{"bad_arguments", testBadArguments},
	{"open_at_once", testOpenAtOnce},
	{"open_newer", testOpenNewer},
}

func runBehaviour(t *testing.T, d Driver, m Mode) {
	for _, b := range behaviours {
		t.Run(b.name, func(t *testing.T) {
			e := newEnv(t, d, m, envOptions{busyMS: 1000})
			b.test(t, e)
			require.NoError(t, e.cleanPool())
		})
	}
}

// withClock opens a bridge whose time only the test moves.
func (e *env) withClock() *evlogtest.Clock {
	clock := evlogtest.NewClock(time.Date(2026, 9, 20, 3, 0, 0, 0, time.UTC))
	b, err := sqlbridge.Open(e.ctx, e.db, &sqlbridge.Options{Clock: clock})
	require.NoError(e.t, err)
	e.b = b
	return clock
}

func testNewConsumer(t *testing.T, e *env) {
	l := logOf("A", 5, 10)
	p, err := e.b.Cursor(e.ctx, e.db, consumer)
	require.NoError(t, err)
	require.Equal(t, sqlbridge.Position{Position: cursor.Position{Name: consumer}}, p)
	require.NoError(t, e.runToEnd(l, apply, sqlbridge.RunOptions{}))
	require.NoError(t, e.exactly(l.all(5), 15))

	// One that starts at the end keeps its place though nothing came yet.
	latest := &sqlbridge.RunOptions{New: cursor.Latest, UntilEnd: true}
	require.NoError(t, e.b.Run(e.ctx, l, "late", apply, latest))
	l.add(1)
	seen := 0
	require.NoError(t, e.b.Run(e.ctx, l, "late", func(context.Context, *sqlbridge.Tx, evlog.Record) error {
		seen++
		return nil
	}, latest))
	require.Equal(t, 1, seen)
}

func testFollow(t *testing.T, e *env) {
	l := logOf("A", 0, 3)
	ctx, cancel := context.WithCancel(e.ctx)
	done := make(chan error, 1)
	applied := make(chan uint64, 1000)
	go func() {
		done <- e.b.Run(ctx, l, consumer, func(ctx context.Context, tx *sqlbridge.Tx, rec evlog.Record) error {
			applied <- rec.Offset
			return apply(ctx, tx, rec)
		}, nil)
	}()
	for want := range uint64(200) {
		if want%3 == 0 {
			l.add(int(want % 5))
		}
		if _, next, _ := l.Bounds(ctx); want == next {
			l.add(2)
		}
		require.Equal(t, want, <-applied)
	}
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	require.NoError(t, e.cleanPool())
	require.NoError(t, e.runToEnd(l, apply, sqlbridge.RunOptions{}))
	require.NoError(t, e.exactly(l.all(0), l.end()))
}

// The log that all this is for, in the same process.
func testEvlog(t *testing.T, e *env) {
	l := evlogtest.OpenMem(t, nil)
	ctx, cancel := context.WithCancel(e.ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		done <- e.b.Run(ctx, l.Reader(), consumer, func(ctx context.Context, tx *sqlbridge.Tx, rec evlog.Record) error {
			if rec.Offset == 499 {
				cancel()
			}
			return apply(ctx, tx, rec)
		}, nil)
	}()
	var recs []evlog.Record
	for i := range 50 {
		batch := make([]evlog.Record, 10)
		for j := range batch {
			batch[j] = evlog.Record{Offset: uint64(10*i + j), Key: []byte("k"), Value: []byte{byte(i), byte(j)}}
		}
		_, err := l.Append(e.ctx, batch...)
		require.NoError(t, err)
		recs = append(recs, batch...)
	}
	require.ErrorIs(t, <-done, context.Canceled)
	require.NoError(t, e.exactly(recs, 500))
	require.NoError(t, e.b.Run(e.ctx, l.Reader(), consumer, apply, &sqlbridge.RunOptions{UntilEnd: true}))
	require.NoError(t, e.exactly(recs, 500))
}

// Slow handlers do not hold the lock for longer than BatchTime and one record.
func testBatchTime(t *testing.T, e *env) {
	clock := e.withClock()
	l := logOf("A", 0, 10)
	sizes := map[*sqlbridge.Tx]int{}
	slow := func(ctx context.Context, tx *sqlbridge.Tx, rec evlog.Record) error {
		sizes[tx]++
		clock.Advance(100 * time.Millisecond)
		return apply(ctx, tx, rec)
	}
	require.NoError(t, e.process(l, l.all(0)[:2], slow, nil))
	require.NoError(t, e.runToEnd(l, slow, sqlbridge.RunOptions{BatchTime: 250 * time.Millisecond}))
	for _, n := range sizes {
		require.LessOrEqual(t, n, 3)
	}
	require.NoError(t, e.exactly(l.all(0), 10))
	clear(sizes)
	require.NoError(t, e.b.Reset(e.ctx, consumer, "A", 0, "once more"))
	require.NoError(t, e.process(l, l.all(0), slow, nil))
	require.Len(t, sizes, 1, "Process takes its batch as a whole")
}

// An incomplete batch waits for BatchDelay, a full one does not.
func testBatchDelay(t *testing.T, e *env) {
	clock := e.withClock()
	l := logOf("A", 0, 1)
	ctx, cancel := context.WithCancel(e.ctx)
	done := make(chan error, 1)
	applied := make(chan uint64, 10)
	go func() {
		done <- e.b.Run(ctx, l, consumer, func(ctx context.Context, tx *sqlbridge.Tx, rec evlog.Record) error {
			applied <- rec.Offset
			return apply(ctx, tx, rec)
		}, &sqlbridge.RunOptions{BatchDelay: time.Minute, BatchRecords: 3})
	}()
	clock.WaitTimers(1)
	require.Empty(t, applied)
	clock.Advance(time.Minute)
	require.EqualValues(t, 0, <-applied)
	l.add(3) // full: nothing to wait for
	for want := range uint64(3) {
		require.Equal(t, want+1, <-applied)
	}
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
}

// What is left of several batches waits for more, too.
func testBatchDelayRest(t *testing.T, e *env) {
	clock := e.withClock()
	l := logOf("A", 0, 10)
	ctx, cancel := context.WithCancel(e.ctx)
	done := make(chan error, 1)
	applied := make(chan uint64, 20)
	go func() {
		done <- e.b.Run(ctx, l, consumer, func(ctx context.Context, tx *sqlbridge.Tx, rec evlog.Record) error {
			applied <- rec.Offset
			return apply(ctx, tx, rec)
		}, &sqlbridge.RunOptions{BatchDelay: time.Hour, BatchRecords: 7})
	}()
	for want := range uint64(7) {
		require.Equal(t, want, <-applied)
	}
	waiting := make(chan struct{})
	go func() {
		clock.WaitTimers(1)
		close(waiting)
	}()
	select {
	case o := <-applied:
		t.Errorf("record %d does not wait", o)
		clock.Timer(time.Hour) // ends the waiting
	case <-waiting:
		clock.Advance(time.Hour)
		for want := range uint64(3) {
			require.Equal(t, 7+want, <-applied)
		}
	}
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	<-waiting
}

func testResets(t *testing.T, e *env) {
	l := logOf("A", 0, 10)
	require.NoError(t, e.process(l, l.all(0)[:4], apply, nil))
	before := l.all(0)[:4]
	l.drop(7)
	var told []cursor.Start
	o := sqlbridge.RunOptions{Reset: cursor.Earliest, OnReset: func(s cursor.Start) { told = append(told, s) }}
	require.NoError(t, e.runToEnd(l, apply, o))
	require.NoError(t, e.exactly(append(before, l.all(7)...), 10))

	newer := logOf("B", 20, 5) // the directory was replaced
	o.Reset = cursor.Latest
	require.NoError(t, e.runToEnd(newer, apply, o))
	newer.add(1)
	require.NoError(t, e.runToEnd(newer, apply, o))

	older := logOf("B", 20, 3) // and then restored from an older copy
	o.Reset = cursor.Earliest
	require.NoError(t, e.process(older, older.all(20), apply, &o))

	require.Len(t, told, 3)
	require.ErrorIs(t, told[0].Reset, cursor.ErrBehind)
	require.Equal(t, evlog.OffsetRange{From: 4, To: 7}, told[0].Lost)
	require.ErrorIs(t, told[1].Reset, cursor.ErrWrongLog)
	require.Equal(t, evlog.OffsetRange{From: 20, To: 25}, told[1].Lost)
	require.ErrorIs(t, told[2].Reset, cursor.ErrAhead)
	notes, err := sqlbridge.Skips(e.ctx, e.db, "")
	require.NoError(t, err)
	require.Len(t, notes, 3)
	for i, n := range notes {
		require.Zero(t, n.Attempts)
		require.Equal(t, told[i].Reset.Error(), n.Error)
		if told[i].Lost != (evlog.OffsetRange{}) {
			require.Equal(t, told[i].Lost, n.Range)
		}
		require.Equal(t, []string{"A", "B", "B"}[i], n.LogID)
	}
}

// Retention passes a consumer that is running.
func testOvertaken(t *testing.T, e *env) {
	l := logOf("A", 0, 700) // more than are read ahead
	var told cursor.Start
	o := sqlbridge.RunOptions{BatchRecords: 2, Reset: cursor.Earliest, OnReset: func(s cursor.Start) { told = s }}
	all := l.all(0)
	drops := func(ctx context.Context, tx *sqlbridge.Tx, rec evlog.Record) error {
		if rec.Offset == 3 {
			l.drop(650)
		}
		return apply(ctx, tx, rec)
	}
	require.NoError(t, e.runToEnd(l, drops, o))
	require.ErrorIs(t, told.Reset, cursor.ErrBehind)
	require.EqualValues(t, 650, told.Lost.To)
	require.NoError(t, e.exactly(append(all[:told.Lost.From], all[650:]...), 700))

	failing := logOf("A", 700, 700)
	err := e.b.Run(e.ctx, failing, consumer, func(ctx context.Context, tx *sqlbridge.Tx, rec evlog.Record) error {
		failing.drop(1300)
		return apply(ctx, tx, rec)
	}, &sqlbridge.RunOptions{BatchRecords: 2})
	var behind *cursor.RangeError
	require.True(t, errors.As(err, &behind), err)
	require.EqualValues(t, 1300, behind.First)
}
