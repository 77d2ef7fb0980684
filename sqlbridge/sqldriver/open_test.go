package sqldriver_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/cursor"
	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/sqlbridge/sqldriver"
)

// What is wrong with a log or a data source name is an error of sql.Open, not of
// the first query.
func TestOpen_Errors(t *testing.T) {
	base := t.TempDir()
	good := place{t.Context(), filepath.Join(base, "log")}
	good.create(t, nil, evlog.Record{Value: []byte("v")})
	later := place{t.Context(), filepath.Join(base, "later")}
	later.create(t, nil)
	require.NoError(t, os.WriteFile(filepath.Join(later.dir, "log.json"), []byte(`{"format":99}`), 0o600))
	damaged := place{t.Context(), filepath.Join(base, "damaged")}
	damaged.create(t, nil)
	require.NoError(t, os.WriteFile(filepath.Join(damaged.dir, "consumers.json"), []byte(`{`), 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(base, "empty"), 0o700))
	file := filepath.Join(base, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))

	for _, c := range []struct {
		dsn  string
		want error // nil: any
		text string
	}{
		{"", evlog.ErrBadOptions, "names no directory"},
		{"?mode=ro", evlog.ErrBadOptions, "names no directory"},
		{filepath.Join(base, "missing"), evlog.ErrNoLog, "missing"},
		{filepath.Join(base, "missing?mode=rw"), evlog.ErrNoLog, "missing"},
		{filepath.Join(base, "empty"), evlog.ErrNoLog, ""},
		{filepath.Join(base, "empty?mode=rw"), evlog.ErrNoLog, ""},
		{file, nil, ""},
		{later.dir, evlog.ErrVersion, "log.json"},
		{good.dir + "?mode=write", evlog.ErrBadOptions, `mode is "write"`},
		{good.dir + "?mode=", evlog.ErrBadOptions, `mode is ""`},
		{good.dir + "?mode=ro&mode=rw", evlog.ErrBadOptions, "mode is given 2 times"},
		{good.dir + "?Mode=ro", evlog.ErrBadOptions, `"Mode" is no option`},
		{good.dir + "?_pragma=x", evlog.ErrBadOptions, `"_pragma" is no option`},
		{good.dir + "?a;b", evlog.ErrBadOptions, "semicolon"},
		{good.dir + "?since=soon", evlog.ErrBadOptions, `since is "soon"`},
		{good.dir + "?since=", evlog.ErrBadOptions, `since is ""`},
		{good.dir + "?since=--5m", evlog.ErrBadOptions, `since`},
		{good.dir + "?hold=0s", evlog.ErrBadOptions, "hold"},
		{good.dir + "?hold=-1s", evlog.ErrBadOptions, "hold"},
		{good.dir + "?hold=5", evlog.ErrBadOptions, "hold"},
		{good.dir + "?consumer=", evlog.ErrBadOptions, "consumer"},
		{damaged.dir + "?consumer=x", evlog.ErrCorrupt, "consumers.json"},
	} {
		t.Run(c.dsn[min(len(base), len(c.dsn)):], func(t *testing.T) {
			db, err := sql.Open("evlog", c.dsn)
			if err == nil {
				require.NoError(t, db.Close())
			}
			require.Error(t, err)
			if c.want != nil {
				require.ErrorIs(t, err, c.want)
			}
			require.ErrorContains(t, err, c.text)
		})
	}
	require.NoDirExists(t, filepath.Join(base, "missing"))
}

func TestOpen_Modes(t *testing.T) {
	p := onDisk(t)
	db, err := sql.Open("evlog", p.dir+"?mode=rwc")
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), `INSERT INTO log (value) VALUES ('one')`)
	require.NoError(t, err)

	// One writer, as with files; readers beside it.
	_, err = sql.Open("evlog", p.dir+"?mode=rw")
	require.ErrorIs(t, err, evlog.ErrLocked)
	reader := p.open(t, "?mode=ro")
	require.Equal(t, []string{`0|"one"`}, mustQuery(t, reader, `SELECT offset, value FROM log`))

	require.NoError(t, db.Close())
	db, err = sql.Open("evlog", p.dir+"?mode=rw")
	require.NoError(t, err)
	require.Equal(t, []string{"1"}, mustQuery(t, db, `SELECT count(*) FROM log`))
	require.NoError(t, db.PingContext(t.Context()))
	require.NoError(t, db.Close())
	require.Error(t, db.PingContext(t.Context()))
}

// A question mark in the name of the directory: the last one begins the options.
func TestOpen_QuestionMark(t *testing.T) {
	p := place{t.Context(), filepath.Join(t.TempDir(), "what?")}
	p.create(t, nil, evlog.Record{Value: []byte("v")})
	require.Equal(t, []string{"1"}, mustQuery(t, p.open(t, "?"), `SELECT count(*) FROM log`))
}

// Closing the database ends what is under way, and says so.
func TestClose_UnderWay(t *testing.T) {
	p := onDisk(t)
	p.create(t, &evlog.Options{SegmentBytes: 1}, evlog.Record{}) // a segment for each batch
	l, err := evlog.Open(p.ctx, p.dir, nil)
	require.NoError(t, err)
	for range 20 {
		_, err := l.Enqueue(p.ctx, evlog.Record{})
		require.NoError(t, err)
	}
	require.NoError(t, l.Close())
	c, err := sqldriver.NewConnector(p.ctx, p.dir)
	require.NoError(t, err)
	db := sql.OpenDB(c)
	rows, err := db.QueryContext(t.Context(), `SELECT offset FROM log`)
	require.NoError(t, err)
	require.True(t, rows.Next())
	require.NoError(t, db.Close())
	for rows.Next() { //nolint:revive // until it ends
	}
	require.ErrorIs(t, rows.Err(), evlog.ErrClosed)
	require.NoError(t, rows.Close())
	require.NoError(t, c.Close())
	_, err = c.Connect(t.Context())
	require.ErrorIs(t, err, evlog.ErrClosed)
}

// A driver.Conn made without a pool releases the log with itself.
func TestDriver_Open(t *testing.T) {
	p := onDisk(t)
	p.create(t, nil)
	var d sqldriver.Driver
	cn, err := d.Open(p.dir + "?mode=rw")
	require.NoError(t, err)
	_, err = d.Open(p.dir + "?mode=rw")
	require.ErrorIs(t, err, evlog.ErrLocked)
	require.NoError(t, cn.Close())
	cn, err = d.Open(p.dir + "?mode=rw")
	require.NoError(t, err)
	require.NoError(t, cn.Close())
	_, err = d.Open(p.dir + "x")
	require.ErrorIs(t, err, evlog.ErrNoLog)
}

// since and consumer leave out what lies before; with both the later one counts.
func TestOpen_SinceConsumer(t *testing.T) {
	p := onDisk(t)
	records := make([]evlog.Record, 20)
	for i := range records {
		records[i].Time = at(int64(1_000_000 + 1000*(i^1))) // times step back
	}
	p.create(t, &evlog.Options{SegmentBytes: 100}, records...)
	store, err := cursor.OpenFile(p.ctx, p.dir, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, store.Close()) }()
	require.NoError(t, store.Commit(p.ctx, "mailer", 0, 5))
	lowest := func(options string) string {
		return mustQuery(t, p.open(t, options), `SELECT min(offset) FROM log`)[0]
	}
	require.Equal(t, "0", lowest(""))
	require.Equal(t, "5", lowest("?consumer=mailer"))
	require.Equal(t, "10", lowest("?since=1970-01-01T00:16:51Z"), "the first record with that time or a later one")
	require.Equal(t, "10", lowest("?since=1970-01-01T00:16:51Z&consumer=mailer"))
	require.Equal(t, "0", lowest("?since=1970-01-01"))
	require.Equal(t, "NULL", lowest("?since=2026-01-01"))
	require.Equal(t, "NULL", lowest("?since=-1h"))

	db := p.open(t, "?consumer=mailer")
	require.Equal(t, []string{"NULL"}, mustQuery(t, db, `SELECT max(key) FROM log WHERE offset = 4`))
	require.Empty(t, mustQuery(t, db, `SELECT 1 FROM log WHERE offset = 4`))
	require.NoError(t, store.Commit(p.ctx, "mailer", 5, 19))
	require.Equal(t, []string{"19"}, mustQuery(t, db, `SELECT offset FROM log`), "each statement asks anew")
	require.NoError(t, store.Remove(p.ctx, "mailer"))
	require.Equal(t, []string{"20"}, mustQuery(t, db, `SELECT count(*) FROM log`), "it has committed nothing")

	// A service asks before its first commit, also of a log whose old end is gone.
	db = p.open(t, "?consumer=new")
	l, err := evlog.Open(p.ctx, p.dir, nil)
	require.NoError(t, err)
	require.NoError(t, l.Roll(p.ctx))
	_, err = l.Append(p.ctx, evlog.Record{})
	require.NoError(t, err)
	require.NoError(t, l.Close())
	require.Equal(t, []string{"21"}, mustQuery(t, db, `SELECT count(*) FROM log`))
	require.NoError(t, os.Remove(filepath.Join(p.dir, evtest.SegmentFile(0))))
	require.Equal(t, []string{"20"}, mustQuery(t, db, `SELECT offset FROM log`))
	require.NoError(t, store.Commit(p.ctx, "new", 0, 21))
	require.Empty(t, mustQuery(t, db, `SELECT offset FROM log`))
}

// A statement is prepared with a context that has ended, or it is not; one that was
// prepared long ago sees what came since.
func TestPrepare(t *testing.T) {
	p, db := writable(t)
	ended, cancel := context.WithCancel(p.ctx)
	cancel()
	for _, q := range []string{`SELECT 1`, insertValue, `BEGIN`, `SELECT 1; SELECT 2`} {
		_, err := db.PrepareContext(ended, q)
		require.ErrorIs(t, err, context.Canceled, q)
	}
	reader := p.open(t, "")
	count, err := reader.PrepareContext(p.ctx, `SELECT count(*) FROM log WHERE key = ?`)
	require.NoError(t, err)
	last, err := reader.PrepareContext(p.ctx, `SELECT value FROM log ORDER BY offset DESC LIMIT ?`)
	require.NoError(t, err)
	for i := range 300 {
		mustExec(t, db, `INSERT INTO log (key, value) VALUES (?, ?)`, fmt.Sprint(i%3), fmt.Sprint(i))
		var n int
		require.NoError(t, count.QueryRowContext(p.ctx, "0").Scan(&n))
		require.Equal(t, i/3+1, n)
		var v string
		require.NoError(t, last.QueryRowContext(p.ctx, 1).Scan(&v))
		require.Equal(t, fmt.Sprint(i), v)
	}
	for limit, want := range map[any]int{0: 0, -1: 300, 1000: 300, "5": 5, 7.0: 7} {
		rows, err := last.QueryContext(p.ctx, limit)
		require.NoError(t, err)
		n := 0
		for rows.Next() {
			n++
		}
		require.NoError(t, rows.Err())
		require.NoError(t, rows.Close())
		require.Equal(t, want, n, limit)
	}
	require.NoError(t, count.Close())
	require.NoError(t, last.Close())
}
