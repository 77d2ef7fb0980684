package sqldriver_test

import (
	"database/sql"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	sqlite "modernc.org/sqlite"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/internal/vfs"
	"github.com/evlog-go/evlog/sqlbridge/sqldriver"
	"github.com/evlog-go/evlog/sqlbridge/tablelog"
)

// Random queries over random logs have the answers that the same queries have
// over an ordinary table with the same records.
func TestDifferential(t *testing.T) {
	evtest.Seeds(t, 5000, func(t *testing.T, seed uint64) {
		d := newDifferential(t, seed)
		for range 25 {
			d.compare(t)
		}
	})
}

// The same for the table that Attach makes in an application's own connection.
func TestDifferential_Attached(t *testing.T) {
	evtest.Seeds(t, 500, func(t *testing.T, seed uint64) {
		d := newDifferential(t, seed)
		d.sides[0] = attachedCopy(t, d)
		for range 25 {
			d.compare(t)
		}
	})
}

// Comparisons in which types and collations decide, each with each.
func TestDifferential_Corners(t *testing.T) {
	texts := []string{
		"5", "05", "5.0", " 5", "5 ", "k", "K", "k ", "k  ", "K ", "k\x00a", "K\x00a", "k\x00b", "k\x00a ", "k\x00", "\x00", "\xff", "", " ",
		"ä", "Ä", "12000", "2023-11-14T22:13:20.000Z", "2023-11-14t22:13:20.000z", "2023-11-14T22:13:20,500Z", "2023-11-14 22:13:20", "2023-11-14",
	}
	d := &differential{}
	for i, s := range texts {
		d.records = append(d.records, evlog.Record{Offset: uint64(i), Time: time.UnixMilli(1_700_000_000_000), Key: []byte(s)})
		if s == "12000" { // a year that the column time cannot show
			d.records[i].Time = time.Date(12_000, 1, 1, 0, 0, 0, 0, time.UTC)
		}
	}
	p, _ := inMemory(t)
	l, err := evlog.Open(p.ctx, p.dir, &evlog.Options{IndexBytes: 1})
	require.NoError(t, err)
	require.NoError(t, l.AppendExact(p.ctx, d.records...))
	require.NoError(t, l.Close())
	d.table(t)
	for _, db := range []*sql.DB{p.open(t, ""), attachedCopy(t, d)} {
		d.sides[0] = db
		for _, text := range texts {
			for _, v := range []any{text, []byte(text), int64(len(text)), 5.0, int64(5), nil} {
				for _, cond := range []string{
					"key = ?", "key = ? COLLATE NOCASE", "key = ? COLLATE RTRIM", "key COLLATE NOCASE = ?", "key = CAST(? AS INTEGER)",
					"key = CAST(? AS TEXT)", "key IS ?", "key IN (?, 'K')", "time = ?", "time >= ?", "time < ?", "time > ? COLLATE NOCASE", "time IS ?", "time IS NOT ?",
					"time <= ? COLLATE RTRIM", "offset = ?", "offset >= ?", "ts_ms > ?", "rowid <= ?", "schema = ?",
				} {
					q := &sqlQuery{args: []any{v}}
					q.add("SELECT offset FROM log WHERE %s", cond)
					d.check(t, q)
				}
			}
		}
	}
}

// differential is a log and a table with the same records.
type differential struct {
	seed    uint64
	rng     *rand.Rand
	records []evlog.Record
	sides   [2]*sql.DB // the log, the table
}

func newDifferential(t *testing.T, seed uint64) *differential {
	d := &differential{seed: seed, rng: evtest.Rand(seed)}
	g := evtest.NewGen(seed)
	g.Keys, g.Max, g.Mild = 1+g.Rng.IntN(6), 40, g.Rng.IntN(2) == 0
	d.records = holey(g, g.Rng.IntN(60))
	p, mem := inMemory(t)
	opts := &evlog.Options{SegmentBytes: 200 + g.Rng.Int64N(1500), IndexBytes: 1 + g.Rng.Int64N(300)}
	l, err := evlog.Open(p.ctx, p.dir, opts)
	require.NoError(t, err)
	for at := 0; at < len(d.records); {
		n := min(1+g.Rng.IntN(7), len(d.records)-at)
		require.NoError(t, l.AppendExact(p.ctx, d.records[at:at+n]...))
		at += n
	}
	table := d.table(t)
	if g.Rng.IntN(3) == 0 {
		d.retain(t, p, mem, l, table)
	}
	var c *sqldriver.Connector
	if g.Rng.IntN(2) == 0 {
		c, err = sqldriver.NewLogConnector(p.ctx, l)
		t.Cleanup(func() { require.NoError(t, l.Close()) })
	} else {
		require.NoError(t, l.Close())
		c, err = sqldriver.NewConnector(p.ctx, p.dir)
	}
	require.NoError(t, err)
	db := sql.OpenDB(c)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	d.sides[0] = db
	return d
}

// holey makes n records with offsets that have holes between them, and times some
// of which are equal.
func holey(g *evtest.Gen, n int) []evlog.Record {
	records := g.Records(n)
	offset := uint64(g.Rng.IntN(3))
	for i := range records {
		r := &records[i]
		r.Offset = offset
		offset += 1 + uint64(g.Rng.IntN(10)/8*g.Rng.IntN(5))
		switch {
		case i > 0 && g.Rng.IntN(4) == 0:
			r.Time = records[i-1].Time
		case g.Rng.IntN(30) == 0:
			r.Time = time.Date([]int{-1, 10_000, 12_000}[g.Rng.IntN(3)], 6, 1, 0, 0, 0, 0, time.UTC)
		case g.Rng.IntN(12) == 0:
			r.Key = [][]byte{[]byte("KEY-1"), []byte("key-1  "), []byte("key-1\x00a"), []byte("KEY-1\x00b"), []byte("5"), []byte("05")}[g.Rng.IntN(6)]
		}
	}
	return records
}

func inMemory(t testing.TB) (place, *vfs.Mem) {
	mem := vfs.NewMem()
	return onFS(t, mem), mem
}

func (d *differential) table(t *testing.T) *tablelog.Log {
	db, err := sql.Open("sqlite", ":memory:")
	require.NoError(t, err)
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	l, err := tablelog.Open(t.Context(), db, &tablelog.Options{Table: "log"})
	require.NoError(t, err)
	require.NoError(t, l.AppendExact(t.Context(), d.records...))
	d.sides[1] = db
	return l
}

// retain removes segments at the old end by hand, and the same records of the
// table.
func (d *differential) retain(t *testing.T, p place, mem *vfs.Mem, l *evlog.Log, table *tablelog.Log) {
	bases, err := l.Reader().Bases(p.ctx)
	require.NoError(t, err)
	dir, err := mem.OpenDir(p.dir)
	require.NoError(t, err)
	defer func() { require.NoError(t, dir.Close()) }()
	n := d.rng.IntN(len(bases))
	for _, base := range bases[:n] {
		require.NoError(t, dir.Remove(evtest.SegmentFile(base)))
	}
	require.NoError(t, table.RemoveBelow(p.ctx, bases[n]))
	d.records = slices.DeleteFunc(d.records, func(r evlog.Record) bool { return r.Offset < bases[n] })
}

// compare asks both sides the same.
func (d *differential) compare(t *testing.T) {
	t.Helper()
	d.check(t, d.query())
}

func (d *differential) check(t *testing.T, q *sqlQuery) {
	t.Helper()
	var answers [2][]string
	var errs [2]error
	args := [2][]any{q.args, q.args}
	if _, ours := d.sides[0].Driver().(*sqldriver.Driver); ours {
		args[1] = textsOf(q.args)
	}
	for i, db := range d.sides {
		answers[i], errs[i] = query(t.Context(), db, q.text(), args[i]...)
		if !q.ordered {
			slices.Sort(answers[i])
		}
	}
	if errs[1] != nil {
		require.Error(t, errs[0], "seed %d: %s %v: the table says %v", d.seed, q.text(), q.args, errs[1])
		return
	}
	require.NoError(t, errs[0], "seed %d: %s %v", d.seed, q.text(), q.args)
	if !slices.Equal(answers[0], answers[1]) {
		plan, _ := query(t.Context(), d.sides[0], "EXPLAIN QUERY PLAN "+q.text(), q.args...)
		t.Fatalf("seed %d: %s %v\n%s\nlog:\n%s\ntable:\n%s", d.seed, q.text(), q.args, strings.Join(plan, "\n"),
			strings.Join(answers[0], "\n"), strings.Join(answers[1], "\n"))
	}
}

// textsOf makes of bytes and texts what the driver makes of them, for a table.
func textsOf(args []any) []any {
	args = slices.Clone(args)
	for i, v := range args {
		switch v := v.(type) {
		case []byte:
			if len(v) > 0 && utf8.Valid(v) {
				args[i] = string(v)
			}
		case string:
			if !utf8.ValidString(v) {
				args[i] = []byte(v)
			}
		}
	}
	return args
}

// sqlQuery is a query while it is made.
type sqlQuery struct {
	strings.Builder
	args    []any
	ordered bool // by offset, so that the order of the answer is decided
}

func (q *sqlQuery) text() string { return q.String() }

func (q *sqlQuery) add(format string, a ...any) { fmt.Fprintf(q, format, a...) }

func (d *differential) query() *sqlQuery {
	q := &sqlQuery{}
	switch d.rng.IntN(14) {
	case 0:
		q.add("SELECT count(*), min(offset), max(ts_ms), max(time), count(key), max(value) FROM log WHERE ")
		d.where(q, "")
	case 1:
		q.add("SELECT key, count(*), max(offset), count(DISTINCT schema) FROM log WHERE ")
		d.where(q, "")
		q.add(" GROUP BY key")
	case 2:
		q.add("SELECT a.offset, b.offset, b.key FROM log a JOIN log b ON %s AND ", d.pick(
			"b.offset = a.offset + 1", "b.offset > a.offset AND b.key = a.key", "b.key = a.key",
			"b.ts_ms = a.ts_ms", "b.ts_ms >= a.ts_ms AND b.ts_ms < a.ts_ms + 100", "b.time = a.time",
			"b.offset = a.schema", "b.offset = a.key", "b.key = a.offset", "b.key = CAST(a.key AS INTEGER)",
			"b.offset = +a.value", "b.rowid < a.rowid AND b.rowid >= a.rowid - 3"))
		d.where(q, "a.")
	case 3:
		q.add("SELECT a.offset, b.offset FROM log a LEFT JOIN log b ON b.key = a.key AND b.offset = " +
			"(SELECT max(c.offset) FROM log c WHERE c.key = a.key AND c.offset < a.offset) WHERE ")
		d.where(q, "a.")
	case 4:
		q.add("SELECT offset, key FROM log WHERE %s IN (SELECT %s FROM log WHERE ",
			d.pick("offset", "offset", "key", "value", "ts_ms"), d.pick("offset", "offset+1", "schema", "key", "value"))
		d.where(q, "")
		q.add(")")
	case 5:
		q.add("SELECT offset FROM log a WHERE %s EXISTS (SELECT 1 FROM log b WHERE b.key = a.key AND b.offset > a.offset) AND ",
			d.pick("", "NOT"))
		d.where(q, "a.")
	case 6:
		q.add("SELECT offset, key FROM log WHERE ")
		d.where(q, "")
		q.add(" %s SELECT schema, value FROM log WHERE ", d.pick("UNION ALL", "UNION", "EXCEPT", "INTERSECT"))
		d.where(q, "")
	case 7:
		q.add("SELECT DISTINCT %s FROM log WHERE ", d.pick("key", "tombstone", "schema, tombstone", "key, offset"))
		d.where(q, "")
	case 8:
		q.add("SELECT offset, row_number() OVER (PARTITION BY key ORDER BY offset %s), lag(value) OVER (ORDER BY offset) FROM log WHERE ",
			d.pick("", "DESC"))
		d.where(q, "")
	case 9:
		q.add("WITH x AS MATERIALIZED (SELECT * FROM log WHERE ")
		d.where(q, "")
		q.add(") SELECT x.offset, log.ts_ms FROM x LEFT JOIN log ON log.offset = x.offset - 1")
	default:
		q.add("SELECT %s FROM log WHERE ", d.pick("offset, ts_ms, time, schema, key, value, tombstone", "rowid", "key, value", "offset, typeof(key), typeof(value)", "1"))
		d.where(q, "")
		if d.rng.IntN(2) == 0 {
			q.add(" ORDER BY %s", d.pick("offset", "offset DESC", "rowid DESC", "offset, key", "offset DESC, key",
				"tombstone, offset", "ts_ms DESC, offset", "key, offset DESC", "time, offset"))
			q.ordered = true
			if d.rng.IntN(2) == 0 {
				q.add(" LIMIT %d", d.rng.IntN(6)-1)
				if d.rng.IntN(2) == 0 {
					q.add(" OFFSET %d", d.rng.IntN(4))
				}
			}
		}
	}
	return q
}

func (d *differential) pick(choices ...string) string { return choices[d.rng.IntN(len(choices))] }

// where adds a condition on the columns of the table with that prefix.
func (d *differential) where(q *sqlQuery, prefix string) {
	switch n := d.rng.IntN(8); {
	case n == 0:
		q.add("1")
	case n < 4:
		d.term(q, prefix)
	default:
		for i := range 2 + d.rng.IntN(3) {
			if i > 0 {
				q.add(" %s ", d.pick("AND", "AND", "AND", "OR"))
			}
			if d.rng.IntN(8) == 0 {
				q.add("NOT ")
			}
			q.add("(")
			d.term(q, prefix)
			q.add(")")
		}
	}
}

func (d *differential) term(q *sqlQuery, prefix string) {
	column := d.pick("offset", "offset", "rowid", "ts_ms", "ts_ms", "time", "schema", "key", "key", "value", "tombstone")
	q.add("%s%s%s ", prefix, column, d.collation())
	switch d.rng.IntN(12) {
	case 0:
		q.add("%s", d.pick("IS NULL", "IS NOT NULL"))
	case 1, 2:
		q.add("%s (", d.pick("IN", "IN", "NOT IN"))
		for i := range 1 + d.rng.IntN(4) {
			if i > 0 {
				q.add(", ")
			}
			d.value(q, column)
		}
		q.add(")")
	case 3:
		q.add("%s ", d.pick("BETWEEN", "NOT BETWEEN"))
		d.value(q, column)
		q.add(" AND ")
		d.value(q, column)
	case 4:
		q.add("%s '%s'", d.pick("LIKE", "GLOB"), d.pick("key-1", "key-%", "KEY-1", "key*", "%5%", "2023-%", "#1*"))
	default:
		q.add("%s ", d.pick("=", "=", "=", "<", ">", "<=", ">=", "<>", "IS", "IS NOT"))
		d.value(q, column)
		q.add("%s", d.collation())
	}
}

func (d *differential) collation() string {
	if d.rng.IntN(10) > 0 {
		return ""
	}
	return d.pick(" COLLATE NOCASE", " COLLATE RTRIM", " COLLATE BINARY")
}

// value adds a value to compare with, as a literal or an argument: mostly near
// what is there, and sometimes of another type.
func (d *differential) value(q *sqlQuery, column string) {
	v := d.valueFor(column)
	if d.rng.IntN(10) == 0 {
		v = d.oddValue()
	}
	if d.rng.IntN(2) == 0 {
		q.args = append(q.args, v)
		q.add("?")
		return
	}
	switch v := v.(type) {
	case nil:
		q.add("NULL")
	case int64:
		if v == math.MinInt64 {
			q.add("(-9223372036854775807 - 1)")
			return
		}
		q.add("%d", v)
	case float64:
		q.add("%s", strings.NewReplacer("+Inf", "9e999", "-Inf", "-9e999").Replace(fmt.Sprintf("%#.17g", v)))
	case string:
		if strings.ContainsRune(v, 0) {
			q.add("CAST(x'%x' AS TEXT)", v)
			return
		}
		q.add("'%s'", strings.ReplaceAll(v, "'", "''"))
	case []byte:
		q.add("x'%x'", v)
	}
}

func (d *differential) valueFor(column string) any {
	r := evlog.Record{Time: time.UnixMilli(5), Key: []byte("key-1")}
	if len(d.records) > 0 {
		r = d.records[d.rng.IntN(len(d.records))]
	}
	switch column {
	case "offset", "rowid":
		return int64(r.Offset) + d.rng.Int64N(5) - 2
	case "ts_ms":
		return r.Time.UnixMilli() + d.rng.Int64N(3) - 1
	case "time":
		text := r.Time.UTC().Format("2006-01-02T15:04:05.000Z")
		switch d.rng.IntN(6) {
		case 0:
			return text[:min(len(text), d.rng.IntN(len(text)+1))]
		case 1:
			return strings.ToLower(text)
		case 2:
			return strings.Replace(text, "T", " ", 1)
		case 3:
			return text + d.pick(" ", "x", "Z")
		}
		return text
	case "schema":
		return int64(r.Schema)
	case "tombstone":
		return d.rng.Int64N(3)
	}
	b := r.Key
	if column == "value" {
		b = r.Value
	}
	switch d.rng.IntN(6) {
	case 0:
		return b
	case 1:
		return strings.ToUpper(string(b))
	case 2:
		return string(b) + " "
	}
	return string(b)
}

func (d *differential) oddValue() any {
	odd := []any{
		nil, int64(0), int64(-1), int64(5), int64(math.MaxInt64), int64(math.MinInt64), int64(math.MaxInt64 - 1),
		3.5, 5.0, -0.5, 1e30, -1e30, 9223372036854775807.0, -9223372036854775808.0, math.Inf(1), math.Inf(-1),
		"", "5", " 5 ", "5.0", "5e0", "abc", "3.5", "-1", "9223372036854775808", "2023-11-14", "2023", "+1",
		[]byte{},
		[]byte{5},
		[]byte("key-1"), []byte("5"),
		[]byte{0, 255, 1},
		"\xff", "key-1\x00c",
	}
	return odd[d.rng.IntN(len(odd))]
}

// attachedCopy puts the log of d on the disk and makes it the table log of a
// connection of modernc.org/sqlite.
func attachedCopy(t *testing.T, d *differential) *sql.DB {
	p := onDisk(t)
	l, err := evlog.Open(p.ctx, p.dir, &evlog.Options{SegmentBytes: 700})
	require.NoError(t, err)
	require.NoError(t, l.AppendExact(p.ctx, d.records...))
	require.NoError(t, l.Close())
	return openAttached(t, p, "log")
}

func openAttached(t *testing.T, p place, name string) *sql.DB {
	t.Helper()
	base, err := sqlite.NewConnector(":memory:")
	require.NoError(t, err)
	c, err := sqldriver.AttachConnector(p.ctx, base, p.dir, name)
	require.NoError(t, err)
	db := sql.OpenDB(c)
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}
