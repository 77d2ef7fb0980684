package sqlbridge

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/evlog-go/evlog/internal/sqlrule"
)

// Tx is the transaction that a handler works in. It has the query methods of a
// *sql.Tx, but not Commit and Rollback: those are the bridge's.
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

	mu      sync.Mutex  // guards the rest
	doubt   bool        // something ran that may have ended the transaction
	blind   bool        // statements may run that are not seen here
	rows    []*sql.Rows // of this record; their statements may still run
	row     []*sql.Row  // the same
	used    bool        // this record may have written something
	locked  bool        // a statement of this record met a lock
	guarded bool        // see guardLocked
	ended   bool
	texts   texts
}

// maxRows bounds what is kept of a record. One that has more is not seen through.
const maxRows = 64

// texts is what is known of the statements that ran. It is used again in the
// next transaction.
type texts map[string]*text

type text struct {
	harmless bool
	tx       *Tx       // in which it ran last
	st       *sql.Stmt // prepared when it runs there the second time
}

// maxTexts bounds texts: there may be literals in them.
const maxTexts = 64

var _ DBTX = (*Tx)(nil)

func newTx(u *unit, known texts, m move) *Tx { return &Tx{u: u, m: m, texts: known} }

// ExecContext is that of *sql.Tx. A text that is used again in the same
// transaction is prepared.
func (t *Tx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := t.textLocked(query)
	if err := t.beforeLocked(!k.harmless); err != nil {
		return nil, err
	}
	res, err := t.execLocked(ctx, k, k.harmless, query, args)
	t.doubt = t.doubt || !k.harmless
	if err != nil {
		// At once: rows that are open would otherwise go on outside.
		t.failedLocked(err)
		_ = t.checkLocked()
	}
	return res, err
}

// QueryContext is that of *sql.Tx.
func (t *Tx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.beforeLocked(!t.textLocked(query).harmless); err != nil {
		return nil, err
	}
	rows, err := t.u.tx.QueryContext(ctx, query, args...)
	if err != nil {
		t.failedLocked(err)
		_ = t.checkLocked()
		return nil, err
	}
	t.rows = append(t.roomLocked(), rows)
	return rows, nil
}

// QueryRowContext is that of *sql.Tx. Once the transaction has ended, the row's
// error is sql.ErrTxDone.
func (t *Tx) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.beforeLocked(!t.textLocked(query).harmless) != nil {
		t.endLocked()
	}
	_ = t.roomLocked()
	row := t.u.tx.QueryRowContext(ctx, query, args...)
	t.row = append(t.row, row)
	return row
}

// roomLocked returns t.rows with room for another one.
func (t *Tx) roomLocked() []*sql.Rows {
	if len(t.rows)+len(t.row) == maxRows {
		t.rows, t.row, t.blind = nil, nil, true
	}
	return t.rows
}

// PrepareContext is that of *sql.Tx. What the statement does is not seen here:
// whether the transaction is still there is found out before other statements
// and after the record. ExecContext prepares by itself.
func (t *Tx) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.beforeLocked(true); err != nil {
		return nil, err
	}
	t.blind = true
	st, err := t.u.tx.PrepareContext(ctx, query)
	t.failedLocked(err)
	return st, err
}

// Raw is the transaction itself, for packages that ask for a *sql.Tx. Do not
// commit it and do not roll it back. It is on its own: should the transaction
// end under it, that is noticed after the record only, and what ran until then
// may have been committed.
func (t *Tx) Raw() *sql.Tx {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.beforeLocked(true) != nil {
		t.endLocked()
	}
	t.blind = true
	return t.u.tx
}

// beforeLocked is called before each statement. odd says that it, or what comes
// of it, could commit the transaction.
func (t *Tx) beforeLocked(odd bool) error {
	if err := t.checkLocked(); err != nil {
		return err
	}
	t.used = true
	if odd {
		return t.guardLocked()
	}
	return nil
}

// failedLocked notes the error of a statement.
func (t *Tx) failedLocked(err error) {
	if err != nil {
		t.doubt = true
		t.locked = t.locked || IsBusy(err)
	}
}

// start begins a record.
func (t *Tx) start() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.used, t.locked = false, false
}

// finish ends a record: it returns ErrTxEnded if the transaction has ended, and
// closes what the handler left open, so that nothing goes on unseen.
func (t *Tx) finish() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	err := t.checkLocked() // first: what runs from here on has to run inside
	for _, rows := range t.rows {
		t.failedLocked(errors.Join(rows.Close(), rows.Err()))
	}
	for _, row := range t.row {
		// That closes it, and runs what has not run before: nobody can tell
		// whether the handler did. After the first time there are no rows.
		if err := row.Scan(); !errors.Is(err, sql.ErrNoRows) {
			t.failedLocked(err)
		}
	}
	clear(t.rows)
	clear(t.row)
	t.rows, t.row = t.rows[:0], t.row[:0]
	if err == nil {
		err = t.checkLocked()
	}
	return err
}

// metLock reports whether a lock was in the way of the record that failed with
// err. What the error says counts only for statements that are not seen here: a
// handler's error can quote anything.
func (t *Tx) metLock(err error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.locked || t.blind && IsBusy(err)
}

// untouched reports whether the record has left no trace.
func (t *Tx) untouched() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.used && !t.blind
}

func (t *Tx) checkLocked() error {
	switch {
	case t.u.b.rules.Off(sqlrule.Guard):
		return nil
	case t.ended:
		return ErrTxEnded
	case !t.doubt && !t.blind && len(t.rows)+len(t.row) == 0:
		return nil
	}
	if err := inTransaction(t.u.ctx, t.u.tx); err != nil {
		t.endLocked()
		return fmt.Errorf("%w: %w", ErrTxEnded, err)
	}
	t.doubt = false
	return nil
}

// end gives the transaction up. From here on the *sql.Tx refuses everything,
// whoever holds it.
func (t *Tx) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.endLocked()
}

func (t *Tx) endLocked() {
	t.ended = true
	_ = t.u.tx.Rollback()
}

func (t *Tx) hasEnded() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ended
}

// own runs a statement of the bridge itself.
func (t *Tx) own(query string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, err := t.execLocked(t.u.ctx, t.textLocked(query), true, query, nil)
	return err
}

func (t *Tx) textLocked(query string) *text {
	k := t.texts[query]
	if k == nil {
		k = &text{harmless: harmless(query)}
		if len(t.texts) >= maxTexts {
			clear(t.texts)
		}
		t.texts[query] = k
	}
	return k
}

// execLocked runs a statement, prepared if its text has run in this transaction
// before: that halves the time of a small one. Texts that may be several
// statements are not prepared, since some drivers prepare only the first.
func (t *Tx) execLocked(ctx context.Context, k *text, single bool, query string, args []any) (sql.Result, error) {
	switch {
	case k.tx != t:
		k.tx, k.st = t, nil // the other one was closed with its transaction
	case k.st == nil && single:
		// If it fails, so does the statement itself.
		k.st, _ = t.u.tx.PrepareContext(t.u.ctx, query)
	}
	if k.st != nil {
		return k.st.ExecContext(ctx, args...)
	}
	return t.u.tx.ExecContext(ctx, query, args...)
}

// harmless reports whether a text is one statement of a kind that ends a
// transaction only with an error. It may say no without reason, which costs a
// microsecond.
func harmless(query string) bool {
	query = strings.TrimLeft(query, " \t\r\n")
	for strings.HasPrefix(query, "--") { // a comment, as code generators put there
		_, rest, _ := strings.Cut(query, "\n")
		query = strings.TrimLeft(rest, " \t\r\n")
	}
	word := query
	if end := strings.IndexAny(query, " \t\r\n("); end >= 0 {
		word = query[:end]
	}
	switch strings.ToUpper(word) {
	case "INSERT", "UPDATE", "DELETE", "REPLACE", "SELECT", "WITH":
		return !strings.Contains(strings.TrimRight(query, "; \t\r\n"), ";")
	}
	return false
}
