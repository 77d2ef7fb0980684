package sqlsuite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"

	"github.com/evlog-go/evlog/cursor"
	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/sqlrule"
	"github.com/evlog-go/evlog/sqlbridge"
)

// Rules about where a cursor stands.
var cursorRules = []rule{
	{name: "compare_and_set", off: sqlrule.CompareAndSet, shows: "the error is <nil>", busyMS: 5000, check: ruleCompareAndSet},
	{name: "two_consumers", off: sqlrule.CompareAndSet, shows: "<nil>, <nil>", busyMS: 5000, check: ruleTwoConsumers},
	{name: "same_batch_twice", off: sqlrule.CompareAndSet, shows: "the error is <nil>", check: ruleSameBatch},
	{name: "log_id", off: sqlrule.LogID, shows: "the error is <nil>", check: ruleLogID},
	{name: "log_id_in_advance", off: sqlrule.LogID, shows: "the error is <nil>", check: ruleLogIDAdvance},
	{name: "ahead", off: sqlrule.Ahead, shows: "beyond the end", check: ruleAhead},
	{name: "behind", off: sqlrule.Behind, shows: "below the first one left", check: ruleBehind},
	{name: "holes", off: sqlrule.Holes, shows: "the error is <nil>", check: ruleHoles},
	{name: "empty_batch", off: sqlrule.Empty, shows: "index out of range", check: ruleEmpty},
	{name: "huge_batch", off: sqlrule.BatchLimit, shows: "records in one transaction", check: ruleHuge},
	{name: "offsets_fit", off: sqlrule.Int64, shows: "CHECK constraint failed", check: ruleInt64},
	{name: "advance_in_tx", off: sqlrule.InTx, shows: "*sql.DB outside a transaction: the error is <nil>", check: ruleInTx},
	{name: "advance_in_pool", off: sqlrule.InTx, shows: "a pool was taken for a transaction", check: ruleInTxPool},
	{name: "advance_in_dead_tx", off: sqlrule.InTx, shows: "the error is <nil>", check: ruleInDeadTx},
}

// ownTx does what an application does without Process: effects and cursor in a
// transaction of its own.
func (e *env) ownTx(recs []evlog.Record, from, to uint64) error {
	tx, err := e.db.BeginTx(e.ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	for _, r := range recs {
		if _, err := tx.ExecContext(e.ctx, applySQL, int64(r.Offset), r.Key, r.Value); err != nil {
			return err
		}
	}
	if err := e.b.Advance(e.ctx, tx, consumer, "A", from, to); err != nil {
		return err
	}
	return tx.Commit()
}

// Two instances of one application have read the same cursor.
func ruleCompareAndSet(e *env) error {
	l := logOf("A", 0, 10)
	return first(
		e.ownTx(l.all(0), 0, 10),
		asError[*cursor.MovedError](e.ownTx(l.all(0), 0, 10)),
		e.exactly(l.all(0), 10),
	)
}

// The second consumer begins while the first one applies a batch.
func ruleTwoConsumers(e *env) error {
	l := logOf("A", 0, 20)
	var twin *fakeLog
	var twinErr error
	var wg sync.WaitGroup
	err := e.runToEnd(l, func(ctx context.Context, tx *sqlbridge.Tx, rec evlog.Record) error {
		if rec.Offset == 7 && twin == nil {
			started := make(chan struct{})
			twin = logOf("A", 0, 20)
			twin.onBounds = sync.OnceFunc(func() { close(started) })
			wg.Go(func() { twinErr = e.runToEnd(twin, apply, sqlbridge.RunOptions{BatchRecords: 5}) })
			<-started // it has read the cursor, and waits for the lock next
		}
		return apply(ctx, tx, rec)
	}, sqlbridge.RunOptions{BatchRecords: 5})
	wg.Wait()
	moved := errors.Is(err, cursor.ErrMoved) != errors.Is(twinErr, cursor.ErrMoved)
	if !moved {
		return wrongf("one of them had to give way: %v, %v", err, twinErr)
	}
	return first(e.runToEnd(l, apply, sqlbridge.RunOptions{}), e.exactly(l.all(0), 20))
}

func ruleSameBatch(e *env) error {
	l := logOf("A", 0, 10)
	return first(
		e.process(l, l.all(0), apply, nil),
		asError[*cursor.MovedError](e.process(l, l.all(0), apply, nil)),
		e.exactly(l.all(0), 10),
	)
}

func ruleLogID(e *env) error {
	l, other := logOf("A", 0, 10), logOf("B", 0, 20)
	return first(
		e.process(l, l.all(0), apply, nil),
		asError[*cursor.LogError](e.process(other, other.all(10), apply, nil)),
		asError[*cursor.LogError](e.runToEnd(other, apply, sqlbridge.RunOptions{})),
		e.exactly(l.all(0), 10),
	)
}

func ruleLogIDAdvance(e *env) error {
	return first(
		e.advance("A", 0, 10),
		asError[*cursor.LogError](e.advance("B", 10, 20)),
		is(e.advance("", 10, 20), cursor.ErrNoLogID),
	)
}

func (e *env) advance(logID string, from, to uint64) error {
	tx, err := e.db.BeginTx(e.ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := e.b.Advance(e.ctx, tx, consumer, logID, from, to); err != nil {
		return err
	}
	return tx.Commit()
}

// The log was restored from an older copy.
func ruleAhead(e *env) error {
	l, older := logOf("A", 0, 10), logOf("A", 0, 4)
	if err := e.process(l, l.all(0), apply, nil); err != nil {
		return err
	}
	err := e.runToEnd(older, apply, sqlbridge.RunOptions{})
	return first(asError[*cursor.RangeError](err), is(err, cursor.ErrAhead), e.exactly(l.all(0), 10))
}

// Retention has passed the consumer.
func ruleBehind(e *env) error {
	l := logOf("A", 0, 10)
	if err := e.process(l, l.all(0)[:4], apply, nil); err != nil {
		return err
	}
	before := l.all(0)[:4]
	l.drop(7)
	for _, err := range []error{
		e.runToEnd(l, apply, sqlbridge.RunOptions{}),
		e.process(l, l.all(7), apply, nil),
	} {
		if err := first(asError[*cursor.RangeError](err), is(err, cursor.ErrBehind)); err != nil {
			return err
		}
	}
	return e.exactly(before, 4)
}

// Holes of the log are none of the batch, and the other way round.
func ruleHoles(e *env) error {
	l := logOf("A", 3, 2) // 3, 4
	l.skip(5)
	l.add(3) // 10, 11, 12
	l.skip(2)
	l.add(1) // 15
	all := l.all(3)
	if err := e.process(l, all[:2], apply, nil); err != nil {
		return err
	}
	for _, bad := range [][]evlog.Record{
		all[3:],                 // begins too late
		{all[2], all[4]},        // leaves one out
		{all[2], {Offset: 100}}, // is not in the log
	} {
		if err := is(e.process(l, bad, apply, nil), sqlbridge.ErrGap); err != nil {
			return err
		}
	}
	return first(
		is(e.process(l, []evlog.Record{all[3], all[2]}, apply, nil), sqlbridge.ErrOrder),
		e.exactly(all[:2], 5),
		e.process(l, all[2:4], apply, nil),
		e.exactly(all[:4], 12),
		e.runToEnd(l, apply, sqlbridge.RunOptions{}),
		e.exactly(all, 16),
	)
}

func ruleEmpty(e *env) error {
	l := logOf("A", 0, 0)
	return first(
		e.process(l, nil, apply, nil),
		e.process(l, []evlog.Record{}, apply, nil),
		e.runToEnd(l, apply, sqlbridge.RunOptions{}),
		e.exactly(nil, 0),
	)
}

// Process takes what it is given as one transaction; Run stays below its bounds,
// whatever has piled up.
func ruleHuge(e *env) error {
	const n = 5000
	l := logOf("A", 0, n)
	all := l.all(0)
	sizes := map[*sqlbridge.Tx]int{}
	count := func(ctx context.Context, tx *sqlbridge.Tx, rec evlog.Record) error {
		sizes[tx]++
		return apply(ctx, tx, rec)
	}
	if err := e.process(l, all[:n/2], count, nil); err != nil {
		return err
	}
	if len(sizes) != 1 {
		return fmt.Errorf("%d transactions for one batch", len(sizes))
	}
	for _, o := range []sqlbridge.RunOptions{{BatchRecords: 30}, {BatchBytes: 300}} { // which are less than 30 records, too
		clear(sizes)
		if err := e.runToEnd(l, count, o); err != nil {
			return err
		}
		for _, size := range sizes {
			if size > 30 {
				return fmt.Errorf("%d records in one transaction", size)
			}
		}
		l.add(n)
		all = l.all(0)
	}
	return e.exactly(all[:2*n], 2*n)
}

// SQLite has 63 bits for an offset.
func ruleInt64(e *env) error {
	const limit = 1<<63 - 1
	l := logOf("A", limit-2, 1)
	beyond := logOf("A", limit, 1)
	return first(
		e.advance("A", 0, limit-2),
		is(e.advance("A", limit-2, limit+1), evlog.ErrTooLarge),
		is(e.process(beyond, beyond.all(limit), apply, nil), evlog.ErrTooLarge),
		e.process(l, l.all(limit-2), apply, nil),
		e.exactly(l.all(limit-2), limit-1),
	)
}

// opaque is a wrapper that shows nothing but the methods of DBTX.
type opaque struct{ sqlbridge.DBTX }

// wrapped is a wrapper as sqlx and bun have it.
type wrapped struct{ *sql.Tx }

func ruleInTx(e *env) error {
	conn, err := e.db.Conn(e.ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	to := uint64(0)
	advance := func(q sqlbridge.DBTX) error {
		err := e.b.Advance(e.ctx, q, consumer, "A", to, to+1)
		if err == nil {
			to++
		}
		return err
	}
	for _, q := range []sqlbridge.DBTX{e.db, struct{ *sql.DB }{e.db}, opaque{e.db}, conn, opaque{conn}} {
		if err := is(advance(q), sqlbridge.ErrNotInTx); err != nil {
			return fmt.Errorf("%T outside a transaction: %w", q, err)
		}
	}
	if _, err := conn.ExecContext(e.ctx, `BEGIN`); err != nil {
		return fmt.Errorf("a transaction was left open: %w", err)
	}
	if err := first(advance(conn), advance(opaque{conn})); err != nil {
		return err
	}
	if _, err := conn.ExecContext(e.ctx, `COMMIT`); err != nil {
		return err
	}
	tx, err := conn.BeginTx(e.ctx, nil)
	if err != nil {
		return err
	}
	if err := first(advance(tx), advance(wrapped{tx}), advance(opaque{tx}), tx.Commit()); err != nil {
		return err
	}
	return first(is(advance(tx), sqlbridge.ErrNotInTx), e.exactly(nil, 5))
}

// A pool that cannot be told for one: each statement may go to another
// connection, and what one of them leaves behind is found by somebody else.
func ruleInTxPool(e *env) error {
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 { // others use the pool too
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					var n int
					_ = e.db.QueryRowContext(e.ctx, `SELECT count(*) FROM effect`).Scan(&n)
				}
			}
		})
	}
	var err error
	for range 300 {
		if err = e.b.Advance(e.ctx, opaque{e.db}, consumer, "A", 0, 1); !errors.Is(err, sqlbridge.ErrNotInTx) {
			err = wrongf("a pool was taken for a transaction: %v", err)
			break
		}
		err = nil
	}
	close(stop)
	wg.Wait()
	return first(err, e.cleanPool(), e.exactly(nil, 0))
}

// SQLite has rolled back, and the *sql.Tx does not know.
func ruleInDeadTx(e *env) error {
	l := logOf("A", 0, 3)
	tx, err := e.db.BeginTx(e.ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	r := l.all(0)[0]
	if _, err := tx.ExecContext(e.ctx, applySQL, int64(r.Offset), r.Key, r.Value); err != nil {
		return err
	}
	rollBackBySQLite(e.ctx, tx)
	return first(
		is(e.b.Advance(e.ctx, tx, consumer, "A", 0, 1), sqlbridge.ErrNotInTx),
		is(e.b.Advance(e.ctx, opaque{tx}, consumer, "A", 0, 1), sqlbridge.ErrNotInTx),
		e.exactly(nil, 0),
	)
}

// rollBackBySQLite ends a transaction without anybody saying ROLLBACK.
func rollBackBySQLite(ctx context.Context, q sqlbridge.DBTX) {
	_, _ = q.ExecContext(ctx, `INSERT OR ROLLBACK INTO noise (id, x) VALUES (1, 1), (1, 2)`)
}
