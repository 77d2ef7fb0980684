package outbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
)

// connection is one of the database. A relay that keeps its connection prepares
// its statements, of which there are a dozen, once.
type connection struct {
	conn     *sql.Conn
	keeps    bool // what it has prepared
	prepared map[string]*sql.Stmt
}

var _ DBTX = (*connection)(nil)

func (c *connection) prepare(query string) *sql.Stmt {
	if !c.keeps {
		return nil
	}
	st := c.prepared[query]
	if st == nil {
		// If it fails, so does the statement itself.
		if st, _ = c.conn.PrepareContext(context.Background(), query); st != nil {
			if c.prepared == nil {
				c.prepared = map[string]*sql.Stmt{}
			}
			c.prepared[query] = st
		}
	}
	return st
}

// unprepare closes the statements, as long as the connection is there: database/sql
// closes one that a driver calls bad, and leaves its statements. Closed later they
// would meet a connection that is freed: modernc.org/sqlite panics.
func (c *connection) unprepare() {
	if c.conn.Raw(func(any) error { return nil }) == nil {
		for _, st := range c.prepared {
			_ = st.Close()
		}
	}
	c.prepared = nil
}

// discard keeps the connection from going back to the pool.
func (c *connection) discard() {
	c.unprepare()
	_ = c.conn.Raw(func(any) error { return driver.ErrBadConn })
}

func (c *connection) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if st := c.prepare(query); st != nil {
		return st.ExecContext(ctx, args...)
	}
	return c.conn.ExecContext(ctx, query, args...)
}

func (c *connection) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if st := c.prepare(query); st != nil {
		return st.QueryContext(ctx, args...)
	}
	return c.conn.QueryContext(ctx, query, args...)
}

func (c *connection) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	if st := c.prepare(query); st != nil {
		return st.QueryRowContext(ctx, args...)
	}
	return c.conn.QueryRowContext(ctx, query, args...)
}

// broken reports whether the connection is of no use any more.
func broken(err error) bool {
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone)
}
