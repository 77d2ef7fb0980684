package sqldriver_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/evlog-go/evlog/cursor"
	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/vfs"
	"github.com/evlog-go/evlog/sqlbridge/sqldriver"
)

func TestMain(m *testing.M) {
	switch child := os.Getenv(childEnv); child {
	case "insert":
		err := insertChild(os.Args[1], os.Stdout)
		fmt.Fprintln(os.Stderr, "insert:", err)
		os.Exit(1)
	case "churn":
		if err := churnChild(os.Args[1], os.Args[2], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "churn:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// place is where a test's log lives.
type place struct {
	ctx context.Context
	dir string
}

func onDisk(t testing.TB) place {
	return place{ctx: t.Context(), dir: filepath.Join(t.TempDir(), "log")}
}

func onFS(t testing.TB, fsys vfs.FS) place {
	return place{ctx: vfs.NewContext(t.Context(), fsys), dir: "/data/log"}
}

func inMem(t testing.TB) place { return onFS(t, vfs.NewMem()) }

// create makes a log with these records and closes it.
func (p place) create(t testing.TB, opts *evlog.Options, records ...evlog.Record) {
	t.Helper()
	l, err := evlog.Open(p.ctx, p.dir, opts)
	require.NoError(t, err)
	if len(records) > 0 {
		_, err = l.Append(p.ctx, records...)
		require.NoError(t, err)
	}
	require.NoError(t, l.Close())
}

// open opens a database on the log; it is closed when the test ends.
func (p place) open(t testing.TB, options string) *sql.DB {
	t.Helper()
	c, err := sqldriver.NewConnector(p.ctx, p.dir+options)
	require.NoError(t, err)
	db := sql.OpenDB(c)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// query returns all rows as text, one line each.
func query(ctx context.Context, db querier, q string, args ...any) (lines []string, err error) {
	rows, err := db.QueryContext(ctx, q, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	values := make([]any, len(columns))
	for i := range values {
		values[i] = new(any)
	}
	for rows.Next() {
		if err := rows.Scan(values...); err != nil {
			return nil, err
		}
		line := ""
		for i, v := range values {
			if i > 0 {
				line += "|"
			}
			line += show(*v.(*any))
		}
		lines = append(lines, line)
	}
	return lines, rows.Err()
}

func show(v any) string {
	switch v := v.(type) {
	case nil:
		return "NULL"
	case string:
		return fmt.Sprintf("%q", v)
	case []byte:
		return fmt.Sprintf("x'%x'", v)
	case float64:
		return fmt.Sprintf("%g", v)
	}
	return fmt.Sprint(v)
}

func mustQuery(t testing.TB, db querier, q string, args ...any) []string {
	t.Helper()
	lines, err := query(t.Context(), db, q, args...)
	require.NoError(t, err, q)
	return lines
}

func at(ms int64) time.Time { return time.UnixMilli(ms) }

// commitAt commits the first offset of a consumer.
func commitAt(t testing.TB, p place, name string, offset uint64) {
	t.Helper()
	store, err := cursor.OpenFile(p.ctx, p.dir, nil)
	require.NoError(t, err)
	require.NoError(t, store.Commit(p.ctx, name, 0, offset))
	require.NoError(t, store.Close())
}
