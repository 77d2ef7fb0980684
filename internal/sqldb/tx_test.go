package sqldb_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/evlog-go/evlog/internal/sqldb"
)

var errNotInTx = errors.New("not in a transaction")

// ending ends the context of its caller when a BEGIN has been executed.
type ending struct {
	*sql.Conn
	end func()
}

func (e ending) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	res, err := e.Conn.ExecContext(ctx, query, args...)
	if query == "BEGIN" {
		e.end()
	}
	return res, err
}

// Asking leaves no transaction behind, also where the context ends meanwhile.
func TestInTransaction_ContextEnds(t *testing.T) {
	db, err := sql.Open("sqlite", ":memory:")
	require.NoError(t, err)
	defer db.Close()
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	require.ErrorIs(t, sqldb.InTransaction(ctx, ending{conn, cancel}, true, errNotInTx), errNotInTx)
	require.Error(t, ctx.Err())
	require.ErrorIs(t, sqldb.InTransaction(ctx, conn, true, errNotInTx), context.Canceled)

	_, err = conn.ExecContext(t.Context(), "BEGIN") // fails inside a transaction
	require.NoError(t, err)
	require.NoError(t, sqldb.InTransaction(t.Context(), conn, true, errNotInTx))
	_, err = conn.ExecContext(t.Context(), "ROLLBACK")
	require.NoError(t, err)
}
