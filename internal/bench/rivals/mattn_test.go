//go:build cgo

package rivals

import (
	"database/sql"
	"path/filepath"
	"sync"
	"testing"
	"time"

	_ "github.com/mattn/go-sqlite3" // registers the driver

	"github.com/evlog-go/evlog/evlog"
)

// sqliteStore is github.com/mattn/go-sqlite3 with a table of evlog's columns, the
// offset as its primary key, journal_mode=WAL, and synchronous=FULL for durable
// commits or NORMAL, which does not sync them; one connection, prepared
// statements. Its WAL has checksums, the database has none.
type sqliteStore struct {
	mu     sync.Mutex // one connection
	db     *sql.DB
	insert *sql.Stmt
	row    *sql.Stmt
	last   *sql.Stmt
}

func init() {
	rivals = append(rivals, rival{name: "sqlite-cgo", open: openMattn, checks: "nothing"})
}

func openMattn(_ testing.TB, dir string, c config) (store, error) {
	synchronous := "NORMAL"
	if c.durable {
		synchronous = "FULL"
	}
	db, err := sql.Open("sqlite3", "file:"+filepath.Join(dir, "log.db")+"?_journal_mode=WAL&_synchronous="+synchronous)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	_, err = db.Exec(`CREATE TABLE IF NOT EXISTS log (offset INTEGER PRIMARY KEY, ts_ms INTEGER, schema INTEGER, key BLOB, value BLOB)`)
	if err != nil {
		return nil, err
	}
	s := &sqliteStore{db: db}
	for _, p := range []struct {
		to    **sql.Stmt
		query string
	}{
		{&s.insert, `INSERT INTO log (ts_ms, schema, key, value) VALUES (?, ?, ?, ?)`},
		{&s.row, `SELECT ts_ms, schema, key, value FROM log WHERE offset = ?`},
		{&s.last, `SELECT coalesce(max(offset), 0) FROM log`},
	} {
		if *p.to, err = db.Prepare(p.query); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *sqliteStore) append(records []evlog.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now().UnixMilli()
	if len(records) == 1 {
		r := &records[0]
		_, err := s.insert.Exec(now, r.Schema, r.Key, r.Value)
		return err
	}
	tx, err := s.db.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // of no effect after Commit
	insert := tx.Stmt(s.insert)
	for i := range records {
		r := &records[i]
		if _, err := insert.Exec(now, r.Schema, r.Key, r.Value); err != nil {
			return err
		}
	}
	return tx.Commit()
}

func (s *sqliteStore) flush() error { return nil }

func (s *sqliteStore) scan(each func(key, value []byte)) error {
	rows, err := s.db.Query(`SELECT offset, ts_ms, schema, key, value FROM log ORDER BY offset`)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var offset, ts, schema int64
		var key, value sql.RawBytes
		if err := rows.Scan(&offset, &ts, &schema, &key, &value); err != nil {
			return err
		}
		each(key, value)
	}
	return rows.Err()
}

func (s *sqliteStore) get(offset uint64) (key, value []byte, err error) {
	var ts, schema int64
	err = s.row.QueryRow(int64(offset)+1).Scan(&ts, &schema, &key, &value)
	return key, value, err
}

func (s *sqliteStore) drop(below uint64) error {
	if _, err := s.db.Exec(`DELETE FROM log WHERE offset <= ?`, int64(below)); err != nil {
		return err
	}
	_, err := s.db.Exec(`VACUUM`)
	return err
}

func (s *sqliteStore) close() error { return s.db.Close() }

func (s *sqliteStore) follow(next uint64, seen func()) (stop func(), err error) {
	return poll(s, func() (last uint64, err error) {
		err = s.last.QueryRow().Scan(&last)
		return last, err
	}, next, seen), nil
}
