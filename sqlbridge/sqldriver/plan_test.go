package sqldriver_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/sqlbridge/sqldriver"
)

// What a query visits, counted in records by the reader. The log has 1,000
// records of 400 bytes in ten segments, an index entry for every tenth, times that
// rise by one, ten keys that are everywhere, and one in the seventh segment.
func TestPlan_Visits(t *testing.T) {
	for _, own := range []bool{true, false} {
		t.Run(fmt.Sprintf("own=%v", own), func(t *testing.T) {
			p := onDisk(t)
			l, err := evlog.Open(p.ctx, p.dir, &evlog.Options{SegmentBytes: 40_000, IndexBytes: 4000, Sync: evlog.SyncFlush})
			require.NoError(t, err)
			for i := range 1000 {
				key := fmt.Appendf(nil, "key-%d", i%10)
				if i == 650 {
					key = []byte("key-x")
				}
				_, err := l.Enqueue(p.ctx, evlog.Record{Time: at(int64(5000 + i)), Key: key, Value: make([]byte, 400-28-5)})
				require.NoError(t, err)
			}
			require.NoError(t, l.Close()) // so that every segment has its index
			l, err = evlog.Open(p.ctx, p.dir, nil)
			require.NoError(t, err)
			_, err = l.Reindex(p.ctx, nil) // and its key filter
			require.NoError(t, err)
			r := l.Reader()
			c, err := sqldriver.NewLogConnector(p.ctx, l)
			require.NoError(t, err)
			if !own {
				require.NoError(t, l.Close())
				require.NoError(t, c.Close())
				r, err = evlog.OpenReader(p.ctx, p.dir, nil)
				require.NoError(t, err)
				defer func() { require.NoError(t, r.Close()) }()
				c, err = sqldriver.NewReaderConnector(p.ctx, r)
				require.NoError(t, err)
			} else {
				defer func() { require.NoError(t, l.Close()) }()
			}
			db := sql.OpenDB(c)
			defer func() { require.NoError(t, db.Close()) }()
			for _, v := range visits {
				for range 2 { // the second time with what the first one has left in caches
					before := r.Visited()
					got := mustQuery(t, db, v.query, v.args...)
					require.Len(t, got, v.rows, v.query)
					visited := int(r.Visited() - before)
					require.LessOrEqual(t, visited, v.most, v.query)
					require.GreaterOrEqual(t, visited, min(v.rows, v.most), v.query)
				}
			}
		})
	}
}

var visits = []struct {
	query string
	args  []any
	rows  int
	most  int // records visited
}{
	// An offset is reached from the index entry before it.
	{`SELECT * FROM log WHERE offset = 555`, nil, 1, 10},
	{`SELECT * FROM log WHERE rowid = ?`, []any{555}, 1, 10},
	{`SELECT * FROM log WHERE offset = 5555`, nil, 0, 0},
	{`SELECT * FROM log WHERE offset = -1`, nil, 0, 0},
	{`SELECT * FROM log WHERE offset = 5.5`, nil, 0, 0},
	{`SELECT * FROM log WHERE offset = 5.0`, nil, 1, 10},
	{`SELECT * FROM log WHERE offset = NULL`, nil, 0, 0},
	{`SELECT * FROM log WHERE offset > NULL`, nil, 0, 0},
	{`SELECT * FROM log WHERE offset IN (1, 2, 3, 500, 9999)`, nil, 4, 40},
	{`SELECT * FROM log WHERE offset IN (SELECT value FROM json_each('[1,1,700]'))`, nil, 2, 20},

	// Scans end where they need not go on.
	{`SELECT * FROM log WHERE offset >= 500 LIMIT 10`, nil, 10, 10},
	{`SELECT * FROM log WHERE offset > 555 LIMIT 10`, nil, 10, 20},
	{`SELECT * FROM log LIMIT 3`, nil, 3, 3},
	{`SELECT * FROM log LIMIT 3 OFFSET 4`, nil, 3, 7},
	{`SELECT * FROM log ORDER BY offset LIMIT 3`, nil, 3, 3},
	{`SELECT * FROM log WHERE offset >= 500 AND offset < 510`, nil, 10, 10},
	{`SELECT * FROM log WHERE offset BETWEEN 500 AND 509`, nil, 10, 10},
	{`SELECT * FROM log WHERE offset BETWEEN ?1 AND ?2`, []any{499.5, 509.5}, 10, 10},
	{`SELECT * FROM log WHERE offset >= 500 AND offset < 510 AND offset < 505`, nil, 5, 5},
	{`SELECT * FROM (SELECT * FROM log WHERE offset >= 0) WHERE offset >= 990`, nil, 10, 10},
	{`SELECT * FROM log WHERE ts_ms >= 0 AND ts_ms >= 5995`, nil, 5, 20},
	{`SELECT * FROM log WHERE offset = ?`, []any{"500"}, 1, 1},
	{`SELECT * FROM log WHERE offset >= ? AND offset < '992'`, []any{"990"}, 2, 2},
	{`SELECT * FROM log WHERE ts_ms = '5555'`, nil, 1, 60},
	{`SELECT * FROM log WHERE segment = '500'`, nil, 100, 100},
	{`SELECT * FROM log WHERE offset > 9223372036854775807`, nil, 0, 0},
	{`SELECT * FROM log WHERE offset >= 1e30`, nil, 0, 0},
	{`SELECT * FROM log WHERE offset <= 1e30 LIMIT 1`, nil, 1, 1},
	{`SELECT * FROM log WHERE offset < 0`, nil, 0, 0},
	{`SELECT * FROM log WHERE offset < 10 AND offset > 20`, nil, 0, 0},
	{`SELECT 1 WHERE EXISTS (SELECT 1 FROM log)`, nil, 1, 1},

	// Newest first: whole blocks of the index are read to find their records.
	{`SELECT * FROM log ORDER BY offset DESC LIMIT 3`, nil, 3, 20},
	{`SELECT * FROM log WHERE offset < 500 ORDER BY offset DESC LIMIT 1`, nil, 1, 20},
	{`SELECT * FROM log WHERE offset > 989 ORDER BY rowid DESC`, nil, 10, 30},
	{`SELECT * FROM log WHERE key = 'key-3' ORDER BY offset DESC LIMIT 1`, nil, 1, 30},
	{`SELECT max(offset) FROM log`, nil, 1, 20},
	{`SELECT min(offset) FROM log`, nil, 1, 1},

	// Times: from an index entry to the end of the segment.
	{`SELECT * FROM log WHERE ts_ms = 5555`, nil, 1, 60},
	{`SELECT * FROM log WHERE ts_ms >= 5555 AND ts_ms < 5560`, nil, 5, 60},
	{`SELECT * FROM log WHERE ts_ms BETWEEN 5590 AND 5609`, nil, 20, 120},
	{`SELECT * FROM log WHERE ts_ms >= 5995`, nil, 5, 20},
	{`SELECT * FROM log WHERE ts_ms > 6000`, nil, 0, 20},
	{`SELECT * FROM log WHERE ts_ms < 5010`, nil, 10, 100},
	{`SELECT * FROM log WHERE ts_ms < 5000`, nil, 0, 0},
	{`SELECT * FROM log WHERE ts_ms = 5555.5`, nil, 0, 0},
	{`SELECT * FROM log WHERE ts_ms >= 5555 LIMIT 2`, nil, 2, 10},
	{`SELECT * FROM log WHERE ts_ms >= 5555 AND offset < 560`, nil, 5, 20},
	{`SELECT * FROM log WHERE ts_ms <= 5555 ORDER BY offset DESC LIMIT 1`, nil, 1, 110},
	{`SELECT * FROM log WHERE time = '1970-01-01T00:00:05.555Z'`, nil, 1, 60},
	{`SELECT * FROM log WHERE time >= '1970-01-01T00:00:05.990Z'`, nil, 10, 20},
	{`SELECT * FROM log WHERE time < '1970-01-01T00:00:05.010Z'`, nil, 10, 100},
	{`SELECT * FROM log WHERE time > '1970-01-02'`, nil, 0, 20},
	{`SELECT * FROM log WHERE time < '1970-01-01'`, nil, 0, 1000},
	{`SELECT * FROM log WHERE time >= ?`, []any{at(5995)}, 5, 20},

	// Keys, segments, and joins.
	{`SELECT * FROM log WHERE key = 'key-3' AND offset >= 500 AND offset < 520`, nil, 2, 20},
	{`SELECT * FROM log WHERE key = 'key-3' LIMIT 2`, nil, 2, 14},
	{`SELECT * FROM log WHERE key = 'key-x'`, nil, 1, 200},
	{`SELECT * FROM log WHERE key = 'key-x' AND offset < 700`, nil, 1, 100},
	{`SELECT * FROM log WHERE key = 'key-x' AND offset < 800 ORDER BY offset DESC`, nil, 1, 100},
	{`SELECT * FROM log WHERE key = 'nobody' AND offset < 900`, nil, 0, 0},
	{`SELECT * FROM log WHERE key IN ('key-x', 'nobody') AND offset < 900`, nil, 1, 100},
	{`SELECT * FROM log WHERE key = 'key-x' COLLATE NOCASE`, nil, 1, 1000},
	{`SELECT * FROM log WHERE key = ''`, nil, 0, 0},
	{`SELECT * FROM log WHERE key = NULL`, nil, 0, 0},
	{`SELECT * FROM log WHERE segment = 500`, nil, 100, 100},
	{`SELECT * FROM log WHERE segment = 501`, nil, 0, 0},
	{`SELECT count(*) FROM segments s JOIN log l ON l.segment = s.base GROUP BY s.base`, nil, 10, 1000},
	{`SELECT b.offset FROM log a JOIN log b ON b.offset = a.offset + 1 WHERE a.offset BETWEEN 500 AND 504`, nil, 5, 60},
	{`SELECT b.offset FROM json_each('[5, 500]') j JOIN log b ON b.offset = j.value`, nil, 2, 20},
}

// A connection that was opened on an empty log looks up what it joins, and does not
// read all of what has come since.
func TestPlan_OpenedEmpty(t *testing.T) {
	p := inMem(t)
	p.create(t, nil)
	db := p.open(t, "")
	for q, want := range map[string]string{
		`SELECT * FROM json_each('[1, 2]') j JOIN log ON log.offset = j.value`: `"SCAN log VIRTUAL TABLE INDEX 0:offset="`,
		`SELECT * FROM segments s JOIN log ON log.offset = s.base`:             `"SCAN log VIRTUAL TABLE INDEX 0:offset="`,
		`SELECT * FROM log a JOIN log b ON a.key = b.key WHERE a.schema = 3`:   ` VIRTUAL TABLE INDEX 0:key="`,
		`SELECT * FROM json_each('["x"]') j JOIN log ON log.segment = j.value`: `"SCAN log VIRTUAL TABLE INDEX 0:segment="`,
	} {
		lines := mustQuery(t, db, "EXPLAIN QUERY PLAN "+q)
		require.Contains(t, strings.Join(lines, "\n"), want, q)
	}
}

// What EXPLAIN QUERY PLAN shows: which comparisons narrow the scan, and that
// SQLite does not sort what comes in order.
func TestPlan_Explain(t *testing.T) {
	p := inMem(t)
	p.create(t, nil)
	db := p.open(t, "")
	for q, want := range map[string]string{
		`SELECT * FROM log`: `SCAN log VIRTUAL TABLE INDEX 0:`,
		`SELECT * FROM log WHERE offset > 5 AND offset > 6 AND key = 'x' AND key = 'y'`:    `SCAN log VIRTUAL TABLE INDEX 0:offset> offset> key=`,
		`SELECT * FROM log WHERE key = 'x' COLLATE NOCASE`:                                 `SCAN log VIRTUAL TABLE INDEX 0:`,
		`SELECT * FROM log WHERE key = 'x' ORDER BY offset DESC`:                           `SCAN log VIRTUAL TABLE INDEX 0:key= desc`,
		`SELECT * FROM log WHERE ts_ms >= 5 AND time < '2026' ORDER BY rowid, key`:         `SCAN log VIRTUAL TABLE INDEX 0:ts_ms>= time<`,
		`SELECT * FROM log WHERE segment = 5 AND offset <= 7 AND segment > 3`:              `SCAN log VIRTUAL TABLE INDEX 0:segment= offset<=`,
		`SELECT * FROM log WHERE key IS NULL AND value = 'x' AND schema = 1 AND key > 'a'`: `SCAN log VIRTUAL TABLE INDEX 0:`,
	} {
		lines := mustQuery(t, db, "EXPLAIN QUERY PLAN "+q)
		require.Len(t, lines, 1, "%s: %v", q, lines)
		require.Contains(t, lines[0], `"`+want+`"`, q)
	}
	lines := mustQuery(t, db, `EXPLAIN QUERY PLAN SELECT * FROM log ORDER BY ts_ms`)
	require.Contains(t, lines[len(lines)-1], "USE TEMP B-TREE FOR ORDER BY")
}
