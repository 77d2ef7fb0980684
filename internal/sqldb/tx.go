package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// DBTX is what *sql.DB, *sql.Conn, *sql.Tx and their wrappers have in common.
type DBTX interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// InTransaction returns nil if q is in a transaction, and notInTx if not. single
// says that q is one connection; *sql.Tx and *sql.Conn are known to be. over are
// further errors of q that say that its transaction has ended.
//
// The type does not tell: a *sql.Conn may or may not be in one, and a *sql.Tx
// is in none any more once SQLite has rolled back under it, which database/sql
// does not notice. So SQLite is asked.
func InTransaction(ctx context.Context, q DBTX, single bool, notInTx error, over ...error) error {
	var err error
	switch q.(type) {
	case *sql.Tx, *sql.Conn:
		single = true
	}
	if single {
		err = begins(ctx, q, notInTx)
	} else {
		err = vacuums(ctx, q, notInTx)
	}
	for _, e := range append(over, sql.ErrTxDone, sql.ErrConnDone) {
		if errors.Is(err, e) {
			return fmt.Errorf("%w: %w", notInTx, err)
		}
	}
	return err
}

// inTxText is in SQLite's answers to a BEGIN and a VACUUM inside a transaction.
const inTxText = "within a transaction"

// begins asks by a BEGIN, which fails inside a transaction. It is for what has
// one connection only: the ROLLBACK has to meet the same one. Neither is
// cancelled: a BEGIN may have begun all the same, and without the ROLLBACK the
// caller's connection would stay in the transaction.
func begins(ctx context.Context, q DBTX, notInTx error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	_, err := q.ExecContext(ctx, `BEGIN`)
	switch {
	case err == nil: // now it is in one, and must not stay so
		if _, err = q.ExecContext(ctx, `ROLLBACK`); err != nil {
			return fmt.Errorf("%w: %w", notInTx, err)
		}
		return notInTx
	case strings.Contains(err.Error(), inTxText):
		return nil
	}
	return err
}

// vacuums asks by a VACUUM that never comes to anything, since NULL is no file:
// it looks whether there is a transaction first. It takes longer than a BEGIN,
// and leaves nothing behind where each statement may go to another connection,
// as with a pool in a wrapper.
func vacuums(ctx context.Context, q DBTX, notInTx error) error {
	if isPool(q) {
		return fmt.Errorf("%w: %T is a pool of connections", notInTx, q)
	}
	_, err := q.ExecContext(ctx, `VACUUM INTO NULL`)
	switch {
	case err == nil:
		return fmt.Errorf("%w: %T executes nothing", notInTx, q)
	case strings.Contains(err.Error(), inTxText):
		return nil
	case strings.Contains(err.Error(), "non-text filename"), strings.Contains(err.Error(), "SQL statements in progress"):
		return notInTx
	}
	return err
}

// isPool tells a *sql.DB and what wraps one. A transaction may be open on the
// connection that it happens to ask, and the next statement go elsewhere.
func isPool(q DBTX) bool {
	_, stats := q.(interface{ Stats() sql.DBStats })
	_, begins := q.(interface {
		BeginTx(context.Context, *sql.TxOptions) (*sql.Tx, error)
	})
	_, raw := q.(interface{ Raw(func(any) error) error }) // a *sql.Conn begins too
	return stats || begins && !raw
}

// IsNoTx tells SQLite's answer to a COMMIT or ROLLBACK outside a transaction.
func IsNoTx(err error) bool {
	return err != nil && strings.Contains(err.Error(), "no transaction is active")
}

// busyTexts are what SQLite says when a lock is in the way.
var busyTexts = []string{
	"database is locked",        // SQLITE_BUSY and its extended codes
	"table is locked",           // SQLITE_LOCKED, with a shared cache
	"database schema is locked", // the same
	"locking protocol",          // SQLITE_PROTOCOL: lost too many races for a WAL lock
}

// IsBusy reports whether err says that another connection is in the way
// (SQLITE_BUSY, SQLITE_LOCKED).
func IsBusy(err error) bool { return saysOne(err, busyTexts) }

// faultTexts are what SQLite says when the trouble is not the statement's.
var faultTexts = []string{
	"database or disk is full",             // SQLITE_FULL
	"disk I/O error",                       // SQLITE_IOERR
	"attempt to write a readonly database", // SQLITE_READONLY
	"database disk image is malformed",     // SQLITE_CORRUPT
	"out of memory",                        // SQLITE_NOMEM
	"unable to open database file",         // SQLITE_CANTOPEN
	"file is not a database",               // SQLITE_NOTADB
}

// IsTooBig reports whether err says that a value is larger than SQLite holds
// (SQLITE_TOOBIG).
func IsTooBig(err error) bool { return saysOne(err, []string{"string or blob too big"}) }

// IsFault reports whether err is about the machine or the file, so that the same
// statement with other values would fail too.
func IsFault(err error) bool { return saysOne(err, faultTexts) }

func saysOne(err error, texts []string) bool {
	if err == nil {
		return false
	}
	text := err.Error()
	return slices.ContainsFunc(texts, func(t string) bool { return strings.Contains(text, t) })
}

// IsFull reports whether err says that the database has no room (SQLITE_FULL),
// or may mean it: where a rollback journal cannot be created, SQLite says only
// that it cannot open a file (SQLITE_CANTOPEN). So it says where the process has no
// descriptor left, which passes too, and where the directory of the database is
// gone: who waits for room has to look at that for himself.
func IsFull(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "database or disk is full") ||
		strings.Contains(err.Error(), "unable to open database file"))
}

// NoTable reports whether err says that a table is missing whose name begins so.
func NoTable(err error, prefix string) bool {
	if err == nil {
		return false
	}
	text := err.Error()
	return strings.Contains(text, "no such table: "+prefix) || strings.Contains(text, "no such table: main."+prefix)
}
