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
//	UPDATE evlog_cursor SET claimed = end WHERE next = from AND claimed IS NULL
//	SAVEPOINT evlog_guard
//	the handler, for each record
//	RELEASE evlog_guard
//	UPDATE evlog_cursor SET next = end, claimed = NULL WHERE next = from AND claimed = end
//	COMMIT
//
// The claim comes first because it takes the write lock before anything is read:
// a transaction that reads first can find that another one has written since,
// and no waiting helps against that (SQLITE_BUSY_SNAPSHOT). It also tells at
// once whether another consumer has moved the cursor. If the transaction ends
// under a handler, the claim is gone and the savepoint too, and neither of the
// two statements after the handlers succeeds. If a handler commits, the claim
// stays, and nobody goes on from a batch that is applied in part.
//
// n is how many records were committed; it is less than all when the time is
// up, ctx has ended, or a record has failed, which is then in a.failed.
func (a *applier) transaction(ctx context.Context, recs []evlog.Record) (n int, err error) {
	u, err := a.b.begin(ctx)
	if err != nil {
		return 0, wrap("begin", a.name, err)
	}
	defer u.close()
	if a.b.rules.Off(sqlrule.OneConn) {
		if _, _, err := position(ctx, a.b.db, a.name); err != nil {
			return 0, err
		}
	}
	m, err := a.b.move(a.name, a.logID, a.next, recs[len(recs)-1].Offset+1)
	if err != nil {
		return 0, err
	}
	if err := a.claim(u, &m); err != nil {
		return 0, wrap("claim", a.name, err)
	}
	t := newTx(u)
	if err := t.own(`SAVEPOINT evlog_guard`); err != nil {
		return 0, wrap("savepoint", a.name, err)
	}
	n, skips, err := a.handleAll(ctx, t, recs)
	if t.hasEnded() {
		return 0, errors.Join(err, a.committedByHandler(u))
	}
	if n == 0 || err != nil {
		return 0, err
	}
	to := m.to
	if n < len(recs) {
		to = int64(recs[n].Offset)
	}
	if err := a.settle(t, m, to); err != nil {
		t.end()
		return 0, wrap("advance", a.name, errors.Join(err, a.committedByHandler(u)))
	}
	if err := u.commit(ctx); err != nil {
		return 0, wrap("commit", a.name, err)
	}
	a.committed(uint64(to))
	for _, s := range skips {
		a.logSkip(s)
	}
	return n, nil
}

const (
	claimCursor = `UPDATE evlog_cursor SET claimed = ?4
		WHERE name = ?1 AND log_id = ?2 AND next = ?3 AND claimed IS NULL`
	settleCursor = `UPDATE evlog_cursor SET next = ?4, claimed = NULL, updated_ms = ?5
		WHERE name = ?1 AND log_id = ?2 AND next = ?3 AND claimed = ?6`
	// settleAnyway is what is left of it without the rules.
	settleAnyway = `UPDATE evlog_cursor SET next = ?2, claimed = NULL, updated_ms = ?3 WHERE name = ?1`
)

func (a *applier) claim(u *unit, m *move) error {
	if a.b.rules.Off(sqlrule.WriteFirst) {
		_, _, err := position(u.ctx, u.tx, a.name)
		return err
	}
	a.b.loosen(u.ctx, u.tx, m)
	if a.b.rules.Off(sqlrule.Claim) {
		return a.b.advance(u.ctx, u.tx, *m)
	}
	ok, err := changed(u.prepared(a.b.claim, m.name, m.logID, m.from, m.to))
	if err != nil || ok {
		return err
	}
	return refusal(u.ctx, u.tx, *m)
}

// settle moves the claimed cursor to to.
func (a *applier) settle(t *Tx, m move, to int64) error {
	err := t.own(`RELEASE evlog_guard`)
	if a.b.rules.Off(sqlrule.Guard | sqlrule.Claim | sqlrule.WriteFirst) {
		_, err = t.u.exec(settleAnyway, m.name, to, m.nowMS)
		return err
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrTxEnded, err)
	}
	ok, err := changed(t.u.prepared(a.b.settle, m.name, m.logID, m.from, to, m.nowMS, m.to))
	if err == nil && !ok {
		err = ErrTxEnded
	}
	return err
}

// committedByHandler tells whether a transaction that ended under a handler was
// committed: then the claim has become visible.
func (a *applier) committedByHandler(u *unit) error {
	p, _, err := position(u.ctx, u.conn, a.name)
	if err == nil && p.Claimed != 0 {
		err = &CommittedError{Name: a.name, From: p.Next, To: p.Claimed}
	}
	return err
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
		err := a.handleOne(t, rec)
		switch {
		case err == nil:
			continue
		case IsBusy(err):
			return 0, nil, &cursor.HandlerError{Name: a.name, Offset: rec.Offset, Err: err}
		case ctx.Err() != nil && errors.Is(err, ctx.Err()):
			return 0, nil, ctx.Err() // nothing is wrong with the record
		}
		a.fail(rec.Offset, err)
		if t.hasEnded() || a.o.Poison != Skip {
			return 0, nil, nil
		}
		if err := a.undo(t); err != nil {
			return 0, nil, wrap("undo a record", a.name, err)
		}
		if !a.exhausted(a.failed.times) {
			return i, skips, nil
		}
		s := a.skipOf(a.failed)
		if err := a.b.insertSkip(t.u, s); err != nil {
			return 0, nil, wrap("skip", a.name, err)
		}
		skips = append(skips, s)
	}
	return len(recs), skips, nil
}

// handleOne calls the handler, and finds out whether the transaction is still
// there.
func (a *applier) handleOne(t *Tx, rec evlog.Record) error {
	if a.o.Poison == Skip {
		if err := t.own(`SAVEPOINT evlog_record`); err != nil {
			return err
		}
	}
	if err := a.handle(t.u.ctx, t, rec); err != nil {
		_ = t.check() // the handler's error is the one to tell
		return err
	}
	if err := t.check(); err != nil {
		return err
	}
	if a.o.Poison == Skip {
		if err := t.own(`RELEASE evlog_record`); err != nil {
			return fmt.Errorf("%w: %w", ErrTxEnded, err)
		}
	}
	return nil
}

// undo takes back what the record did.
func (a *applier) undo(t *Tx) error {
	if !a.b.rules.Off(sqlrule.Savepoint) {
		if err := t.own(`ROLLBACK TO evlog_record`); err != nil {
			return err
		}
	}
	return t.own(`RELEASE evlog_record`)
}
