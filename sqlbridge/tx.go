package sqlbridge

import (
	"context"
	"database/sql"
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
// It is valid during the handler's call only.
type Tx struct {
	u *unit
	m move // of the cursor, as it was made

	mu      sync.Mutex // guards the rest
	doubt   bool       // something ran that may have ended the transaction
	blind   bool       // statements may run that are not seen here
	guarded bool       // see guardLocked
	ended   bool
	texts   texts
}

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
	t.doubt = t.doubt || err != nil || !k.harmless
	return res, err
}

// QueryContext is that of *sql.Tx.
func (t *Tx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.beforeLocked(!t.textLocked(query).harmless); err != nil {
		return nil, err
	}
	t.doubt = true // its errors come to the Rows
	return t.u.tx.QueryContext(ctx, query, args...)
}

// QueryRowContext is that of *sql.Tx. Once the transaction has ended, the row's
// error is sql.ErrTxDone.
func (t *Tx) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.beforeLocked(!t.textLocked(query).harmless) != nil {
		t.endLocked()
	}
	t.doubt = true
	return t.u.tx.QueryRowContext(ctx, query, args...)
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
	return t.u.tx.PrepareContext(ctx, query)
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
	if odd {
		return t.guardLocked()
	}
	return nil
}

// check returns ErrTxEnded if the transaction has ended.
func (t *Tx) check() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.checkLocked()
}

func (t *Tx) checkLocked() error {
	switch {
	case t.u.b.rules.Off(sqlrule.Guard):
		return nil
	case t.ended:
		return ErrTxEnded
	case !t.doubt && !t.blind:
		return nil
	}
	if err := inTransaction(t.u.ctx, t.u.tx); err != nil {
		t.endLocked()
		return ErrTxEnded
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
