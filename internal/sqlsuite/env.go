package sqlsuite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/sqlrule"
	"github.com/evlog-go/evlog/sqlbridge"
)

// consumer is the name under which the tests consume.
const consumer = "effects"

// env is a database with a bridge and a table of effects.
type env struct {
	t    testing.TB
	ctx  context.Context
	d    Driver
	m    Mode
	path string
	db   *sql.DB
	b    *sqlbridge.Bridge
}

type envOptions struct {
	off    sqlrule.Rule
	busyMS int // 0: fails at once, as is modernc's default
	opts   *sqlbridge.Options
}

func newEnv(t testing.TB, d Driver, m Mode, o envOptions) *env {
	t.Helper()
	e := &env{t: t, ctx: t.Context(), d: d, m: m, path: filepath.Join(t.TempDir(), "app.db")}
	e.db = e.open(o.busyMS)
	for _, query := range []string{
		`CREATE TABLE effect (offset INTEGER PRIMARY KEY, n INTEGER NOT NULL, key BLOB, value BLOB) STRICT`,
		`CREATE TABLE noise (id INTEGER PRIMARY KEY, x INTEGER) STRICT`,
	} {
		_, err := e.db.Exec(query)
		require.NoError(t, err)
	}
	ctx, release := sqlrule.Without(e.ctx, o.off)
	t.Cleanup(release)
	var err error
	e.b, err = sqlbridge.Open(ctx, e.db, o.opts)
	require.NoError(t, err)
	return e
}

// open opens the database once more, as another process would.
func (e *env) open(busyMS int) *sql.DB {
	e.t.Helper()
	db, err := sql.Open(e.d.Name, e.m.dsn(e.path, busyMS))
	require.NoError(e.t, err)
	e.t.Cleanup(func() { _ = db.Close() })
	return db
}

const applySQL = `INSERT INTO effect (offset, n, key, value) VALUES (?1, 1, ?2, ?3)
	ON CONFLICT (offset) DO UPDATE SET n = n + 1`

// apply is the handler: each call for an offset leaves a trace.
func apply(ctx context.Context, tx *sqlbridge.Tx, rec evlog.Record) error {
	_, err := tx.ExecContext(ctx, applySQL, int64(rec.Offset), rec.Key, rec.Value)
	return err
}

func (e *env) process(l *fakeLog, recs []evlog.Record, h sqlbridge.Handler, o *sqlbridge.RunOptions) error {
	return e.b.Process(e.ctx, l, consumer, recs, h, o)
}

func (e *env) runToEnd(l *fakeLog, h sqlbridge.Handler, o sqlbridge.RunOptions) error {
	o.UntilEnd = true
	return e.b.Run(e.ctx, l, consumer, h, &o)
}

// cursor is where the consumer stands.
func (e *env) cursor() uint64 {
	p, err := e.b.Cursor(e.ctx, e.db, consumer)
	if err != nil {
		panic(err)
	}
	return p.Next
}

// exactly tests that the effects are those of these records, once each, and
// that the cursor stands at next.
func (e *env) exactly(recs []evlog.Record, next uint64) error {
	got, err := e.effects()
	if err != nil {
		return err
	}
	for _, r := range recs {
		if n := got[int64(r.Offset)]; n != 1 {
			return fmt.Errorf("record %d took effect %d times", r.Offset, n)
		}
	}
	if len(got) != len(recs) {
		return fmt.Errorf("%d records took effect, not %d", len(got), len(recs))
	}
	if c := e.cursor(); c != next {
		return fmt.Errorf("the cursor stands at %d, not %d", c, next)
	}
	return nil
}

func (e *env) effects() (map[int64]int, error) {
	rows, err := e.db.Query(`SELECT offset, n FROM effect`)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	all := map[int64]int{}
	for rows.Next() {
		var offset int64
		var n int
		if err := rows.Scan(&offset, &n); err != nil {
			return nil, err
		}
		all[offset] = n
	}
	return all, rows.Err()
}

// cleanPool tests that no connection of the pool is in use or in a transaction,
// and that another process can write at once.
func (e *env) cleanPool() error {
	if n := e.db.Stats().InUse; n != 0 {
		return fmt.Errorf("%d connections are in use", n)
	}
	if _, err := e.open(0).Exec(`INSERT INTO noise (x) VALUES (1)`); err != nil {
		return fmt.Errorf("another process cannot write: %w", err)
	}
	var conns []*sql.Conn
	defer func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}()
	for range e.db.Stats().Idle {
		c, err := e.db.Conn(e.ctx)
		if err != nil {
			return err
		}
		conns = append(conns, c)
		if _, err := c.ExecContext(e.ctx, `BEGIN`); err != nil {
			return fmt.Errorf("a connection of the pool is in a transaction: %w", err)
		}
		if _, err := c.ExecContext(e.ctx, `ROLLBACK`); err != nil {
			return err
		}
	}
	return nil
}

// lockFor has another connection hold the write lock for a while.
func (e *env) lockFor(d time.Duration) (release func()) {
	e.t.Helper()
	conn, err := e.open(0).Conn(e.ctx)
	require.NoError(e.t, err)
	_, err = conn.ExecContext(e.ctx, `BEGIN IMMEDIATE`)
	require.NoError(e.t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		time.Sleep(d)
		_, _ = conn.ExecContext(context.WithoutCancel(e.ctx), `ROLLBACK`)
		_ = conn.Close()
	}()
	return func() { <-done }
}

// wrong is what a check found, in words. Errors in it are only told.
type wrong string

func (w wrong) Error() string { return string(w) }

func wrongf(format string, args ...any) error { return wrong(fmt.Sprintf(format, args...)) }

// is tests an error by errors.Is.
func is(err, want error) error {
	if !errors.Is(err, want) {
		return wrongf("the error is %v, not %v", err, want)
	}
	return nil
}

// asError tests that an error is of type E.
func asError[E error](err error) error {
	var want E
	if !errors.As(err, &want) {
		return wrongf("the error is %v, not a %T", err, want)
	}
	return nil
}

// first returns the first error.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
