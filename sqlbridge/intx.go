package sqlbridge

import (
	"context"

	"github.com/evlog-go/evlog/internal/sqldb"
)

// inTransaction returns nil if q is in a transaction, and ErrNotInTx if not.
func inTransaction(ctx context.Context, q DBTX) error {
	_, own := q.(*Tx)
	return sqldb.InTransaction(ctx, q, own, ErrNotInTx, ErrTxEnded)
}
