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
// does not notice. So BEGIN is asked, which fails inside a transaction.
func inTransaction(ctx context.Context, q DBTX) error {
	if isPool(q) {
		return fmt.Errorf("%w: %T is a pool of connections", ErrNotInTx, q)
	}
	_, err := q.ExecContext(ctx, `BEGIN`)
	switch {
	case err == nil: // now it is in one, and must not stay so
		_, err = q.ExecContext(ctx, `ROLLBACK`)
		return errors.Join(ErrNotInTx, err)
	case strings.Contains(err.Error(), inTxText):
		return nil
	case errors.Is(err, sql.ErrTxDone), errors.Is(err, sql.ErrConnDone), errors.Is(err, ErrTxEnded):
		return fmt.Errorf("%w: %w", ErrNotInTx, err)
	}
	return err
}

// isPool tells a *sql.DB and what wraps one: each statement may go to another
// connection, so that the ROLLBACK after a BEGIN might not meet it.
func isPool(q DBTX) bool {
	_, stats := q.(interface{ Stats() sql.DBStats })
	_, begins := q.(interface {
		BeginTx(context.Context, *sql.TxOptions) (*sql.Tx, error)
	})
	_, raw := q.(interface{ Raw(func(any) error) error }) // a *sql.Conn begins too
	return stats || begins && !raw
}
