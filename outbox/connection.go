package outbox

import (
	"context"
	"database/sql"
)

// connection is one of the database. A relay that keeps its connection prepares
// its statements, of which there are a dozen, once.
type connection struct {
	conn     *sql.Conn
	prepared map[string]*sql.Stmt // nil: not
}

var _ DBTX = (*connection)(nil)

func (c *connection) prepare(query string) *sql.Stmt {
	if c.prepared == nil {
		return nil
	}
	st := c.prepared[query]
	if st == nil {
		// If it fails, so does the statement itself.
		if st, _ = c.conn.PrepareContext(context.Background(), query); st != nil {
			c.prepared[query] = st
		}
	}
	return st
}

func (c *connection) unprepare() {
	for _, st := range c.prepared {
		_ = st.Close()
	}
	c.prepared = nil
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
