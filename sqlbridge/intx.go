package sqlbridge

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
)

// inTransaction returns nil if q is in a transaction, and ErrNotInTx if not.
// The type does not tell: a *sql.Conn may or may not be in one, and a *sql.Tx
// is in none any more once SQLite has rolled back under it, which database/sql
// does not notice. So SQLite is asked.
func inTransaction(ctx context.Context, q DBTX) error {
	var err error
	switch q.(type) {
	case *sql.Tx, *sql.Conn, *Tx:
		err = begins(ctx, q)
	default:
		err = vacuums(ctx, q)
	}
	if errors.Is(err, sql.ErrTxDone) || errors.Is(err, sql.ErrConnDone) || errors.Is(err, ErrTxEnded) {
		err = fmt.Errorf("%w: %w", ErrNotInTx, err)
	}
	return err
}

// begins asks by a BEGIN, which fails inside a transaction. It is for what has
// one connection only: the ROLLBACK has to meet the same one.
func begins(ctx context.Context, q DBTX) error {
	_, err := q.ExecContext(ctx, `BEGIN`)
	switch {
	case err == nil: // now it is in one, and must not stay so
		_, err = q.ExecContext(ctx, `ROLLBACK`)
		return errors.Join(ErrNotInTx, err)
	case strings.Contains(err.Error(), inTxText):
		return nil
	}
	return err
}

// vacuums asks by a VACUUM that never comes to anything, since NULL is no file:
// it looks whether there is a transaction first. It takes longer than a BEGIN,
// and leaves nothing behind where each statement may go to another connection,
// as with a pool in a wrapper.
func vacuums(ctx context.Context, q DBTX) error {
	if isPool(q) {
		return fmt.Errorf("%w: %T is a pool of connections", ErrNotInTx, q)
	}
	_, err := q.ExecContext(ctx, `VACUUM INTO NULL`)
	switch {
	case err == nil:
		return fmt.Errorf("%w: %T executes nothing", ErrNotInTx, q)
	case strings.Contains(err.Error(), inTxText):
		return nil
	case strings.Contains(err.Error(), "non-text filename"), strings.Contains(err.Error(), "SQL statements in progress"):
		return ErrNotInTx
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
