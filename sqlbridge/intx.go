package sqlbridge

import (
	"context"
	"fmt"

	"github.com/evlog-go/evlog/internal/sqldb"
)

// inTransaction returns nil if q is in a transaction, and ErrNotInTx if not.
func inTransaction(ctx context.Context, q DBTX) error {
	if t, ok := q.(*Tx); ok {
		return t.inTransaction()
	}
	return sqldb.InTransaction(ctx, q, false, ErrNotInTx, ErrTxEnded)
}

func (t *Tx) inTransaction() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.watch.doubt = true
	if err := t.checkLocked(); err != nil {
		return fmt.Errorf("%w: %w", ErrNotInTx, err)
	}
	return nil
}
