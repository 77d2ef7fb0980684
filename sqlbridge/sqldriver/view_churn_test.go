package sqldriver_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
)

// scanOf is a way to read the log inside of a statement.
type scanOf struct {
	from string // behind "SELECT offset, key, value"
	down bool
	// of says which records it has to find; nil is all of them.
	of func(key string) bool
	// byKey: in the order of keys, which offsets ascend in.
	byKey bool
	// newest: only the newest record of each key.
	newest bool
}

func hasKey(key string) bool { return key != "" }

var allKeys = func() string {
	var names []string
	for i := range churnKeys {
		names = append(names, fmt.Sprintf(`"k%d"`, i))
	}
	return `json_each('[` + strings.Join(names, ",") + `]') j`
}()

var scansOf = []scanOf{
	{from: `log`},
	{from: `(SELECT * FROM log ORDER BY offset DESC LIMIT -1)`, down: true},
	{from: `log WHERE offset >= 0 AND offset < 1000000000`},
	{from: `log WHERE ts_ms >= 0`},
	{from: `(SELECT * FROM log WHERE ts_ms >= 0 ORDER BY offset DESC LIMIT -1)`, down: true},
	{from: `(SELECT DISTINCT segment s FROM log) CROSS JOIN log ON segment = s`},
	{from: `(SELECT b.* FROM log a CROSS JOIN log b ON b.offset = a.offset)`},
	{from: `(SELECT b.* FROM log a CROSS JOIN log b ON b.offset = a.offset ORDER BY a.offset DESC)`, down: true},
	{from: `log WHERE key IS NULL`, of: func(key string) bool { return key == "" }},
	{from: allKeys + ` CROSS JOIN log ON log.key = j.value`, of: hasKey, byKey: true},
	{from: allKeys + ` CROSS JOIN log ON offset = (SELECT max(offset) FROM log WHERE log.key = j.value)`, of: hasKey, byKey: true, newest: true},
	{from: allKeys + ` CROSS JOIN log ON offset = (SELECT offset FROM log WHERE log.key = j.value ORDER BY offset DESC LIMIT 1)`, of: hasKey, byKey: true, newest: true},
}

// sawOf is what the scans of one state have seen: of each, offsets in order.
type sawOf struct {
	scans []scanOf
	rows  [][]uint64
}

// read runs one statement of a few scans. Each row has to be what its offset says.
func (s *sawOf) read(ctx context.Context, db querier, rng *rand.Rand) error {
	first := len(s.scans)
	var parts []string
	for range 2 + rng.IntN(3) {
		scan := scansOf[rng.IntN(len(scansOf))]
		columns := `offset, log.key, log.value`
		if scan.from[0] == '(' && !strings.Contains(scan.from, "CROSS JOIN log ON segment") {
			columns = `offset, key, value`
		}
		parts = append(parts, fmt.Sprintf(`SELECT %d, %s FROM %s`, len(s.scans), columns, scan.from))
		s.scans, s.rows = append(s.scans, scan), append(s.rows, nil)
	}
	rows, err := db.QueryContext(ctx, strings.Join(parts, "\nUNION ALL\n"))
	if err != nil {
		return err
	}
	defer rows.Close()
	at := first
	for rows.Next() {
		var scan int
		var offset uint64
		var key, value sql.NullString
		if err := rows.Scan(&scan, &offset, &key, &value); err != nil {
			return err
		}
		want := churned(offset)
		if key.String != string(want.Key) || value.String != string(want.Value) {
			return fmt.Errorf("offset %d has key %q and value %q", offset, key.String, value.String)
		}
		if scan < at {
			return fmt.Errorf("rows of scan %d behind those of %d", scan, at)
		}
		at = scan
		s.rows[scan] = append(s.rows[scan], offset)
	}
	return rows.Err()
}

// between is what is known of the state that was read: the log's bounds before and
// after, and the time after.
type between struct {
	first, next         uint64 // after
	least               uint64 // next before
	ms                  int64
	gone, gonePartially int // counted: records that compaction had removed, and those that another scan saw
}

// check tells where what was seen is not what a statement promises:
//
//   - each scan goes through the log in its order, and sees no record twice
//   - records without a key are the same in all scans, without one missing
//   - what has a key is there unless a newer record of the key was in a segment that
//     compaction may count: one that has been closed for its MinLag
//   - nothing is above the end of what was durable
func (s *sawOf) check(c *churn, b *between) error {
	lowest, end := b.first, b.least
	var all []uint64
	for i, rows := range s.rows {
		if err := s.scans[i].inOrder(rows); err != nil {
			return fmt.Errorf("scan %d: %w: %v", i, err, rows)
		}
		all = append(all, rows...)
	}
	if len(all) > 0 {
		lowest, end = min(lowest, slices.Min(all)), max(end, slices.Max(all)+1)
	}
	if end > b.next {
		return fmt.Errorf("offset %d was not durable, the end was %d", end-1, b.next)
	}
	if !c.await(b.next) {
		return errors.New("the writer has ended")
	}
	slices.Sort(all)
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, scan := range s.scans {
		seen := slices.Sorted(slices.Values(s.rows[i]))
		for n := lowest; n < end; n++ {
			if len(seen) > 0 && seen[0] == n {
				seen = seen[1:]
				continue
			}
			r := &c.told[n]
			hasNewer := r.newer > 0 && r.newer < b.next
			if scan.of != nil && !scan.of(r.key) || scan.newest && hasNewer {
				continue // the newest of a key may be one above end
			}
			// A tombstone without a grace goes by itself.
			excused := hasNewer && (c.lag == 0 || c.told[r.newer].ms <= b.ms-c.lag.Milliseconds()) || r.tombstone && c.lag == 0
			if !excused {
				return fmt.Errorf("scan %d has no offset %d of key %q (the next one is %d), bounds %+v, seen:%s",
					i, n, r.key, r.newer, *b, s.runs())
			}
			b.gone++
			if _, elsewhere := slices.BinarySearch(all, n); elsewhere {
				b.gonePartially++
			}
		}
	}
	return nil
}

// runs shows what the scans have seen, as runs of offsets.
func (s *sawOf) runs() string {
	var b strings.Builder
	for i, scan := range s.scans {
		rows := slices.Sorted(slices.Values(s.rows[i]))
		fmt.Fprintf(&b, "\n%d %s:", i, scan.from)
		for at := 0; at < len(rows); {
			from := at
			for at++; at < len(rows) && rows[at] == rows[at-1]+1; at++ {
			}
			fmt.Fprintf(&b, " %d-%d", rows[from], rows[at-1])
		}
	}
	return b.String()
}

func (scan *scanOf) inOrder(rows []uint64) error {
	for i := 1; i < len(rows); i++ {
		before, n := rows[i-1], rows[i]
		if scan.byKey && string(churned(before).Key) != string(churned(n).Key) {
			continue
		}
		if scan.newest || before == n || scan.down != (n < before) {
			return fmt.Errorf("%d behind %d", n, before)
		}
	}
	if scan.byKey { // no key comes twice
		var keys []string
		for _, n := range rows {
			if key := string(churned(n).Key); len(keys) == 0 || keys[len(keys)-1] != key {
				keys = append(keys, key)
			}
		}
		n := len(keys)
		slices.Sort(keys)
		if len(slices.Compact(keys)) != n {
			return errors.New("a key comes twice")
		}
	}
	return nil
}

// Statements beside a process that appends, rolls, compacts and removes the old end
// as fast as it can. Each sees one state, or is overtaken by retention and says so.
func TestView_Churn(t *testing.T) {
	for _, lag := range []string{"0s", "20ms", "default"} {
		t.Run("lag="+lag, func(t *testing.T) {
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			c := startChurn(t, lag)
			r, err := evlog.OpenReader(c.p.ctx, c.p.dir, nil)
			require.NoError(t, err)
			defer func() { require.NoError(t, r.Close()) }()
			driver, attached := c.p.open(t, ""), openAttached(t, c.p, "log")
			var answers, overtaken, gone, partially atomic.Int64
			var wg sync.WaitGroup
			for g := range 8 {
				wg.Go(func() {
					rng := evtest.Rand(seed + uint64(g))
					// Until compaction was met too; at most for a minute.
					until := time.Now().Add(time.Minute)
					for n := 0; n < evtest.Count(500) || lag != "default" && gone.Load() == 0 && time.Now().Before(until); n++ {
						db, inTx := driver, g%4 == 0
						if g%4 == 1 {
							db = attached
						}
						b, err := churnOnce(c, r, db, inTx, rng)
						switch {
						case t.Failed():
							return
						case err == nil:
							answers.Add(1)
							gone.Add(int64(b.gone))
							partially.Add(int64(b.gonePartially))
						case isOvertaken(err, db == attached):
							overtaken.Add(1)
						default:
							t.Error(err)
							return
						}
						if err := c.grow(); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			t.Logf("%d answers, %d overtaken by retention, %d records removed by compaction, %d of them seen by another scan of the statement",
				answers.Load(), overtaken.Load(), gone.Load(), partially.Load())
			require.Positive(t, answers.Load())
			require.Equal(t, lag == "default", gone.Load() == 0)
			c.stop(t)
		})
	}
}

// churnOnce runs a statement, or two in a transaction, and checks what was seen.
func churnOnce(c *churn, r *evlog.Reader, db *sql.DB, inTx bool, rng *rand.Rand) (b between, err error) {
	ctx := c.p.ctx
	if _, b.least, err = r.Bounds(ctx); err != nil {
		return b, err
	}
	var saw sawOf
	if inTx {
		err = inTransaction(ctx, db, func(tx *sql.Tx) error {
			return errors.Join(saw.read(ctx, tx, rng), saw.read(ctx, tx, rng))
		})
	} else {
		err = saw.read(ctx, db, rng)
	}
	if err != nil {
		return b, err
	}
	b.ms = time.Now().UnixMilli()
	if b.first, b.next, err = r.Bounds(ctx); err != nil {
		return b, err
	}
	return b, saw.check(c, &b)
}

func inTransaction(ctx context.Context, db *sql.DB, f func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	return errors.Join(f(tx), tx.Rollback())
}

// isOvertaken: an error that says what was asked for and what is left, or, out of an
// attached table, its text, which a step does not keep.
func isOvertaken(err error, attached bool) bool {
	var below *evlog.OffsetError
	if errors.As(err, &below) {
		return below.Asked < below.First
	}
	return attached && (strings.Contains(err.Error(), "is below the first one left") || strings.Contains(err.Error(), "SQL logic error"))
}
