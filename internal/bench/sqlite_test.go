package bench

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite" // registers the driver

	"github.com/evlog-go/evlog/evlog"
)

// sqliteLog is what a user would write in place of a log: a table with the
// offset as its primary key.
type sqliteLog struct {
	b      testing.TB
	db     *sql.DB
	insert *sql.Stmt
	get    *sql.Stmt
}

// newSQLite makes one of which each commit is durable.
func newSQLite(b testing.TB) *sqliteLog { return openSQLiteLog(b, "FULL") }

// newSQLiteNoSync makes one that never syncs: what has been committed may be gone after
// a power failure, and outlives the process, which is more than Enqueue says.
func newSQLiteNoSync(b testing.TB) *sqliteLog { return openSQLiteLog(b, "OFF") }

func openSQLiteLog(b testing.TB, synchronous string) *sqliteLog {
	db, err := sql.Open("sqlite", filepath.Join(b.TempDir(), "log.db")+
		"?_pragma=journal_mode(WAL)&_pragma=synchronous("+synchronous+")")
	require.NoError(b, err)
	db.SetMaxOpenConns(1)
	b.Cleanup(func() { require.NoError(b, db.Close()) })
	_, err = db.Exec(`CREATE TABLE log (offset INTEGER PRIMARY KEY, ts_ms INTEGER, schema INTEGER, key BLOB, value BLOB)`)
	require.NoError(b, err)
	s := &sqliteLog{b: b, db: db}
	s.insert = s.prepare(`INSERT INTO log (ts_ms, schema, key, value) VALUES (?, ?, ?, ?)`)
	s.get = s.prepare(`SELECT ts_ms, schema, key, value FROM log WHERE offset = ?`)
	return s
}

// grown appends so much that the WAL has its full size, from where on it is written
// over. Until then, for up to a thousand commits, each has a new size to write to the
// file system's journal and takes up to twice as long: how a table begins, and not how
// it goes on.
func (s *sqliteLog) grown(records []evlog.Record) *sqliteLog {
	s.fill(records, growing(records), 1)
	return s
}

// growing is how many records make a WAL of 1,000 pages, where it is checkpointed.
func growing(records []evlog.Record) int {
	const bytes = 6 << 20
	n := int(bytes / records[0].Size())
	return (n/len(records) + 1) * len(records)
}

func (s *sqliteLog) prepare(query string) *sql.Stmt {
	st, err := s.db.Prepare(query)
	require.NoError(s.b, err)
	s.b.Cleanup(func() { require.NoError(s.b, st.Close()) })
	return st
}

// append commits one record.
func (s *sqliteLog) append(r evlog.Record, timeMS int64) {
	if _, err := s.insert.Exec(timeMS, r.Schema, r.Key, r.Value); err != nil {
		s.b.Error(err)
	}
}

// fill commits n records, which are taken from records in turn, in one
// transaction.
func (s *sqliteLog) fill(records []evlog.Record, n int, timeMS int64) {
	tx, err := s.db.Begin()
	require.NoError(s.b, err)
	st := tx.Stmt(s.insert)
	for i := range n {
		r := records[i%len(records)]
		if _, err := st.Exec(timeMS, r.Schema, r.Key, r.Value); err != nil {
			s.b.Fatal(err)
		}
	}
	require.NoError(s.b, st.Close())
	require.NoError(s.b, tx.Commit())
}

// size is how many bytes the database has, the WAL being copied into it.
func (s *sqliteLog) size() int64 {
	var pages, page int64
	require.NoError(s.b, s.db.QueryRow(`PRAGMA page_count`).Scan(&pages))
	require.NoError(s.b, s.db.QueryRow(`PRAGMA page_size`).Scan(&page))
	return pages * page
}

// scan reads all records in order and returns how many there were.
func (s *sqliteLog) scan() (n int) {
	rows, err := s.db.Query(`SELECT offset, ts_ms, schema, key, value FROM log ORDER BY offset`)
	require.NoError(s.b, err)
	defer rows.Close()
	var offset, ts, schema int64
	var key, value sql.RawBytes
	for rows.Next() {
		if err := rows.Scan(&offset, &ts, &schema, &key, &value); err != nil {
			s.b.Fatal(err)
		}
		n++
	}
	require.NoError(s.b, rows.Err())
	return n
}
