package sqlbridge

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
)

// Tx is the transaction that a handler works in. It has the query methods of a
// *sql.Tx, but not Commit and Rollback: those are the bridge's, and statements
// that say COMMIT, END, BEGIN or ROLLBACK (but for ROLLBACK TO a savepoint of
// the handler) are refused with ErrControl. Names of savepoints that begin with
// evlog_ are the bridge's, too.
//
// SQLite can end a transaction by itself: when a statement in it is cancelled,
// the disk is full, or a constraint says ROLLBACK. database/sql does not notice,
// and further statements would be committed one by one. A Tx does notice: after
// anything that may have ended the transaction it finds out before the next
// statement, and refuses that with ErrTxEnded.
//
// With some drivers the statement of a query runs as its rows are read, which is
// not seen here. Read the rows of a query that writes before you do anything
// else.
//
// It is valid during the handler's call only, and so are its rows: those that
// the handler left open are closed.
type Tx struct {
	u *unit
	m move // of the cursor, as it was made

	save savepoint // of the guard

	mu      sync.Mutex // guards the rest
	texts   texts
	watch   watch
	guarded bool // see guardLocked
}

var _ DBTX = (*Tx)(nil)

func newTx(u *unit, known texts, save savepoint, m move) *Tx {
	return &Tx{u: u, m: m, save: save, texts: known}
}

// ExecContext is that of *sql.Tx. A text that is used again in the same
// transaction is prepared.
func (t *Tx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k, err := t.beforeLocked(query)
	if err != nil {
		return nil, err
	}
	res, err := t.execLocked(ctx, k, k.kind.harmless(), query, args)
	t.watch.doubt = t.watch.doubt || !k.kind.harmless()
	t.afterLocked(err)
	return res, err
}

// QueryContext is that of *sql.Tx.
func (t *Tx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k, err := t.beforeLocked(query)
	if err != nil {
		return nil, err
	}
	rows, err := t.u.tx.QueryContext(ctx, query, args...)
	t.afterLocked(err)
	if err == nil {
		t.watch.add(open{rows: rows}, k.kind)
	}
	return rows, err
}

// QueryRowContext is that of *sql.Tx. Where the statement is refused, the row's
// error is sql.ErrTxDone, and the transaction has ended.
func (t *Tx) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	t.mu.Lock()
	defer t.mu.Unlock()
	k, err := t.beforeLocked(query)
	if err != nil {
		t.endLocked()
		return t.u.tx.QueryRowContext(ctx, query, args...)
	}
	row := t.u.tx.QueryRowContext(ctx, query, args...)
	t.watch.add(open{row: row}, k.kind)
	return row
}

// PrepareContext is that of *sql.Tx. What the statement does is not seen here, as
// with Raw. ExecContext prepares by itself.
func (t *Tx) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, err := t.beforeLocked(query); err != nil {
		return nil, err
	}
	if err := t.blindLocked(); err != nil {
		return nil, err
	}
	st, err := t.u.tx.PrepareContext(ctx, query)
	t.afterLocked(err)
	return st, err
}

// Raw is the transaction itself, for packages that ask for a *sql.Tx. Do not
// commit it and do not roll it back. It is on its own: should the transaction
// end under it, that is noticed after the record or before the next statement
// of the Tx, and what it executed until then may have been committed. The record
// then stops the consumer with ErrUnseen, and would be applied again.
func (t *Tx) Raw() *sql.Tx {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.checkLocked() != nil || t.blindLocked() != nil {
		t.endLocked()
	}
	return t.u.tx
}

// beforeLocked is called before each statement. What is odd could commit the
// transaction.
func (t *Tx) beforeLocked(query string) (*text, error) {
	if err := t.checkLocked(); err != nil {
		return nil, err
	}
	k := t.textLocked(query)
	switch {
	case k.kind == control:
		return nil, fmt.Errorf("%w: %s", ErrControl, firstWord(query))
	case !k.kind.harmless():
		if err := t.guardLocked(); err != nil {
			return nil, err
		}
	}
	t.watch.used = true
	return k, nil
}

// blindLocked is called before something goes on that is not seen here.
func (t *Tx) blindLocked() error {
	t.watch.blind, t.watch.used = true, true
	return t.guardLocked()
}
