package tablelog_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite" // registers the driver

	"github.com/evlog-go/evlog/cursor"
	"github.com/evlog-go/evlog/cursor/cursortest"
	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/sqlbridge"
	"github.com/evlog-go/evlog/sqlbridge/tablelog"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("database/sql.(*DB).connectionOpener"))
}

func openDB(t testing.TB) *sql.DB {
	t.Helper()
	path := filepath.ToSlash(filepath.Join(t.TempDir(), "app.db"))
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(10000)")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func open(t testing.TB, db *sql.DB, opts *tablelog.Options) *tablelog.Log {
	t.Helper()
	l, err := tablelog.Open(t.Context(), db, opts)
	require.NoError(t, err)
	return l
}

func TestConformance(t *testing.T) {
	for _, conns := range []int{0, 1} {
		t.Run(fmt.Sprintf("MaxOpenConns=%d", conns), func(t *testing.T) {
			cursortest.TestLog(t, func(t *testing.T) cursortest.LogFixture {
				db := openDB(t)
				db.SetMaxOpenConns(conns)
				l := open(t, db, nil)
				return cursortest.LogFixture{
					Log:         l,
					Append:      l.Append,
					AppendAt:    func(ctx context.Context, recs ...evlog.Record) error { return l.AppendExact(ctx, recs...) },
					RemoveBelow: l.RemoveBelow,
					Reopen:      func(ctx context.Context) (cursor.Log, error) { return tablelog.Open(ctx, db, nil) },
					// What is in a transaction that is open is not durable yet.
					Enqueue: enqueueIn(t, db, l, conns),
				}
			})
		})
	}
}

func enqueueIn(t *testing.T, db *sql.DB, l *tablelog.Log, conns int) func(context.Context, ...evlog.Record) (uint64, error) {
	if conns == 1 {
		return nil // the transaction would have the only connection
	}
	return func(ctx context.Context, recs ...evlog.Record) (uint64, error) {
		tx, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		t.Cleanup(func() { _ = tx.Rollback() })
		return l.AppendTx(ctx, tx, recs...)
	}
}

func collect(t *testing.T, l cursor.Log, from uint64) []evlog.Record {
	t.Helper()
	var all []evlog.Record
	for rec, err := range l.Records(t.Context(), from) {
		require.NoError(t, err)
		all = append(all, rec.Clone())
	}
	return all
}

// Records are copied to a log of files and back, and nothing changes.
func TestCopy_RoundTrip(t *testing.T) {
	l := open(t, openDB(t), nil)
	recs := []evlog.Record{
		{Offset: 3, Time: time.UnixMilli(0), Value: []byte("epoch")},
		{Offset: 4, Time: time.UnixMilli(math.MinInt64), Schema: math.MaxUint16, Key: []byte("k")},
		{Offset: 9, Time: time.UnixMilli(math.MaxInt64), Key: []byte{0xff, 0}, Value: []byte{0, 0xfe, 'x'}},
		{Offset: 10, Time: time.Time{}.Add(1), Key: []byte("a\x00b"), Value: []byte("c\x00d")},
		{Offset: 1 << 40, Time: time.UnixMilli(1_700_000_000_001), Value: []byte(`{"n":1}`)},
	}
	require.NoError(t, l.AppendExact(t.Context(), recs...))
	files, err := evlog.Open(t.Context(), t.TempDir(), nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, files.Close()) }()
	require.NoError(t, files.AppendExact(t.Context(), collect(t, l, 0)...))
	back := open(t, openDB(t), &tablelog.Options{Table: "copy"})
	require.NoError(t, back.AppendExact(t.Context(), collect(t, files.Reader(), 0)...))
	got := collect(t, back, 0)
	require.Len(t, got, len(recs))
	for i := range got {
		require.True(t, got[i].Equal(recs[i]), "%v %v", got[i], recs[i])
	}
}

// A page ends, and the next one goes on, by number and by size.
func TestRecords_ManyPages(t *testing.T) {
	l := open(t, openDB(t), nil)
	var recs []evlog.Record
	for i := range 2500 {
		recs = append(recs, evlog.Record{Time: time.UnixMilli(1), Value: fmt.Appendf(nil, "%d", i)})
	}
	for i := range 5 {
		recs = append(recs, evlog.Record{Time: time.UnixMilli(1), Key: []byte("large"), Value: make([]byte, 700_000+i)})
	}
	first, err := l.Append(t.Context(), recs...)
	require.NoError(t, err)
	require.Zero(t, first)
	got := collect(t, l, 0)
	require.Len(t, got, len(recs))
	for i := range got {
		recs[i].Offset = uint64(i)
		require.True(t, got[i].Equal(recs[i]), "%v", got[i])
	}
}

func TestAppendTx_TogetherWithRows(t *testing.T) {
	db := openDB(t)
	l := open(t, db, &tablelog.Options{PollInterval: time.Hour})
	_, err := db.ExecContext(t.Context(), `CREATE TABLE orders (id INTEGER PRIMARY KEY)`)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	got := make(chan evlog.Record)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for rec, err := range l.Follow(ctx, 0) {
			if err != nil {
				return
			}
			got <- rec.Clone()
		}
	}()
	for i, commit := range []bool{false, true} {
		tx, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		offset, err := l.AppendTx(ctx, tx, evlog.Record{Value: fmt.Appendf(nil, "%d", i)})
		require.NoError(t, err)
		require.Zero(t, offset, "the offset of what was rolled back was never seen by anybody")
		_, err = tx.ExecContext(ctx, `INSERT INTO orders VALUES (?1)`, i)
		require.NoError(t, err)
		if commit {
			require.NoError(t, tx.Commit())
			l.Notify()
		} else {
			require.NoError(t, tx.Rollback())
		}
	}
	require.Equal(t, "1", string((<-got).Value))
	cancel()
	<-done
}

func TestAppend_Refused(t *testing.T) {
	l := open(t, openDB(t), nil)
	ctx := t.Context()
	_, err := l.Append(ctx, evlog.Record{}, evlog.Record{Key: make([]byte, evlog.MaxKeyBytes+1)})
	require.ErrorIs(t, err, evlog.ErrTooLarge)
	_, err = l.Append(ctx, evlog.Record{Value: make([]byte, evlog.DefaultMaxRecordBytes)})
	require.ErrorIs(t, err, evlog.ErrTooLarge)
	require.NoError(t, l.AppendExact(ctx, evlog.Record{Offset: 7}))
	require.ErrorIs(t, l.AppendExact(ctx, evlog.Record{Offset: 9}, evlog.Record{Offset: 8}), evlog.ErrOffsetOrder)
	require.ErrorIs(t, l.AppendExact(ctx, evlog.Record{Offset: 7}), evlog.ErrOffsetOrder)
	require.ErrorIs(t, l.AppendExact(ctx, evlog.Record{Offset: math.MaxInt64}), evlog.ErrTooLarge)
	require.Len(t, collect(t, l, 0), 1)
	first, err := l.Append(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 8, first)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err = l.Append(ended, evlog.Record{})
	require.ErrorIs(t, err, context.Canceled)
}

// Offsets are not given out again when the table is empty.
func TestRemoveBelow(t *testing.T) {
	db := openDB(t)
	l := open(t, db, nil)
	ctx := t.Context()
	for range 4 {
		_, err := l.Append(ctx, evlog.Record{Value: []byte("x")})
		require.NoError(t, err)
	}
	var asked *evlog.OffsetError
	require.ErrorAs(t, l.RemoveBelow(ctx, 5), &asked)
	require.NoError(t, l.RemoveBelow(ctx, 4))
	require.NoError(t, l.RemoveBelow(ctx, 2), "lower than before removes nothing")
	first, next, err := l.Bounds(ctx)
	require.NoError(t, err)
	require.Equal(t, []uint64{4, 4}, []uint64{first, next})
	again := open(t, db, nil)
	offset, err := again.Append(ctx, evlog.Record{Value: []byte("y")})
	require.NoError(t, err)
	require.EqualValues(t, 4, offset)
}

// What is removed under a reader is told, not taken for a hole.
func TestRecords_OvertakenByRemoval(t *testing.T) {
	l := open(t, openDB(t), nil)
	ctx := t.Context()
	_, err := l.Append(ctx, make([]evlog.Record, 3000)...)
	require.NoError(t, err)
	var last uint64
	for rec, err := range l.Records(ctx, 0) {
		if err != nil {
			var fallen *evlog.OffsetError
			require.ErrorAs(t, err, &fallen)
			require.Equal(t, last+1, fallen.Asked)
			require.EqualValues(t, 2500, fallen.First)
			return
		}
		if last = rec.Offset; last == 500 {
			require.NoError(t, l.RemoveBelow(ctx, 2500))
		}
	}
	t.Fatal("nobody told")
}

func TestOpen_Refused(t *testing.T) {
	db := openDB(t)
	_, err := tablelog.Open(t.Context(), db, &tablelog.Options{Table: `x"; DROP TABLE y`})
	require.ErrorIs(t, err, evlog.ErrBadOptions)
	_, err = tablelog.Open(t.Context(), db, &tablelog.Options{PollInterval: -1})
	require.ErrorIs(t, err, evlog.ErrBadOptions)
	for _, id := range []string{"a b", "a/1", "\n", "Grüße", "\x00", "\x7f", strings.Repeat("x", 65)} {
		_, err = tablelog.Open(t.Context(), db, &tablelog.Options{ID: id})
		require.ErrorIs(t, err, evlog.ErrBadOptions, id)
		_, logErr := evlog.Open(t.Context(), filepath.Join(t.TempDir(), "log"), &evlog.Options{ID: id})
		require.ErrorIs(t, logErr, evlog.ErrBadOptions, "the log takes %q", id)
	}
	open(t, db, &tablelog.Options{Table: "longest", ID: strings.Repeat("x", 64)})
	_, err = db.ExecContext(t.Context(), `CREATE TABLE orders (id INTEGER PRIMARY KEY)`)
	require.NoError(t, err)
	_, err = tablelog.Open(t.Context(), db, &tablelog.Options{Table: "orders"})
	require.ErrorIs(t, err, tablelog.ErrTable)
	_, err = tablelog.Open(t.Context(), db, &tablelog.Options{Table: "orders"})
	require.ErrorIs(t, err, tablelog.ErrTable, "the refused opening left nothing behind")
}

// A copy has the identity, the first offset and the next one of the other log.
func TestOpen_AsACopy(t *testing.T) {
	db := openDB(t)
	ctx := t.Context()
	_, err := tablelog.Open(ctx, db, &tablelog.Options{MustExist: true})
	require.ErrorIs(t, err, tablelog.ErrNoTable, "no tables at all")
	l := open(t, db, &tablelog.Options{ID: "the-others", FirstOffset: 40})
	_, err = tablelog.Open(ctx, db, &tablelog.Options{MustExist: true, Table: "other"})
	require.ErrorIs(t, err, tablelog.ErrNoTable)
	require.NoError(t, l.AppendExact(ctx, evlog.Record{Offset: 41}))
	require.ErrorIs(t, l.SkipTo(ctx, 41), evlog.ErrOffsetOrder)
	require.ErrorIs(t, l.SkipTo(ctx, math.MaxInt64+1), evlog.ErrTooLarge)
	require.NoError(t, l.SkipTo(ctx, 50))
	l = open(t, db, &tablelog.Options{MustExist: true, ID: "ignored", FirstOffset: 7})
	require.Equal(t, "the-others", l.ID())
	first, next, err := l.Bounds(ctx)
	require.NoError(t, err)
	require.Equal(t, []uint64{40, 50}, []uint64{first, next})
	var behind *evlog.OffsetError
	for _, err := range l.Records(ctx, 39) {
		require.ErrorAs(t, err, &behind)
	}
	require.NotNil(t, behind)
	require.Len(t, collect(t, l, 40), 1)
	offset, err := l.Append(ctx, evlog.Record{})
	require.NoError(t, err)
	require.EqualValues(t, 50, offset)
	_, err = tablelog.Open(ctx, db, &tablelog.Options{Table: "x", FirstOffset: math.MaxUint64})
	require.ErrorIs(t, err, evlog.ErrBadOptions)
}

// SQLite does not tell Log from log, and so they are one log: otherwise each would
// count offsets of its own for the same rows.
func TestOpen_Case(t *testing.T) {
	db := openDB(t)
	upper := open(t, db, &tablelog.Options{Table: "Log"})
	lower := open(t, db, &tablelog.Options{Table: "log"})
	require.Equal(t, upper.ID(), lower.ID())
	for i, l := range []*tablelog.Log{upper, lower, upper} {
		first, err := l.Append(t.Context(), evlog.Record{Value: []byte("v")})
		require.NoError(t, err)
		require.EqualValues(t, i, first)
	}
}

// Two logs in one database, and the columns that are computed.
func TestColumns(t *testing.T) {
	db := openDB(t)
	a, b := open(t, db, nil), open(t, db, &tablelog.Options{Table: "other"})
	require.NotEqual(t, a.ID(), b.ID())
	_, err := a.Append(t.Context(),
		evlog.Record{Time: time.UnixMilli(1_758_337_200_123), Key: []byte("k"), Value: []byte(`{"a":{"b":7}}`)},
		evlog.Record{Time: time.UnixMilli(0), Key: []byte("k")},
		evlog.Record{Time: time.UnixMilli(0), Value: []byte{0xff}})
	require.NoError(t, err)
	rows, err := db.QueryContext(t.Context(), `SELECT time, tombstone, typeof(key), typeof(value),
		CASE WHEN value LIKE '{%' THEN json_extract(value, '$.a.b') END FROM evlog_table ORDER BY "offset"`)
	require.NoError(t, err)
	defer func() { require.NoError(t, rows.Close()) }()
	var got []string
	for rows.Next() {
		var at, key, value string
		var tombstone int
		var b sql.NullInt64
		require.NoError(t, rows.Scan(&at, &tombstone, &key, &value, &b))
		got = append(got, fmt.Sprint(at, tombstone, key, value, b.Int64))
	}
	require.NoError(t, rows.Err())
	require.Equal(t, []string{
		"2025-09-20T03:00:00.123Z0texttext7", "1970-01-01T00:00:00.000Z1textnull0", "1970-01-01T00:00:00.000Z0nullblob0",
	}, got)
	require.Empty(t, collect(t, b, 0))
}

// The column time is RFC 3339 or NULL, as the driver's is.
func TestColumns_Years(t *testing.T) {
	db := openDB(t)
	l := open(t, db, nil)
	for i, c := range []struct {
		at   time.Time
		want sql.NullString
	}{
		{time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC), sql.NullString{String: "0000-01-01T00:00:00.000Z", Valid: true}},
		{time.Date(0, 1, 1, 0, 0, 0, -1e6, time.UTC), sql.NullString{}},
		{time.Date(10_000, 1, 1, 0, 0, 0, -1e6, time.UTC), sql.NullString{String: "9999-12-31T23:59:59.999Z", Valid: true}},
		{time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC), sql.NullString{}},
		{time.UnixMilli(math.MinInt64), sql.NullString{}},
		{time.UnixMilli(math.MaxInt64), sql.NullString{}},
		{time.UnixMilli(-1), sql.NullString{String: "1969-12-31T23:59:59.999Z", Valid: true}},
	} {
		_, err := l.Append(t.Context(), evlog.Record{Time: c.at})
		require.NoError(t, err)
		var got sql.NullString
		require.NoError(t, db.QueryRowContext(t.Context(), `SELECT time FROM evlog_table WHERE "offset" = ?`, i).Scan(&got))
		require.Equal(t, c.want, got, c.at)
	}
}

// A consumer with its effects in the same database as the log, with one
// connection for everything.
func TestBridge_SameDatabase(t *testing.T) {
	db := openDB(t)
	db.SetMaxOpenConns(1)
	l := open(t, db, nil)
	ctx := t.Context()
	_, err := db.ExecContext(ctx, `CREATE TABLE total (n INTEGER NOT NULL)`)
	require.NoError(t, err)
	_, err = l.Append(ctx, make([]evlog.Record, 2500)...)
	require.NoError(t, err)
	bridge, err := sqlbridge.Open(ctx, db, nil)
	require.NoError(t, err)
	err = bridge.Run(ctx, l, "totals", func(ctx context.Context, tx *sqlbridge.Tx, rec evlog.Record) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO total VALUES (?1)`, int64(rec.Offset))
		return err
	}, &sqlbridge.RunOptions{UntilEnd: true})
	require.NoError(t, err)
	var n, distinct int
	require.NoError(t, db.QueryRowContext(ctx, `SELECT count(*), count(DISTINCT n) FROM total`).Scan(&n, &distinct))
	require.Equal(t, []int{2500, 2500}, []int{n, distinct})
}

// Eight appenders at once: offsets without holes, each once.
func TestAppend_Concurrent(t *testing.T) {
	l := open(t, openDB(t), nil)
	errs := make(chan error, 8)
	for i := range 8 {
		go func() {
			var err error
			for range 25 {
				_, e := l.Append(t.Context(), evlog.Record{Schema: uint16(i)}, evlog.Record{Schema: uint16(i)})
				err = errors.Join(err, e)
			}
			errs <- err
		}()
	}
	for range 8 {
		require.NoError(t, <-errs)
	}
	got := collect(t, l, 0)
	require.Len(t, got, 400)
	for i, rec := range got {
		require.EqualValues(t, i, rec.Offset)
		require.Equal(t, got[i-i%2].Schema, rec.Schema, "a batch is contiguous")
	}
}
