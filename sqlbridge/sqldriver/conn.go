package sqldriver

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	sqlite "modernc.org/sqlite"
)

// What a connection of modernc.org/sqlite is to database/sql. All of it has to be
// visible, or contexts and the care of the pool would be lost.
type (
	engineConn interface {
		driver.Conn
		driver.ConnBeginTx
		driver.ConnPrepareContext
		driver.ExecerContext
		driver.QueryerContext
		driver.Pinger
		driver.SessionResetter
		driver.Validator
		sqlite.AuthorizerRegisterer
	}
	engineStmt interface {
		driver.Stmt
		driver.StmtExecContext
		driver.StmtQueryContext
	}
	engineRows interface {
		driver.Rows
		driver.RowsColumnTypeDatabaseTypeName
		driver.RowsColumnTypeLength
		driver.RowsColumnTypeNullable
		driver.RowsColumnTypePrecisionScale
		driver.RowsColumnTypeScanType
	}
)

// conn is a connection. It tells the session what is under way, and puts the Go
// error of a callback in the place of what SQLite makes of it.
type conn struct {
	inner   engineConn
	s       *session
	token   string // of the session in the registry
	release func() // called at the end; nil is nothing

	lastInsert string // executed in a transaction that has inserted
	lastPlain  plainInsert
}

var (
	_ engineConnPublic         = (*conn)(nil)
	_ driver.NamedValueChecker = (*conn)(nil)
	_ engineStmt               = (*stmt)(nil)
	_ engineRows               = (*rows)(nil)
)

type engineConnPublic interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

// enter begins a call.
func (s *session) enter(ctx context.Context) {
	s.err = nil
	s.ctx = ctx
}

// enterText begins a call that may compile a statement. Keys are looked up byte by
// byte if that is certainly how SQLite compares them. Without the word COLLATE in
// the text there is no collation but BINARY: no table here has another one. And of
// "key IN (SELECT ...)" SQLite has a table look up one value after the other, and
// compares again without the affinity that the query's column gives to IN: keys
// that look like its numbers would be lost.
func (s *session) enterText(ctx context.Context, w words) {
	s.enter(ctx)
	s.exact, s.returning, s.inserts, s.transaction = !w.collate && !w.inQuery, w.returning, false, ""
}

// words are what a text has to have where the authorizer is not told enough.
type words struct{ collate, returning, inQuery bool }

func wordsOf(query string) words {
	return words{mentions(query, "collate"), mentions(query, "returning"), hasInQuery(query)}
}

// hasInQuery looks for IN with anything behind it but a list of values: a query, a
// table, or a comment, which may hide one. It looks into literals too.
func hasInQuery(query string) bool {
	word := func(b byte) bool {
		return b == '_' || b >= 0x80 || '0' <= b && b <= '9' || 'a' <= b|0x20 && b|0x20 <= 'z'
	}
	for i := 0; i+2 < len(query); i++ {
		if query[i]|0x20 != 'i' || query[i+1]|0x20 != 'n' || word(query[i+2]) || i > 0 && word(query[i-1]) {
			continue
		}
		rest := strings.TrimLeft(query[i+2:], " \t\r\n\f")
		list := strings.TrimLeft(rest, "( \t\r\n\f")
		if list == rest {
			return true // a table
		}
		if list != "" && list[0] >= 0x80 {
			return true // what SQLite takes for a space may be among these
		}
		for _, start := range []string{"select", "values", "with", "--", "/*"} {
			if len(list) >= len(start) && strings.EqualFold(list[:len(start)], start) {
				return true
			}
		}
	}
	return false
}

// mentions looks for a word in lower case, also inside of others and of literals.
func mentions(query, word string) bool {
	for i := 0; i+len(word) <= len(query); i++ {
		if query[i]|0x20 == word[0] && strings.EqualFold(query[i:i+len(word)], word) {
			return true
		}
	}
	return false
}

// leave ends a call: its error is the callback's own, if that is where SQLite's
// came from.
func (s *session) leave(err error) error {
	if err == nil || err == io.EOF { //nolint:errorlint // drivers return it as it is
		return err
	}
	var fromSQLite *sqlite.Error
	if !errors.As(err, &fromSQLite) {
		return err
	}
	if s.err != nil {
		return s.err
	}
	return err
}

// Unwrap is the connection of modernc.org/sqlite beneath, for what only it has.
func (c *conn) Unwrap() driver.Conn { return c.inner }

// PrepareContext implements driver.ConnPrepareContext.
func (c *conn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	w := wordsOf(query)
	c.s.enterText(ctx, w)
	st, err := c.inner.PrepareContext(ctx, query)
	if err != nil {
		return nil, c.s.leave(err)
	}
	return &stmt{
		engineStmt: st.(engineStmt), s: c.s, words: w, transaction: c.s.transaction, plain: parsePlainInsert(query),
	}, nil
}

// Prepare implements driver.Conn.
func (c *conn) Prepare(query string) (driver.Stmt, error) {
	return c.PrepareContext(context.Background(), query)
}

// ExecContext implements driver.ExecerContext.
func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if r, err, done := c.s.directly(ctx, c.plain(query), args); done {
		return r, err
	}
	c.s.enterText(ctx, wordsOf(query))
	call, end := c.s.watchCall(ctx)
	defer end()
	r, err := c.inner.ExecContext(call, query, args)
	c.s.settle(err)
	return r, c.s.leave(err)
}

// plain takes a query apart that may be inserted directly. Programs insert by the
// same text again and again.
func (c *conn) plain(query string) plainInsert {
	if len(c.s.tx.records) == 0 {
		return nil
	}
	if query != c.lastInsert {
		c.lastInsert, c.lastPlain = query, parsePlainInsert(query)
	}
	return c.lastPlain
}

// QueryContext implements driver.QueryerContext.
func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	c.s.enterText(ctx, wordsOf(query))
	call, end := c.s.watchCall(ctx)
	defer end()
	r, err := c.inner.QueryContext(call, query, args)
	c.s.settle(err)
	if err != nil {
		return nil, c.s.leave(err)
	}
	return c.s.newRows(ctx, r), nil
}

// BeginTx implements driver.ConnBeginTx. A transaction sees the state of the log
// that its first statement sees.
func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	c.s.enterText(ctx, words{})
	t, err := c.inner.BeginTx(ctx, opts)
	if err != nil {
		return nil, c.s.leave(err)
	}
	c.s.hold()
	x := &tx{inner: t, s: c.s}
	if opts.ReadOnly && c.s.why == "" {
		c.s.why = "the transaction is read-only"
		x.readOnly = true
	}
	return x, nil
}

// Begin implements driver.Conn.
func (c *conn) Begin() (driver.Tx, error) { return c.BeginTx(context.Background(), driver.TxOptions{}) }

// Ping implements driver.Pinger: the log can still be looked at.
func (c *conn) Ping(ctx context.Context) error {
	c.s.enter(ctx)
	if err := c.inner.Ping(ctx); err != nil {
		return c.s.leave(err)
	}
	_, _, err := c.s.reader.Bounds(ctx)
	return err
}

// ResetSession implements driver.SessionResetter.
func (c *conn) ResetSession(ctx context.Context) error { return c.inner.ResetSession(ctx) }

// IsValid implements driver.Validator. A transaction that a statement BEGIN has left
// open must not go into the pool: who comes next would see its old state of the log,
// or append to it.
func (c *conn) IsValid() bool { return c.inner.IsValid() && !c.s.held && !c.s.inTransaction() }

// CheckNamedValue makes of a time.Time the text that the column time has, and of
// bytes and strings what the columns key and value make of them: SQLite has no
// text equal to a blob, so a key as records have it would be found nowhere.
func (c *conn) CheckNamedValue(v *driver.NamedValue) (err error) {
	switch x := v.Value.(type) {
	case nil, int64, float64, bool:
		return nil
	case string:
		if utf8.ValidString(x) {
			return nil
		}
	}
	// What stands behind a pointer, a Valuer, a type of the program's own.
	if v.Value, err = driver.DefaultParameterConverter.ConvertValue(v.Value); err != nil {
		return err
	}
	switch x := v.Value.(type) {
	case string:
		if !utf8.ValidString(x) {
			v.Value = []byte(x)
		}
	case []byte:
		if len(x) > 0 && utf8.Valid(x) {
			v.Value = string(x)
		}
	case time.Time:
		text := textTime(x.UnixMilli())
		if text == nil {
			return fmt.Errorf("sqldriver: argument %d: the year %d is not in 0 to 9999", v.Ordinal, x.UTC().Year())
		}
		v.Value = text
	}
	return nil
}

// Close implements driver.Conn.
func (c *conn) Close() error {
	c.s.enter(c.s.base)
	err := c.inner.Close()
	c.s.abandon()
	sessions.remove(c.token)
	c.s.closeEngine()
	if c.release != nil {
		c.release()
	}
	return c.s.leave(err)
}
