package outboxsuite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync/atomic"

	"github.com/stretchr/testify/require"
)

// breaker hands out connections of a driver that can be broken.
type breaker struct {
	driver   driver.Driver
	dsn      string
	db       *sql.DB
	age      atomic.Int64 // connections of an earlier age are broken
	refuse   atomic.Int64 // so many connections are refused
	prepared atomic.Int64 // statements
	init     atomic.Value // a statement for each new connection; "" for none
}

// newBreaker opens the database of e through a breaker.
func newBreaker(e *env) *breaker {
	e.t.Helper()
	b := &breaker{driver: e.db.Driver(), dsn: e.m.dsn(e.path, 5000)}
	b.init.Store("")
	b.db = sql.OpenDB(b)
	e.t.Cleanup(func() { require.NoError(e.t, b.db.Close()) })
	return b
}

func (b *breaker) breakAll() { b.age.Add(1) }

var errRefused = errors.New("connection refused")

func (b *breaker) Driver() driver.Driver { return b.driver }

func (b *breaker) Connect(ctx context.Context) (driver.Conn, error) {
	if b.refuse.Load() > 0 {
		b.refuse.Add(-1)
		return nil, errRefused
	}
	conn, err := b.driver.Open(b.dsn)
	if err != nil {
		return nil, err
	}
	c := &breakingConn{Conn: conn, b: b, age: b.age.Load()}
	if init := b.init.Load().(string); init != "" {
		st, err := conn.(driver.ConnPrepareContext).PrepareContext(ctx, init)
		if err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		rows, err := st.(driver.StmtQueryContext).QueryContext(ctx, nil)
		if err == nil {
			dest := make([]driver.Value, len(rows.Columns()))
			for rows.Next(dest) == nil { // not every driver executes it before
			}
			err = rows.Close()
		}
		if err = errors.Join(err, st.Close()); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
	}
	return c, nil
}

// breakingConn passes everything on, until it is broken.
type breakingConn struct {
	driver.Conn
	b   *breaker
	age int64
}

func (c *breakingConn) err() error {
	if c.age < c.b.age.Load() {
		return driver.ErrBadConn
	}
	return nil
}

func (c *breakingConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	inner, ok := c.Conn.(driver.ExecerContext)
	if err := c.err(); err != nil || !ok {
		return nil, first(err, driver.ErrSkip)
	}
	return inner.ExecContext(ctx, query, args)
}

func (c *breakingConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	inner, ok := c.Conn.(driver.QueryerContext)
	if err := c.err(); err != nil || !ok {
		return nil, first(err, driver.ErrSkip)
	}
	return inner.QueryContext(ctx, query, args)
}

func (c *breakingConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if err := c.err(); err != nil {
		return nil, err
	}
	c.b.prepared.Add(1)
	st, err := c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	return &breakingStmt{st, c}, nil
}

func (c *breakingConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if err := c.err(); err != nil {
		return nil, err
	}
	return c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
}

func (c *breakingConn) ResetSession(ctx context.Context) error {
	if r, ok := c.Conn.(driver.SessionResetter); ok && c.err() == nil {
		return r.ResetSession(ctx)
	}
	return c.err()
}

func (c *breakingConn) CheckNamedValue(v *driver.NamedValue) error {
	if k, ok := c.Conn.(driver.NamedValueChecker); ok {
		return k.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

type breakingStmt struct {
	driver.Stmt
	c *breakingConn
}

func (s *breakingStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	if err := s.c.err(); err != nil {
		return nil, err
	}
	return s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args)
}

func (s *breakingStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	if err := s.c.err(); err != nil {
		return nil, err
	}
	return s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
}
