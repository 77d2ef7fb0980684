package bench

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/cursor"
	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/bench/limit"
	"github.com/evlog-go/evlog/internal/bench/turns"
	"github.com/evlog-go/evlog/sqlbridge/tablelog"
)

// Table: the same work on a log and on package tablelog, a log in an SQLite table
// behind the same interface: what "When a table is enough" in README.md rests on.
func BenchmarkTable(b *testing.B) {
	records := makeTextRecords(1000, 100)
	for _, c := range []struct {
		name    string
		callers int
		ops     int
	}{{"append/callers=1", 1, 50}, {"append/callers=64", 64, 640}} {
		b.Run(c.name, func(b *testing.B) {
			l, table := openLog(b, b.TempDir(), nil), openTable(b)
			inBatches(b, growing(records), records, l.Append) // see sqliteLog.grown
			inBatches(b, growing(records), records, table.Append)
			turns.Take(b, limit.RecordSize(100),
				appendSide("evlog", c.callers, c.ops, records, func(r evlog.Record) error {
					_, err := l.Append(background, r)
					return err
				}),
				appendSide("table", c.callers, c.ops, records, func(r evlog.Record) error {
					_, err := table.Append(background, r)
					return err
				}))
		})
	}
	b.Run("append/batch=1000", func(b *testing.B) {
		l, table := openLog(b, b.TempDir(), nil), openTable(b)
		const n = 10_000
		inBatches(b, growing(records), records, l.Append)
		inBatches(b, growing(records), records, table.Append)
		turns.Take(b, limit.RecordSize(100),
			&turns.Side{Name: "evlog", Ops: n, Run: func(int) { inBatches(b, n, records, l.Append) }},
			&turns.Side{Name: "table", Ops: n, Run: func(int) { inBatches(b, n, records, table.Append) }})
	})
	b.Run("scan", func(b *testing.B) {
		l, table := openLog(b, b.TempDir(), nil), openTable(b)
		const n = 50_000
		inBatches(b, n, records, l.Append)
		inBatches(b, n, records, table.Append)
		turns.Take(b, limit.RecordSize(100),
			&turns.Side{Name: "evlog", Ops: n, Run: func(int) { countAll(b, n, l.Reader()) }},
			&turns.Side{Name: "table", Ops: n, Run: func(int) { countAll(b, n, table) }})
	})
	// The older half goes; an op is a record that goes.
	b.Run("remove", func(b *testing.B) {
		l, table := openLog(b, b.TempDir(), &evlog.Options{SegmentBytes: 4 << 20}), openTable(b)
		const n = 100_000
		turns.Take(b, 0,
			&turns.Side{Name: "evlog", Ops: n / 2, Before: func() { inBatches(b, n, records, l.Append) }, Run: func(int) {
				_, err := l.Retain(background, &evlog.RetainOptions{Below: l.Stats().NextOffset - n/2})
				require.NoError(b, err)
			}},
			&turns.Side{Name: "table", Ops: n / 2, Before: func() { inBatches(b, n, records, table.Append) }, Run: func(int) {
				_, next, err := table.Bounds(background)
				require.NoError(b, err)
				require.NoError(b, table.RemoveBelow(background, next-n/2))
			}})
	})
}

// openTable opens a log in a table as durable as the other one.
func openTable(b *testing.B) *tablelog.Log {
	db, err := sql.Open("sqlite", filepath.Join(b.TempDir(), "log.db")+
		"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(60000)")
	require.NoError(b, err)
	db.SetMaxOpenConns(1)
	b.Cleanup(func() { require.NoError(b, db.Close()) })
	l, err := tablelog.Open(background, db, nil)
	require.NoError(b, err)
	return l
}

func appendSide(name string, callers, n int, records []evlog.Record, one func(evlog.Record) error) *turns.Side {
	s := &turns.Side{Name: name, Ops: n}
	s.Run = func(n int) {
		s.Lat.Together(callers, n, func(i int) {
			if err := one(records[i%len(records)]); err != nil {
				panic(err)
			}
		})
	}
	return s
}

func inBatches(
	b *testing.B, n int, records []evlog.Record, appendAll func(context.Context, ...evlog.Record) (uint64, error),
) {
	for at := 0; at < n; at += len(records) {
		if _, err := appendAll(background, records...); err != nil {
			b.Fatal(err)
		}
	}
}

func countAll(b *testing.B, want int, l cursor.Log) {
	n := 0
	for rec, err := range l.Records(background, 0) {
		if err != nil {
			b.Fatal(err)
		}
		sink += len(rec.Value)
		n++
	}
	if n != want {
		b.Fatal(n)
	}
}
