package sqlbridge

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// A connection that may still be in a transaction does not go back to the pool.
func TestUnit_Discards(t *testing.T) {
	broken := errors.New("disk I/O error")
	none := errors.New("cannot rollback - no transaction is active")
	for _, c := range []struct {
		name             string
		rollback, byHand error
		discarded        bool
	}{
		{name: "rolled_back"},
		{name: "not_by_the_driver", rollback: broken},
		{name: "was_in_none", rollback: none, byHand: broken},
		{name: "found_to_be_in_none", rollback: broken, byHand: none},
		{name: "cannot_be_ended", rollback: broken, byHand: broken, discarded: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := &stubConn{rollback: c.rollback, byHand: c.byHand}
			db := sql.OpenDB(conn)
			defer func() { _ = db.Close() }()
			u, err := newBridge(t.Context(), db, nil).begin(t.Context())
			require.NoError(t, err)
			u.close()
			require.Equal(t, c.discarded, conn.closed)
			require.Zero(t, db.Stats().InUse)
		})
	}
}

// stubConn is a driver of one connection, whose transactions end as told.
type stubConn struct {
	rollback, byHand error
	closed           bool
}

func (c *stubConn) Connect(context.Context) (driver.Conn, error) { return c, nil }
func (c *stubConn) Driver() driver.Driver                        { return nil }
func (c *stubConn) Prepare(string) (driver.Stmt, error)          { return nil, errors.ErrUnsupported }
func (c *stubConn) Begin() (driver.Tx, error)                    { return c, nil }
func (c *stubConn) Commit() error                                { return nil }
func (c *stubConn) Rollback() error                              { return c.rollback }

func (c *stubConn) Close() error {
	c.closed = true
	return nil
}

func (c *stubConn) ExecContext(_ context.Context, query string, _ []driver.NamedValue) (driver.Result, error) {
	if query != "ROLLBACK" {
		return nil, errors.ErrUnsupported
	}
	return driver.RowsAffected(0), c.byHand
}
