package sqlsuite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/sqlrule"
	"github.com/evlog-go/evlog/sqlbridge"
)

// Rules about what handlers can do to their transaction.
var guardRules = []rule{
	{name: "cancelled_statement", off: sqlrule.Guard, shows: "took effect 0 times", check: ruleCancelledStatement},
	{name: "or_rollback", off: sqlrule.Guard, shows: "took effect 0 times", check: ruleOrRollback},
	{name: "or_rollback_unseen", off: sqlrule.Guard, shows: "took effect 0 times", check: ruleOrRollbackUnseen},
	{name: "or_rollback_while_rows_are_open", off: sqlrule.Guard, shows: "took effect 0 times", check: ruleOrRollbackInRows},
	{name: "or_rollback_in_forgotten_row", off: sqlrule.Guard, shows: "took effect 0 times", check: ruleOrRollbackForgotten},
	{name: "or_rollback_in_one_of_many_rows", off: sqlrule.Guard, shows: "no transaction is active", check: func(e *env) error { return ruleOrRollbackKept(e, 100) }},
	{name: "handler_rolls_back_hidden", off: sqlrule.Guard, shows: "took effect 0 times", check: ruleHandlerRollsBackHidden},
	{name: "handler_rolls_back_raw", off: sqlrule.Guard, shows: "4 records took effect, not 3", check: ruleHandlerRollsBackRaw},
	{name: "handler_begins_again", off: sqlrule.Guard, shows: "6 records took effect, not 0", check: ruleHandlerBeginsAgain},
	{name: "handler_commits_hidden", off: sqlrule.Claim, shows: "the cursor stands at 10", check: ruleHandlerCommitsHidden},
	{name: "handler_commits_behind", off: sqlrule.Claim, shows: "the cursor stands at 10", check: ruleHandlerCommitsBehind},
	{name: "handler_commits_in_query", off: sqlrule.Claim, shows: "the cursor stands at 10", check: ruleHandlerCommitsInQuery},
	{name: "handler_commits_prepared", off: sqlrule.Claim, shows: "the cursor stands at 10", check: ruleHandlerCommitsPrepared},
	{name: "handler_commits_raw", off: sqlrule.Claim, shows: "the cursor stands at 10", check: ruleHandlerCommitsRaw},
	{name: "handler_commits_and_begins", off: sqlrule.Claim, shows: "the error is <nil>", check: ruleHandlerCommitsAndBegins},
	{name: "panic", off: sqlrule.CleanUp, shows: "database is locked", check: rulePanic},
	{name: "goexit", off: sqlrule.CleanUp, shows: "database is locked", check: ruleGoexit},
	{name: "handler_error", off: sqlrule.CleanUp, shows: "database is locked", check: ruleHandlerError},
}

// endless is a write that somebody has to interrupt.
const endless = `INSERT INTO noise (x) WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c)
	SELECT i FROM c WHERE i < 0`

// dies is diesUnseen where the transaction has ended when end returns: the next
// statement is refused.
func (e *env) dies(end func(ctx context.Context, tx *sqlbridge.Tx)) error {
	var after error
	return first(e.diesUnseen(func(ctx context.Context, tx *sqlbridge.Tx) {
		end(ctx, tx)
		_, after = tx.ExecContext(ctx, `INSERT INTO noise (x) VALUES (3)`)
	}), is(after, sqlbridge.ErrTxEnded))
}

// diesUnseen runs a batch of ten, in which the transaction ends under record 3, and
// the handler makes nothing of it. Nothing must be left of it all.
func (e *env) diesUnseen(end func(ctx context.Context, tx *sqlbridge.Tx)) error {
	l := logOf("A", 0, 10)
	calls := 0
	err := e.process(l, l.all(0), func(ctx context.Context, tx *sqlbridge.Tx, rec evlog.Record) error {
		calls++
		if err := apply(ctx, tx, rec); err != nil {
			return err
		}
		if rec.Offset == 3 && calls == 4 {
			end(ctx, tx)
		}
		return nil
	}, nil)
	// The records before it are applied on their own, and it is reported.
	if err := first(e.exactly(l.all(0)[:3], 3), is(err, sqlbridge.ErrTxEnded)); err != nil {
		return err
	}
	var n int
	if err := e.db.QueryRow(`SELECT count(*) FROM noise`).Scan(&n); err != nil || n != 0 {
		return fmt.Errorf("%d rows from a transaction that had ended: %w", n, err)
	}
	return first(e.process(l, l.all(3), apply, nil), e.exactly(l.all(0), 10))
}

func ruleCancelledStatement(e *env) error {
	return e.dies(func(ctx context.Context, tx *sqlbridge.Tx) {
		for d := 5 * time.Millisecond; ; d *= 2 { // it may be over before the statement runs
			short, cancel := context.WithTimeout(ctx, d)
			_, _ = tx.ExecContext(short, endless)
			cancel()
			var n int
			if d > 200*time.Millisecond || tx.QueryRowContext(ctx, `SELECT 1`).Scan(&n) != nil {
				return
			}
		}
	})
}

func ruleOrRollback(e *env) error {
	return e.dies(func(ctx context.Context, tx *sqlbridge.Tx) { rollBackBySQLite(ctx, tx) })
}

// The error comes to a Row, where nobody but the handler sees it.
func ruleOrRollbackUnseen(e *env) error {
	return e.dies(func(ctx context.Context, tx *sqlbridge.Tx) {
		var id int
		_ = tx.QueryRowContext(ctx, orRollbackReturning).Scan(&id)
	})
}

const orRollbackReturning = `INSERT OR ROLLBACK INTO noise (id, x) VALUES (1, 1), (1, 2) RETURNING id`

// Some drivers run the statement of a query as its rows are read: after a
// statement that came later, and found everything in order.
func ruleOrRollbackInRows(e *env) error {
	return e.dies(func(ctx context.Context, tx *sqlbridge.Tx) {
		rows, err := tx.QueryContext(ctx, orRollbackReturning)
		_, _ = tx.ExecContext(ctx, `DELETE FROM noise`)
		if err == nil {
			drain(rows)
		}
	})
}

// Nobody ever looks at the row, nor closes the rows of another query.
func ruleOrRollbackForgotten(e *env) error {
	return e.diesUnseen(func(ctx context.Context, tx *sqlbridge.Tx) {
		_, _ = tx.QueryContext(ctx, `SELECT 1 UNION ALL SELECT 2`) //nolint:sqlclosecheck // on purpose
		_ = tx.QueryRowContext(ctx, orRollbackReturning)
	})
}

// A handler keeps rows that it must not keep, and reads them in a later record:
// either they are closed, or what they do is noticed, also where there are more
// than are kept in mind.
func ruleOrRollbackKept(e *env, others int) error {
	l := logOf("A", 0, 10)
	var kept *sql.Rows
	calls := 0
	err := e.process(l, l.all(0), func(ctx context.Context, tx *sqlbridge.Tx, rec evlog.Record) error {
		calls++
		switch {
		case rec.Offset == 3 && calls == 4:
			kept, _ = tx.QueryContext(ctx, orRollbackReturning)
			for range others {
				var one int
				_ = tx.QueryRowContext(ctx, `SELECT 1`).Scan(&one)
			}
		case rec.Offset == 5 && calls == 6 && kept != nil:
			drain(kept)
		}
		return apply(ctx, tx, rec)
	}, nil)
	if err != nil && !errors.Is(err, sqlbridge.ErrTxEnded) {
		return err
	}
	n := e.cursor()
	return first(e.exactly(l.all(0)[:n], n), e.process(l, l.all(n), apply, nil), e.exactly(l.all(0), 10))
}

func drain(rows *sql.Rows) {
	for rows.Next() {
	}
	_ = rows.Close()
}

// The text does not begin with the word.
func ruleHandlerRollsBackHidden(e *env) error {
	return e.dies(func(ctx context.Context, tx *sqlbridge.Tx) { _, _ = tx.ExecContext(ctx, `/* by hand */ ROLLBACK`) })
}

func ruleHandlerRollsBackRaw(e *env) error {
	return e.dies(func(_ context.Context, tx *sqlbridge.Tx) { _ = tx.Raw().Rollback() })
}

// A new transaction looks like the old one, but holds no savepoint.
func ruleHandlerBeginsAgain(e *env) error {
	l := logOf("A", 0, 10)
	err := e.process(l, l.all(0), func(ctx context.Context, tx *sqlbridge.Tx, rec evlog.Record) error {
		if rec.Offset == 3 {
			raw := tx.Raw()
			_, err1 := raw.ExecContext(ctx, `ROLLBACK`)
			_, err2 := raw.ExecContext(ctx, `BEGIN`)
			return errors.Join(err1, err2)
		}
		return apply(ctx, tx, rec)
	}, nil)
	return first(
		e.exactly(nil, 0),
		is(err, sqlbridge.ErrTxEnded),
		e.process(l, l.all(0), apply, nil),
		e.exactly(l.all(0), 10),
	)
}

// commits runs a batch in which the handler commits in record 3. What is applied
// cannot be told from the cursor any more; so nobody may go on as if it could.
// under is the record under which it is noticed, 10 if that is not known.
func (e *env) commits(under uint64, commit func(ctx context.Context, tx *sqlbridge.Tx) error) error {
	l := logOf("A", 0, 10)
	calls := 0
	h := func(ctx context.Context, tx *sqlbridge.Tx, rec evlog.Record) error {
		calls++
		if err := apply(ctx, tx, rec); err != nil || rec.Offset != 3 {
			return err
		}
		return commit(ctx, tx)
	}
	err := e.process(l, l.all(0), h, nil)
	var half *sqlbridge.CommittedError
	if !errors.As(err, &half) || half.From != 0 || half.To != 10 || half.Under != under {
		return wrongf("the error is %v, and the cursor stands at %d", err, e.cursor())
	}
	before := calls
	for _, err := range []error{
		e.process(l, l.all(0), h, nil),
		e.runToEnd(l, h, sqlbridge.RunOptions{Attempts: 3, Poison: sqlbridge.Skip}),
		e.advance("A", 0, 10),
		e.b.Skip(e.ctx, consumer, 0, "test"),
	} {
		if err := is(err, sqlbridge.ErrCommitted); err != nil {
			return err
		}
	}
	if calls != before {
		return errors.New("the handler was called again")
	}
	// Whoever knows what the handler did says where to go on.
	return first(
		e.b.Reset(e.ctx, consumer, "A", 4, "its handler committed"),
		e.runToEnd(l, apply, sqlbridge.RunOptions{}),
		e.exactly(l.all(0), 10),
	)
}

const hiddenCommit = `/* by hand */ COMMIT`

// The text does not begin with the word.
func ruleHandlerCommitsHidden(e *env) error {
	return e.commits(3, func(ctx context.Context, tx *sqlbridge.Tx) error {
		_, err := tx.ExecContext(ctx, hiddenCommit)
		return err
	})
}

// The text begins like a harmless one.
func ruleHandlerCommitsBehind(e *env) error {
	return e.commits(3, func(ctx context.Context, tx *sqlbridge.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO noise (x) VALUES (1); COMMIT`)
		return err
	})
}

func ruleHandlerCommitsInQuery(e *env) error {
	return e.commits(3, func(ctx context.Context, tx *sqlbridge.Tx) error {
		rows, err := tx.QueryContext(ctx, hiddenCommit)
		if err != nil {
			return err
		}
		for rows.Next() {
			return errors.New("COMMIT has a row")
		}
		return errors.Join(rows.Err(), rows.Close())
	})
}

func ruleHandlerCommitsPrepared(e *env) error {
	return e.commits(3, func(ctx context.Context, tx *sqlbridge.Tx) error {
		st, err := tx.PrepareContext(ctx, hiddenCommit)
		if err != nil {
			return err
		}
		_, err = st.ExecContext(ctx)
		return err
	})
}

func ruleHandlerCommitsRaw(e *env) error {
	return e.commits(3, func(_ context.Context, tx *sqlbridge.Tx) error { return tx.Raw().Commit() })
}

func ruleHandlerCommitsAndBegins(e *env) error {
	return e.commits(10, func(ctx context.Context, tx *sqlbridge.Tx) error {
		raw := tx.Raw()
		_, err1 := raw.ExecContext(ctx, `COMMIT`)
		_, err2 := raw.ExecContext(ctx, `BEGIN`)
		return errors.Join(err1, err2)
	})
}

// failing runs a batch whose handler leaves in record 3 in its own way.
func (e *env) failing(leave func() error, check func(err error, left bool) error) error {
	l := logOf("A", 0, 10)
	err, left := e.leaves(func() error {
		return e.process(l, l.all(0), func(ctx context.Context, tx *sqlbridge.Tx, rec evlog.Record) error {
			if err := apply(ctx, tx, rec); err != nil || rec.Offset != 3 {
				return err
			}
			return leave()
		}, nil)
	})
	if err := first(check(err, left), e.cleanPool()); err != nil {
		return err
	}
	n := e.cursor()
	return first(
		e.exactly(l.all(0)[:n], n),
		e.process(l, l.all(n), apply, nil),
		e.exactly(l.all(0), 10),
	)
}

// leaves calls f on a goroutine of its own and reports whether it did not
// return.
func (e *env) leaves(f func() error) (err error, left bool) {
	left = true
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("panic: %v", p)
			}
		}()
		err = f()
		left = false
	}()
	<-done
	return err, left
}

func rulePanic(e *env) error {
	return e.failing(func() error { panic("handler") }, func(err error, left bool) error {
		if !left || err == nil || err.Error() != "panic: handler" {
			return fmt.Errorf("the panic did not come through: %w", err)
		}
		return nil
	})
}

func ruleGoexit(e *env) error {
	return e.failing(func() error { runtime.Goexit(); return nil }, func(err error, left bool) error {
		if !left || err != nil {
			return fmt.Errorf("the goroutine did not end: %w", err)
		}
		return nil
	})
}

func ruleHandlerError(e *env) error {
	failed := errors.New("handler failed")
	return e.failing(func() error { return failed }, func(err error, _ bool) error { return is(err, failed) })
}
