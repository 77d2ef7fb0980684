package bench

import (
	"database/sql"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
)

// reopenSQLite opens a table that newSQLite has made once more, in the same way.
func reopenSQLite(path string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", path+
		"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	return db, nil
}

// path is where the database is; its WAL has "-wal" behind it.
func (s *sqliteLog) path() (path string) {
	require.NoError(s.b, s.db.QueryRow(`SELECT file FROM pragma_database_list WHERE name = 'main'`).Scan(&path))
	return path
}

func (s *sqliteLog) exec(query string, args ...any) {
	_, err := s.db.Exec(query, args...)
	require.NoError(s.b, err)
}

func (s *sqliteLog) journal(mode string) {
	var is string
	require.NoError(s.b, s.db.QueryRow(`PRAGMA journal_mode = `+mode).Scan(&is))
	require.Equal(s.b, mode, is)
}

// build has the table hold n records and nothing else, much faster than fill does:
// without a journal and without syncs until the end, the rows copied within the
// table from the first ones. No other connection is open.
func (s *sqliteLog) build(records []evlog.Record, n int) {
	const atOnce = 100_000 // copied through a temporary table
	s.journal("off")
	s.exec(`PRAGMA synchronous = OFF`)
	s.exec(`DELETE FROM log`)
	s.exec(`VACUUM`)
	have := min(n, len(records))
	s.fill(records, have, 1)
	for have < n {
		more := min(have/len(records)*len(records), atOnce/len(records)*len(records), n-have)
		s.exec(`INSERT INTO log (ts_ms, schema, key, value)
			SELECT ts_ms, schema, key, value FROM log WHERE offset <= ? ORDER BY offset`, more)
		have += more
	}
	s.exec(`PRAGMA synchronous = FULL`)
	s.journal("wal")
	syncFile(s.b, s.path()) // or the next sync, which may be timed, had all of this to write
}

func syncFile(b testing.TB, path string) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(b, err)
	require.NoError(b, f.Sync())
	require.NoError(b, f.Close())
}
