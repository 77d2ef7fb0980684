package main

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"
)

// cmdSQLExec executes a statement: sqlexec DB STATEMENT.
func cmdSQLExec(ts *testscript.TestScript, _ bool, args []string) {
	db, err := sql.Open("sqlite", dsn(ts.MkAbs(args[0]), "rwc"))
	ts.Check(err)
	defer db.Close()
	_, err = db.Exec(args[1])
	ts.Check(err)
}

// cmdHoldDB has another process, this one, keep a database open to the script's
// end, after this statement on the same connection: holddb DB STATEMENT.
func cmdHoldDB(ts *testscript.TestScript, _ bool, args []string) {
	ctx := context.Background()
	db, err := sql.Open("sqlite", dsn(ts.MkAbs(args[0]), "rw"))
	ts.Check(err)
	conn, err := db.Conn(ctx)
	ts.Check(err)
	_, err = conn.ExecContext(ctx, args[1])
	ts.Check(err)
	ts.Defer(func() { _, _ = conn.Close(), db.Close() })
}

// makeDatabase makes one in WAL mode that nobody has open, and returns a function
// that writes to it as an application does that is started and ended.
func makeDatabase(t *testing.T) (path string, write func()) {
	path = filepath.Join(t.TempDir(), "app.sqlite")
	write = func() {
		db, err := sql.Open("sqlite", dsn(path, "rwc")+"&_pragma=journal_mode(WAL)")
		require.NoError(t, err)
		_, err = db.Exec(`CREATE TABLE IF NOT EXISTS t (a)`)
		require.NoError(t, err)
		_, err = db.Exec(`INSERT INTO t VALUES (1)`)
		require.NoError(t, err)
		require.NoError(t, db.Close())
	}
	write()
	return path, write
}

func countRows(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRow(`SELECT count(*) FROM t`).Scan(&n))
	return n
}

// A database that nobody has open is read without a lock. A writer that has come
// and gone meanwhile has changed the file, and what was read does not count.
func TestReadDatabase_WriterMeanwhile(t *testing.T) {
	path, write := makeDatabase(t)
	var got []int
	require.NoError(t, readDatabase(t.Context(), path, func(db *sql.DB) error {
		got = append(got, countRows(t, db))
		if len(got) == 1 {
			write()
		}
		return nil
	}))
	require.Equal(t, []int{1, 2}, got)
	left, err := filepath.Glob(path + "-*")
	require.NoError(t, err)
	require.Empty(t, left)
}

// One that comes each time is met with locks in the end, and an error of a read
// that does not count is none.
func TestReadDatabase_WriterEachTime(t *testing.T) {
	path, write := makeDatabase(t)
	n := 0
	require.NoError(t, readDatabase(t.Context(), path, func(db *sql.DB) error {
		n++
		require.Equal(t, n, countRows(t, db))
		write()
		if n <= 3 {
			return os.ErrInvalid
		}
		return nil
	}))
	require.Equal(t, 4, n)
}

// A change within one tick of the file system's clock could not be seen, so the
// last one has to be older.
func TestReadDatabase_WaitsForTheClock(t *testing.T) {
	path, write := makeDatabase(t)
	write()
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.NoError(t, readDatabase(t.Context(), path, func(db *sql.DB) error {
		require.GreaterOrEqual(t, time.Since(info.ModTime()), 50*time.Millisecond)
		return nil
	}))
	future := time.Now().Add(time.Hour)
	require.NoError(t, os.Chtimes(path, future, future))
	require.NoError(t, readDatabase(t.Context(), path, func(db *sql.DB) error {
		require.Equal(t, 2, countRows(t, db))
		_, err := os.Stat(path + "-wal")
		return err // an ordinary connection has one
	}))
}
