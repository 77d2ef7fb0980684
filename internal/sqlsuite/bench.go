package sqlsuite

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/sqlbridge"
)

// Benchmark compares the two on a driver: those of internal/drivers, that is; the
// main module has internal/bench. Each iteration is one turn of each side.
func Benchmark(b *testing.B, d Driver) {
	for _, c := range []struct{ batch, records int }{{1000, 20_000}, {1, 300}} {
		b.Run(fmt.Sprintf("batch=%d", c.batch), func(b *testing.B) {
			recs := make([]evlog.Record, c.records)
			for i := range recs {
				recs[i] = evlog.Record{Key: fmt.Appendf(nil, "key-%012d", i%1000), Value: make([]byte, 100)}
			}
			x := NewBench(b, d, Modes[0], recs, c.batch, sqlbridge.RunOptions{})
			sides := []func(){x.Bridge, func() { x.Plain(false) }, func() { x.Plain(true) }}
			took := make([][]float64, len(sides))
			for turn := 0; b.Loop(); turn++ {
				for i := range sides {
					side := (turn + i) % len(sides)
					x.Reset()
					start := time.Now()
					sides[side]()
					took[side] = append(took[side], float64(time.Since(start))/float64(c.records))
				}
			}
			for i := range took {
				slices.Sort(took[i])
			}
			median := func(side int) float64 { return took[side][len(took[side])/2] }
			b.ReportMetric(median(0), "ns/op")
			b.ReportMetric(median(1)/median(0), "ratio")
			b.ReportMetric(median(2)/median(0), "ratio-by-hand")
		})
	}
}

// Bench does the same work in two ways: with package sqlbridge from a log, and
// without any log or cursor, as the best an application can do by hand.
type Bench struct {
	tb    testing.TB
	batch int
	opts  sqlbridge.RunOptions
	recs  []evlog.Record

	log    *evlog.Log
	db     *sql.DB
	b      *sqlbridge.Bridge
	turns  int
	plain  *sql.DB
	insert *sql.Stmt
	move   *sql.Stmt
}

const benchSQL = `INSERT INTO effect (key, value) VALUES (?1, ?2)`

// NewBench prepares both. A transaction holds batch records.
func NewBench(tb testing.TB, d Driver, m Mode, recs []evlog.Record, batch int, opts sqlbridge.RunOptions) *Bench {
	tb.Helper()
	x := &Bench{tb: tb, batch: batch, opts: opts, recs: recs, db: benchDB(tb, d, m), plain: benchDB(tb, d, m)}
	x.opts.BatchRecords, x.opts.BatchTime, x.opts.UntilEnd = batch, -1, true
	_, err := x.plain.Exec(`INSERT INTO position (name, next) VALUES ('me', 0)`)
	require.NoError(tb, err)
	x.insert, err = x.plain.Prepare(benchSQL)
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = x.insert.Close() })
	x.move, err = x.plain.Prepare(`UPDATE position SET next = next + ?1 WHERE name = 'me'`)
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = x.move.Close() })
	x.b, err = sqlbridge.Open(tb.Context(), x.db, nil)
	require.NoError(tb, err)
	x.log, err = evlog.Open(tb.Context(), filepath.Join(tb.TempDir(), "log"), &evlog.Options{Sync: evlog.SyncFlush})
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = x.log.Close() })
	_, err = x.log.Append(tb.Context(), recs...)
	require.NoError(tb, err)
	return x
}

func benchDB(tb testing.TB, d Driver, m Mode) *sql.DB {
	tb.Helper()
	db, err := sql.Open(d.Name, m.dsn(filepath.Join(tb.TempDir(), "app.db"), 5000))
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = db.Close() })
	for _, query := range []string{
		`CREATE TABLE effect (id INTEGER PRIMARY KEY, key BLOB, value BLOB) STRICT`,
		`CREATE TABLE position (name TEXT PRIMARY KEY, next INTEGER NOT NULL) STRICT`,
	} {
		_, err = db.Exec(query)
		require.NoError(tb, err)
	}
	return db
}

// Reset empties the tables, so that turns do the same work.
func (x *Bench) Reset() {
	for _, db := range []*sql.DB{x.db, x.plain} {
		for _, query := range []string{`DELETE FROM effect`, `PRAGMA wal_checkpoint(TRUNCATE)`} {
			if _, err := db.Exec(query); err != nil {
				x.tb.Fatal(err)
			}
		}
	}
}

// Bridge applies the whole log to a new consumer.
func (x *Bench) Bridge() {
	x.turns++
	err := x.b.Run(x.tb.Context(), x.log.Reader(), fmt.Sprintf("consumer %d", x.turns),
		func(ctx context.Context, tx *sqlbridge.Tx, rec evlog.Record) error {
			_, err := tx.ExecContext(ctx, benchSQL, rec.Key, rec.Value)
			return err
		}, &x.opts)
	if err != nil {
		x.tb.Fatal(err)
	}
}

// Plain writes the same with prepared statements: the effects alone, or with a
// cursor that is moved by hand in the same transaction.
func (x *Bench) Plain(cursor bool) {
	// The context of a benchmark can be cancelled, for which drivers start a
	// goroutine with each statement. That is not what is measured.
	ctx := context.WithoutCancel(x.tb.Context())
	for from := 0; from < len(x.recs); from += x.batch {
		if err := x.transaction(ctx, x.recs[from:min(from+x.batch, len(x.recs))], cursor); err != nil {
			x.tb.Fatal(err)
		}
	}
}

func (x *Bench) transaction(ctx context.Context, recs []evlog.Record, cursor bool) error {
	tx, err := x.plain.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	st := tx.StmtContext(ctx, x.insert)
	for _, r := range recs {
		if _, err := st.ExecContext(ctx, r.Key, r.Value); err != nil {
			return err
		}
	}
	if cursor {
		if _, err := tx.StmtContext(ctx, x.move).ExecContext(ctx, len(recs)); err != nil {
			return err
		}
	}
	return tx.Commit()
}
