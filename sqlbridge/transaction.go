package sqlbridge

import (
	"context"
	"errors"
	"fmt"

	"github.com/evlog-go/evlog/cursor"
	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/sqlrule"
)

// transaction applies records and moves the cursor past them, in this order:
//
//	BEGIN
//	UPDATE evlog_cursor SET next = end WHERE next = from AND claimed IS NULL
//	the handler, for each record
//	COMMIT
//
// The cursor comes first because that takes the write lock before anything is
// read: a transaction that reads first can find that another one has written
// since, and no waiting helps against that (SQLITE_BUSY_SNAPSHOT). It also tells
// at once whether another consumer has moved the cursor. If the transaction ends
// under the handler, the cursor goes back with it; Tx sees to it that nothing
// more is written then.
//
// That is enough as long as the handler can only lose the transaction. Before
// it does something by which it could commit it, or lose it without Tx noticing,
// the transaction is guarded (see guard):
//
//	UPDATE evlog_cursor SET next = from, claimed = end
//	SAVEPOINT evlog_guard
//	... the handler goes on ...
//	RELEASE evlog_guard
//	UPDATE evlog_cursor SET next = end, claimed = NULL WHERE next = from AND claimed = end
//
// If the transaction was lost, neither of the last two succeeds. If the handler
// has committed, the claim stays, and nobody goes on from a batch that is applied
// in part, with a cursor that has passed all of it.
//
// n is how many records were committed; it is less than all when the time is
// up, ctx has ended, or a record has failed, which is then in a.failed.
func (a *applier) transaction(ctx context.Context, p *patience, recs []evlog.Record) (n int, err error) {
	u, err := a.b.begin(ctx)
	if err != nil {
		return 0, wrap("begin", a.name, err)
	}
	defer u.close()
	m, err := a.b.move(a.name, a.logID, a.next, recs[len(recs)-1].Offset+1)
	if err != nil {
		return 0, err
	}
	if err := a.moveFirst(ctx, u, &m); err != nil {
		return 0, wrap("advance", a.name, err)
	}
	t := newTx(u, a.texts, a.saveBatch, m)
	defer t.leave() // before texts are used again, also when the handler panics
	if a.o.Poison == Skip {
		// The guard's savepoint has to be outside those of the records.
		if err := t.guard(); err != nil {
			return 0, wrap("guard", a.name, err)
		}
	}
	n, skips, err := a.handleAll(ctx, t, recs)
	if t.hasEnded() {
		if half := a.committedByHandler(u); half != nil {
			err = half
		}
		return 0, err
	}
	if n == 0 || err != nil {
		return 0, err
	}
	to := m.to
	if n < len(recs) {
		to = int64(recs[n].Offset)
	}
	if err := t.settle(to); err != nil {
		t.end()
		if half := a.committedByHandler(u); half != nil {
			half.Under = half.To // it has begun another transaction
			err = half
		}
		return 0, wrap("advance", a.name, err)
	}
	if err := u.commit(ctx, p); err != nil {
		return 0, wrap("commit", a.name, err)
	}
	a.committed(uint64(to))
	for _, s := range skips {
		a.logSkip(s)
	}
	return n, nil
}

// moveFirst moves the cursor to the end of the batch.
func (a *applier) moveFirst(ctx context.Context, u *unit, m *move) error {
	if done, err := a.spoilFirst(ctx, u, m); done {
		return err
	}
	ok, err := changed(u.prepared(a.b.update, m.name, m.logID, m.from, m.to, m.nowMS))
	if err != nil || ok {
		return err
	}
	return refusal(u.ctx, u.tx, *m)
}

// committedByHandler tells whether a transaction that ended under a handler was
// committed: then the claim has become visible.
func (a *applier) committedByHandler(u *unit) *CommittedError {
	p, _, err := position(u.ctx, u.conn, a.name)
	if err != nil || p.Claimed == 0 {
		return nil // the next transaction finds out
	}
	half := p.committed()
	half.Under = a.last
	return half
}

// handleAll calls the handler for one record after the other, and returns how
// many of them can be committed. A record that failed is in a.failed; without a
// savepoint of its own, nothing of the transaction can be.
func (a *applier) handleAll(ctx context.Context, t *Tx, recs []evlog.Record) (n int, skips []Skipped, err error) {
	start := a.b.clock.Elapsed()
	for i, rec := range recs {
		if err := ctx.Err(); err != nil {
			if i > 0 {
				err = nil
			}
			return i, skips, err
		}
		if a.limit > 0 && i > 0 && a.b.clock.Elapsed()-start >= a.limit {
			return i, skips, nil
		}
		a.last = rec.Offset
		err := a.handleOne(t, rec)
		switch {
		case err == nil:
			continue
		case t.endedUnseen():
			if !errors.Is(err, ErrTxEnded) {
				err = fmt.Errorf("%w: %w", ErrTxEnded, err)
			}
			a.fail(failure{offset: rec.Offset, err: fmt.Errorf("%w: %w", ErrUnseen, err), stop: true, final: true})
			return 0, nil, nil
		case t.metLock(err):
			return 0, nil, &lockError{&cursor.HandlerError{Name: a.name, Offset: rec.Offset, Err: err}}
		case ctx.Err() != nil && errors.Is(err, ctx.Err()):
			return a.stopped(ctx, t, i, skips)
		}
		f := a.fail(failure{offset: rec.Offset, err: err, stop: t.metFault(err), elsewhere: IsBusy(err)})
		if t.hasEnded() || a.o.Poison != Skip {
			return 0, nil, nil
		}
		if err := a.undo(t); err != nil {
			return 0, nil, wrap("undo a record", a.name, err)
		}
		if f.stop || !a.exhausted(f) {
			return i, skips, nil
		}
		s := a.skipOf(f)
		if err := a.b.insertSkip(t.u, s); err != nil {
			return 0, nil, wrap("skip", a.name, err)
		}
		skips = append(skips, s)
	}
	return len(recs), skips, nil
}

// stopped is handleAll's result when the handler returned the error of a context
// that has ended. Nothing is wrong with the record. The n before it can be
// committed if it has left no trace or can be undone.
func (a *applier) stopped(ctx context.Context, t *Tx, n int, skips []Skipped) (int, []Skipped, error) {
	switch {
	case n == 0, t.hasEnded():
		return 0, nil, ctx.Err()
	case a.o.Poison == Skip:
		err := a.undo(t)
		return n, skips, wrap("undo a record", a.name, err)
	case t.untouched():
		return n, skips, nil
	}
	return 0, nil, ctx.Err()
}

// handleOne calls the handler, and finds out whether the transaction is still
// there.
func (a *applier) handleOne(t *Tx, rec evlog.Record) error {
	if a.o.Poison == Skip {
		if err := t.own(a.saveRecord.begin); err != nil {
			return err
		}
	}
	t.start()
	if err := a.handle(t.u.ctx, t, rec); err != nil {
		_ = t.finish() // the handler's error is the one to tell
		return err
	}
	if err := t.finish(); err != nil {
		return err
	}
	if a.o.Poison == Skip {
		if err := t.own(a.saveRecord.release); err != nil {
			return fmt.Errorf("%w: %w", ErrTxEnded, err)
		}
	}
	return nil
}

// undo takes back what the record did.
func (a *applier) undo(t *Tx) error {
	if !a.b.rules.Off(sqlrule.Savepoint) {
		if err := t.own(a.saveRecord.back); err != nil {
			return err
		}
	}
	return t.own(a.saveRecord.release)
}
