package bench

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/bench/limit"
	"github.com/evlog-go/evlog/internal/bench/turns"
	"github.com/evlog-go/evlog/sqlbridge/sqldriver"
	"github.com/evlog-go/evlog/sqlbridge/tablelog"
)

// sqlSides are a log behind the driver and a native table, both with the same n
// records of JSON.
type sqlSides struct {
	log    *evlog.Log
	driver *sql.DB
	native *sql.DB
	table  *tablelog.Log
}

func newSQLSides(b *testing.B, n, valueBytes int) *sqlSides {
	s := &sqlSides{}
	s.log = openLog(b, b.TempDir(), &evlog.Options{Sync: evlog.SyncFlush, SegmentBytes: 16 << 20})
	c, err := sqldriver.NewLogConnector(background, s.log)
	require.NoError(b, err)
	s.driver = sql.OpenDB(c)
	b.Cleanup(func() { require.NoError(b, s.driver.Close()) })
	s.native, err = sql.Open("sqlite", filepath.Join(b.TempDir(), "log.db")+
		"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, s.native.Close()) })
	s.driver.SetMaxOpenConns(1)
	s.native.SetMaxOpenConns(1)
	s.table, err = tablelog.Open(background, s.native, &tablelog.Options{Table: "log"})
	require.NoError(b, err)
	records := makeTextRecords(1000, valueBytes)
	fillLog(b, s.log, records, n)
	for at := 0; at < n; at += len(records) {
		_, err := s.table.Append(background, records[:min(len(records), n-at)]...)
		require.NoError(b, err)
	}
	return s
}

// makeTextRecords is limit.Records with printable values.
func makeTextRecords(n, valueBytes int) []evlog.Record {
	records := limit.Records(n, valueBytes)
	for _, r := range records {
		for i, c := range r.Value {
			r.Value[i] = ' ' + c%95
		}
	}
	return records
}

func BenchmarkSQLDriverScan(b *testing.B) {
	for _, c := range []struct {
		name, query string
		valueBytes  int
	}{
		{"columns=5/value=100B", `SELECT offset, ts_ms, schema, key, value FROM log ORDER BY offset`, 100},
		{"columns=5/value=1KiB", `SELECT offset, ts_ms, schema, key, value FROM log ORDER BY offset`, 1 << 10},
		{"columns=0/value=100B", `SELECT count(*) FROM log`, 100},
		{"aggregate/value=100B", `SELECT key, max(offset) FROM log GROUP BY key`, 100},
	} {
		b.Run(c.name, func(b *testing.B) {
			const n = 50_000
			s := newSQLSides(b, n, c.valueBytes)
			turns.Take(b, limit.RecordSize(c.valueBytes),
				&turns.Side{Name: "evlog", Ops: n, Run: func(int) { drain(b, s.driver, c.query) }},
				&turns.Side{Name: "native", Ops: n, Run: func(int) { drain(b, s.native, c.query) }})
		})
	}
}

// drain reads all rows without looking at them.
func drain(b *testing.B, db *sql.DB, query string) {
	rows, err := db.Query(query)
	require.NoError(b, err)
	defer rows.Close()
	columns, err := rows.Columns()
	require.NoError(b, err)
	values := make([]any, len(columns))
	for i := range values {
		values[i] = new(sql.RawBytes)
	}
	for rows.Next() {
		if err := rows.Scan(values...); err != nil {
			b.Fatal(err)
		}
		sink++
	}
	require.NoError(b, rows.Err())
}

func BenchmarkSQLDriverGet(b *testing.B) {
	for _, reader := range []string{"own", "other"} {
		b.Run("reader="+reader, func(b *testing.B) {
			const n = 100_000
			s := newSQLSides(b, n, 100)
			db := s.driver
			if reader == "other" {
				st, err := s.log.Reader().Status(background)
				require.NoError(b, err)
				db, err = sql.Open("evlog", st.Path)
				require.NoError(b, err)
				b.Cleanup(func() { require.NoError(b, db.Close()) })
			}
			turns.Take(b, 0, getSQL(b, "evlog", db, n), getSQL(b, "native", s.native, n))
		})
	}
}

func getSQL(b *testing.B, name string, db *sql.DB, n int) *turns.Side {
	st, err := db.Prepare(`SELECT ts_ms, schema, key, value FROM log WHERE offset = ?`)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, st.Close()) })
	return getSide(name, n, func(offset int) {
		var ts, schema int64
		var key, value []byte
		if err := st.QueryRow(offset).Scan(&ts, &schema, &key, &value); err != nil {
			b.Fatal(err)
		}
	})
}

// Beside the table of tablelog, which has the columns that the log has, stands a
// plain one: computed columns cost on INSERT too.
func BenchmarkSQLDriverInsert(b *testing.B) {
	for _, batch := range []int{1000, 1} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			s := newSQLSides(b, 0, 100)
			_, err := s.native.Exec(`CREATE TABLE plain ("offset" INTEGER PRIMARY KEY, ts_ms INTEGER NOT NULL,
				schema INTEGER NOT NULL, key, value)`)
			require.NoError(b, err)
			records := makeTextRecords(1000, 100)
			n := 20 * batch
			if batch == 1 {
				n = 100
			}
			const columns = `(ts_ms, schema, key, value) VALUES (?, ?, ?, ?)`
			insertSQL(b, s.native, `INSERT INTO log `+columns, records, growing(records), len(records)) // see sqliteLog.grown
			turns.Take(b, limit.RecordSize(100),
				&turns.Side{Name: "evlog", Ops: n, Run: func(n int) {
					insertSQL(b, s.driver, `INSERT INTO log `+columns, records, n, batch)
				}},
				&turns.Side{Name: "native", Ops: n, Run: func(n int) {
					insertSQL(b, s.native, `INSERT INTO log `+columns, records, n, batch)
				}},
				&turns.Side{Name: "plain", Ops: n, Run: func(n int) {
					insertSQL(b, s.native, `INSERT INTO plain `+columns, records, n, batch)
				}})
		})
	}
}

// insertSQL inserts n records in transactions of batch.
func insertSQL(b *testing.B, db *sql.DB, query string, records []evlog.Record, n, batch int) {
	st, err := db.Prepare(query)
	require.NoError(b, err)
	defer st.Close()
	for at := 0; at < n; at += batch {
		tx, err := db.BeginTx(context.Background(), nil)
		require.NoError(b, err)
		in := tx.Stmt(st)
		for i := range batch {
			r := records[(at+i)%len(records)]
			if _, err := in.Exec(int64(1), int64(r.Schema), string(r.Key), string(r.Value)); err != nil {
				b.Fatal(err)
			}
		}
		require.NoError(b, in.Close())
		require.NoError(b, tx.Commit())
	}
}
