package sqldriver

import (
	"context"
	"database/sql/driver"
)

// stmt is a prepared statement, or a text of several.
type stmt struct {
	engineStmt
	s           *session
	words       words
	transaction string // of the session, when it was compiled
	plain       plainInsert
}

// ExecContext implements driver.StmtExecContext. SQLite may compile the statement
// again.
func (t *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	if r, err, done := t.s.directly(ctx, t.plain, args); done {
		return r, err
	}
	if err := t.enter(ctx); err != nil {
		return nil, err
	}
	call, end := t.s.watchCall(ctx)
	defer end()
	r, err := t.engineStmt.ExecContext(call, args)
	t.s.settle(err)
	return r, t.s.leave(err)
}

// QueryContext implements driver.StmtQueryContext.
func (t *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	if err := t.enter(ctx); err != nil {
		return nil, err
	}
	call, end := t.s.watchCall(ctx)
	defer end()
	r, err := t.engineStmt.QueryContext(call, args)
	t.s.settle(err)
	if err != nil {
		return nil, t.s.leave(err)
	}
	return t.s.newRows(ctx, r), nil
}

// enter begins a call. What the authorizer sees of a statement that is compiled it
// does not see of one that was.
func (t *stmt) enter(ctx context.Context) error {
	t.s.enterText(ctx, t.words)
	t.s.transaction = t.transaction
	if t.transaction == "" || t.transaction == "BEGIN" {
		return t.s.dead
	}
	return nil
}

// rows are what a query returns.
type rows struct {
	engineRows
	s     *session
	ctx   context.Context
	watch *watch
}

func (s *session) newRows(ctx context.Context, r driver.Rows) *rows {
	return &rows{engineRows: r.(engineRows), s: s, ctx: ctx, watch: newWatch(ctx, s.handle)}
}

// Next implements driver.Rows.
func (r *rows) Next(dest []driver.Value) error {
	r.s.enter(r.ctx)
	return r.s.leave(r.watch.step(r.ctx, func() error { return r.engineRows.Next(dest) }))
}

// Close implements driver.Rows.
func (r *rows) Close() error {
	r.watch.close()
	r.s.enter(r.ctx)
	return r.s.leave(r.engineRows.Close())
}
