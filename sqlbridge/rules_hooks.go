package sqlbridge

import (
	"context"
	"errors"

	"github.com/evlog-go/evlog/cursor"
	"github.com/evlog-go/evlog/internal/sqlrule"
)

// What is here is for the tests of the rules: it does something wrong where a
// rule is switched off, so that a test can show that it notices. With all rules
// on, as everybody else has them, nothing happens here.

// spoil changes options: a record is tried too often, a batch has no end.
func (b *Bridge) spoil(o *RunOptions) {
	if b.rules.Off(sqlrule.Attempts) {
		o.Attempts++
	}
	if b.rules.Off(sqlrule.BatchLimit) {
		o.BatchRecords, o.BatchBytes = 1<<20, 1<<40
	}
}

// statementContext is for the statements of a transaction; see unit.
func (b *Bridge) statementContext(ctx context.Context) context.Context {
	if b.rules.Off(sqlrule.NoCancel) {
		return ctx
	}
	return context.WithoutCancel(ctx)
}

// spoilFirst does something before the first statement of a transaction, or in
// its place: then done is true.
func (a *applier) spoilFirst(ctx context.Context, u *unit, m *move) (done bool, err error) {
	if a.b.rules.Off(sqlrule.OneConn) {
		if _, _, err := position(ctx, a.b.db, a.name); err != nil {
			return true, err
		}
	}
	if a.b.rules.Off(sqlrule.WriteFirst) {
		_, _, err := position(u.ctx, u.tx, a.name)
		return true, err
	}
	a.b.loosen(u.ctx, u.tx, m)
	return false, nil
}

// loosen has a move expect whatever there is.
func (b *Bridge) loosen(ctx context.Context, q DBTX, m *move) {
	if !b.rules.Off(sqlrule.CompareAndSet | sqlrule.LogID) {
		return
	}
	p, known, err := position(ctx, q, m.name)
	if err != nil || !known {
		return
	}
	if b.rules.Off(sqlrule.CompareAndSet) {
		m.from = int64(p.Next)
	}
	if b.rules.Off(sqlrule.LogID) {
		m.logID = p.LogID
	}
}

// settleAnyhow moves the cursor whatever has become of it.
func (t *Tx) settleAnyhow(to int64) (done bool, err error) {
	if !t.u.b.rules.Off(sqlrule.Guard | sqlrule.Claim | sqlrule.WriteFirst) {
		return false, nil
	}
	_, err = t.u.exec(`UPDATE main.evlog_cursor SET next = ?2, claimed = NULL WHERE name = ?1`, t.m.name, to)
	return true, err
}

// resolve is cursor.Resolve, but for a cursor that is taken though it does not
// fit.
func (a *applier) resolve(ctx context.Context, p Position) (cursor.Start, error) {
	if a.b.rules.Off(sqlrule.LogID) {
		p.LogID = a.logID
	}
	s, err := cursor.Resolve(ctx, a.log, a.name, p.Next, p.LogID, a.o.Reset)
	if a.b.rules.Off(sqlrule.Ahead) && errors.Is(err, cursor.ErrAhead) ||
		a.b.rules.Off(sqlrule.Behind) && errors.Is(err, cursor.ErrBehind) {
		s, err = cursor.Start{Next: p.Next}, nil
	}
	return s, err
}

// leave leaves a transaction as it is, until the test is over.
func (u *unit) leave() bool {
	if u.done || !u.b.rules.Off(sqlrule.CleanUp) {
		return false
	}
	u.b.rules.Later(u.cleanUp)
	return true
}
