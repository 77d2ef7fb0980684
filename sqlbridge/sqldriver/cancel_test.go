package sqldriver_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
)

// endless are queries that would take years, in different places: in the first
// step, in a later one, in one step of the log's own scan, and away from the log,
// also when rows were returned before.
var endless = map[string]string{
	"joins":          `SELECT count(*) FROM log a, log b, log c, log d, log e`,
	"later step":     `SELECT a.offset FROM log a, log b, log c, log d, log e WHERE a.offset + b.offset + c.offset + d.offset + e.offset IN (0, -1)`,
	"no more log":    `WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c WHERE x <= 2 OR x < 0`,
	"in memory":      `WITH m AS MATERIALIZED (SELECT offset FROM log) SELECT * FROM m a, m b, m c, m d WHERE a.offset + b.offset + c.offset + d.offset IN (0, -1)`,
	"inner look-ups": `SELECT count(*) FROM log a, log b, log c, log d JOIN log e ON e.offset = a.offset`,
	"recursion":      `WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c`,
	"backwards":      `SELECT count(*) FROM log a, log b, log c, (SELECT offset FROM log ORDER BY offset DESC) d, log e`,
	"keys":           `SELECT count(*) FROM log a CROSS JOIN log b CROSS JOIN log c CROSS JOIN log e ON e.key = 'nobody' || c.offset`,
	"folded keys":    `SELECT count(*) FROM log a CROSS JOIN log b CROSS JOIN log c CROSS JOIN log e ON e.key = 'nobody' || c.offset COLLATE NOCASE`,
	"times":          `SELECT count(*) FROM log a CROSS JOIN log b CROSS JOIN log c CROSS JOIN log e ON e.ts_ms < c.ts_ms - 1000000`,
}

func TestCancel(t *testing.T) {
	p := onDisk(t)
	records := make([]evlog.Record, 2000)
	for i := range records {
		records[i] = evlog.Record{Time: at(int64(i)), Key: fmt.Appendf(nil, "key-%d", i%7), Value: []byte("value")}
	}
	p.create(t, nil, records...)
	db := p.open(t, "")
	db.SetMaxOpenConns(1)
	for name, q := range endless {
		for _, how := range []string{"deadline", "cancelled", "prepared"} {
			t.Run(name+"/"+how, func(t *testing.T) {
				// A machine that is busy with other things gets a few tries.
				took := time.Hour
				for range 5 {
					if took = min(took, cancelled(t, db, q, how)); took < 300*time.Millisecond {
						break
					}
				}
				require.Less(t, took, 300*time.Millisecond)
			})
		}
	}
}

// stuckAfter is when a query that should have ended is taken to be one that never
// does. It is long for a machine that is busy with other things.
const stuckAfter = 20 * time.Second

// cancelled runs an endless query and returns how long it went on after the end of
// its context.
func cancelled(t *testing.T, db *sql.DB, q, how string) time.Duration {
	const before = 50 * time.Millisecond
	// Nothing else gets a query out of SQLite, nor closes its connection: without this
	// the tests would hang, and say nothing.
	stuck := time.AfterFunc(before+stuckAfter, func() {
		panic(fmt.Sprintf("%s: %s: the query goes on, %v after its context has ended", how, q, stuckAfter))
	})
	defer stuck.Stop()
	ctx, stop := context.WithTimeout(t.Context(), before)
	defer stop()
	want := context.DeadlineExceeded
	if how == "cancelled" {
		ctx, stop = context.WithCancel(t.Context())
		defer stop()
		time.AfterFunc(before, stop)
		want = context.Canceled
	}
	start := time.Now()
	var err error
	if how == "prepared" {
		st, prepareErr := db.PrepareContext(t.Context(), q)
		require.NoError(t, prepareErr)
		defer func() { require.NoError(t, st.Close()) }()
		start = time.Now()
		rows, queryErr := st.QueryContext(ctx)
		if err = queryErr; err == nil {
			for rows.Next() { //nolint:revive // until it ends
			}
			err = rows.Err()
			require.NoError(t, rows.Close())
		}
	} else {
		_, err = query(ctx, db, q)
	}
	took := time.Since(start) - before
	require.ErrorIs(t, err, want)
	require.Equal(t, []string{"2000"}, mustQuery(t, db, `SELECT count(*) FROM log`), "the connection is still good")
	return took
}

// A query that is cancelled somewhere on its way disturbs nobody: what comes next on
// its connection, and in its transaction, is answered.
func TestCancel_NobodyElse(t *testing.T) {
	p := onDisk(t)
	p.create(t, nil, make([]evlog.Record, 300)...)
	db := p.open(t, "")
	db.SetMaxOpenConns(4)
	const several = `WITH m AS MATERIALIZED (SELECT offset FROM log) SELECT a.offset FROM m a, m b WHERE (a.offset + b.offset) % 50 = 0`
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			rng := evtest.Rand(uint64(time.Now().UnixNano()) + uint64(g))
			for range evtest.Count(3000) {
				c, err := db.Conn(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				ctx, cancel := context.WithCancel(t.Context())
				timer := time.AfterFunc(time.Duration(rng.IntN(3000))*time.Microsecond, cancel)
				rows, err := c.QueryContext(ctx, several)
				for n := rng.IntN(2000); err == nil && n > 0 && rows.Next(); n-- { //nolint:revive // until it ends
				}
				if err == nil {
					err = rows.Err()
					_ = rows.Close() // what it was cancelled by
				}
				if err != nil && !errors.Is(err, context.Canceled) {
					t.Errorf("the cancelled query: %v", err)
				}
				if lines, err := query(t.Context(), c, `SELECT count(*) FROM log`); err != nil || lines[0] != "300" {
					t.Errorf("the next one: %v %v", lines, err)
				}
				timer.Stop()
				cancel()
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}
