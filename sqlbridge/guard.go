package sqlbridge

import (
	"fmt"

	"github.com/evlog-go/evlog/internal/sqlrule"
)

const (
	claimCursor = `UPDATE main.evlog_cursor SET next = ?2, claimed = ?3 WHERE name = ?1 AND next = ?3 AND claimed IS NULL`
	// settleCursor is for a guarded transaction.
	settleCursor = `UPDATE main.evlog_cursor SET next = ?4, claimed = NULL WHERE name = ?1 AND next = ?2 AND claimed = ?3`
	// shortenCursor is for a batch that ended early in one that is not.
	shortenCursor = `UPDATE main.evlog_cursor SET next = ?3 WHERE name = ?1 AND next = ?2 AND claimed IS NULL`
)

func (t *Tx) guard() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.guardLocked()
}

// guardLocked prepares for what cannot be seen here: the cursor goes back to
// where it was, and says what is going on. The claim is visible to others only
// if somebody commits.
func (t *Tx) guardLocked() error {
	if t.guarded {
		return nil
	}
	t.guarded = true
	if !t.u.b.rules.Off(sqlrule.Claim) {
		if err := t.moved(claimCursor, t.m.name, t.m.from, t.m.to); err != nil {
			t.endLocked()
			return fmt.Errorf("%w: %w", ErrTxEnded, err)
		}
	}
	if _, err := t.u.exec(t.save.begin); err != nil {
		t.endLocked()
		return fmt.Errorf("%w: %w", ErrTxEnded, err)
	}
	return nil
}

// settle leaves the cursor at to, if the transaction is still the one it was.
func (t *Tx) settle(to int64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if done, err := t.settleAnyhow(to); done {
		return err
	}
	switch {
	case t.guarded:
		if _, err := t.u.exec(t.save.release); err != nil {
			return fmt.Errorf("%w: %w", ErrTxEnded, err)
		}
		return t.moved(settleCursor, t.m.name, t.m.from, t.m.to, to)
	case to != t.m.to:
		return t.moved(shortenCursor, t.m.name, t.m.to, to)
	}
	return nil
}

// moved runs a statement that has to change the cursor.
func (t *Tx) moved(query string, args ...any) error {
	ok, err := changed(t.u.exec(query, args...))
	if err == nil && !ok {
		err = ErrTxEnded
	}
	return err
}
