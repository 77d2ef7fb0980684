package sqldriver

import (
	"context"
	"database/sql/driver"
	"errors"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// A transaction is begun and ended by BeginTx and by statements, several of which
// can be in one text; and SQLite ends one by itself. What the session knows of it
// follows from SQLite's own state after each call, and from what the authorizer
// has seen of statements meanwhile.

func (s *session) openEngine(inner engineConn) {
	s.engine = inner
	if s.handle = handleOf(inner); s.handle != 0 {
		s.tls = libc.NewTLS()
	}
}

func (s *session) closeEngine() {
	s.handle = 0
	if s.tls != nil {
		s.tls.Close()
		s.tls = nil
	}
}

// settle ends a call that may have begun or ended a transaction, and returned err.
func (s *session) settle(err error) {
	// A dead one ends for whoever began it when he is told that there is nothing to
	// end, which he is not by the end of a context.
	ends := s.transaction == "COMMIT" || s.transaction == "ROLLBACK"
	told := ends && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
	if s.inTransaction() || s.dead != nil && !told {
		s.hold()
	} else {
		s.release()
	}
}

// inTransaction reports whether SQLite is in a transaction. Without its handle it is
// told by whether another one can be begun.
func (s *session) inTransaction() bool {
	if s.handle != 0 {
		return sqlite3.Xsqlite3_get_autocommit(s.tls, s.handle) == 0
	}
	if s.dead != nil {
		return false
	}
	failed, transaction := s.err, s.transaction // which the statements here change
	defer func() { s.err, s.transaction = failed, transaction }()
	s.transaction = "" // a BEGIN behind a COMMIT is another transaction's, to the authorizer
	if _, err := s.engine.ExecContext(s.base, "BEGIN", nil); err != nil {
		return true
	}
	_, err := s.engine.ExecContext(s.base, "ROLLBACK", nil)
	return err != nil
}

// compilesInTransaction reports whether the statement being compiled will be in a
// transaction.
func (s *session) compilesInTransaction() bool {
	switch s.transaction {
	case "":
		return s.held
	case "BEGIN":
		return true
	}
	return false
}

// tx is a transaction of database/sql.
type tx struct {
	inner    driver.Tx
	s        *session
	readOnly bool
}

// Commit implements driver.Tx.
func (t *tx) Commit() error { return t.end("COMMIT", t.inner.Commit) }

// Rollback implements driver.Tx.
func (t *tx) Rollback() error { return t.end("ROLLBACK", t.inner.Rollback) }

func (t *tx) end(how string, f func() error) error {
	t.s.enterText(t.s.base, words{})
	t.s.transaction = how
	err := t.s.leave(f())
	if t.s.dead != nil { // it has ended
		err = nil
		if how == "COMMIT" {
			err = t.s.dead
		}
	}
	t.s.release()
	if t.readOnly {
		t.s.why = ""
	}
	return err
}
