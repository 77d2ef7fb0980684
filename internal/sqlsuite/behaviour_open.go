package sqlsuite

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/cursor"
	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/sqlbridge"
)

func testPositions(t *testing.T, e *env) {
	clock := e.withClock()
	for i, name := range []string{"b", "a", `"q'\`} {
		tx, err := e.db.Begin()
		require.NoError(t, err)
		require.NoError(t, e.b.Advance(e.ctx, tx, name, "A", 0, uint64(i+1)))
		require.NoError(t, tx.Commit())
	}
	// As the command does it: a database that is opened for reading, no bridge.
	db, err := sql.Open(e.d.Name, "file:"+filepath.ToSlash(e.path)+"?mode=ro")
	require.NoError(t, err)
	defer func() { _ = db.Close() }()
	all, err := sqlbridge.Positions(e.ctx, db)
	require.NoError(t, err)
	want := func(name string, next uint64) sqlbridge.Position {
		return sqlbridge.Position{Position: cursor.Position{Name: name, Next: next, LogID: "A", Updated: clock.Now()}}
	}
	require.Equal(t, []sqlbridge.Position{want(`"q'\`, 3), want("a", 2), want("b", 1)}, all)
	notes, err := sqlbridge.Skips(e.ctx, db, "")
	require.NoError(t, err)
	require.Empty(t, notes)

	require.NoError(t, e.b.Remove(e.ctx, "a"))
	require.ErrorIs(t, e.b.Remove(e.ctx, "a"), cursor.ErrUnknownConsumer)
	p, err := e.b.Cursor(e.ctx, e.db, "a")
	require.NoError(t, err)
	require.True(t, p.Updated.IsZero())

	require.NoError(t, e.b.Reset(e.ctx, "new", "A", 5, "by hand"))
	require.NoError(t, e.b.Reset(e.ctx, "new", "B", 2, "by hand"))
	p, err = e.b.Cursor(e.ctx, e.db, "new")
	require.NoError(t, err)
	require.Equal(t, want("new", 2).Next, p.Next)
	require.Equal(t, "B", p.LogID)
}

func testBadArguments(t *testing.T, e *env) {
	l := logOf("A", 0, 1)
	_, err := e.b.Cursor(e.ctx, e.db, "")
	require.ErrorIs(t, err, cursor.ErrBadName)
	require.ErrorIs(t, e.b.Run(e.ctx, l, "a\nb", apply, nil), cursor.ErrBadName)
	require.ErrorIs(t, e.b.Process(e.ctx, logOf("", 0, 1), consumer, l.all(0), apply, nil), cursor.ErrNoLogID)
	require.ErrorIs(t, e.advance("A", 5, 4), sqlbridge.ErrOrder)
	require.ErrorIs(t, e.advance("A", 5, 9), cursor.ErrMoved, "one that never committed stands at 0")
	for field, o := range map[string]sqlbridge.RunOptions{
		"New": {New: 9}, "Reset": {Reset: 9}, "BatchRecords": {BatchRecords: -1}, "BatchBytes": {BatchBytes: -1},
		"BatchDelay": {BatchDelay: -1}, "Attempts": {Attempts: -1}, "RetryDelay": {RetryDelay: -1}, "Poison": {Poison: 9},
	} {
		err := e.process(l, l.all(0), apply, &o)
		require.ErrorIs(t, err, evlog.ErrBadOptions)
		require.ErrorContains(t, err, field)
	}
	require.NoError(t, e.exactly(nil, 0))
}

// Many processes may start at the same time on a new database.
func testOpenAtOnce(t *testing.T, e *env) {
	for _, query := range []string{`DROP TABLE evlog_cursor`, `DROP TABLE evlog_skipped`, `DROP TABLE evlog_schema`} {
		_, err := e.db.Exec(query)
		require.NoError(t, err)
	}
	_, err := sqlbridge.Positions(e.ctx, e.db)
	require.ErrorIs(t, err, sqlbridge.ErrNoTables)
	_, err = sqlbridge.Skips(e.ctx, e.db, "")
	require.ErrorIs(t, err, sqlbridge.ErrNoTables)
	_, err = e.b.Cursor(e.ctx, e.db, consumer)
	require.ErrorIs(t, err, sqlbridge.ErrNoTables)
	var wg sync.WaitGroup
	for range 8 {
		db := e.open(0)
		wg.Go(func() {
			_, err := sqlbridge.Open(e.ctx, db, nil)
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	all, err := sqlbridge.Positions(e.ctx, e.db)
	require.NoError(t, err)
	require.Empty(t, all)
}

func testOpenNewer(t *testing.T, e *env) {
	_, err := e.db.Exec(`UPDATE evlog_schema SET version = 2`)
	require.NoError(t, err)
	_, err = sqlbridge.Open(e.ctx, e.db, nil)
	require.ErrorIs(t, err, evlog.ErrVersion)
}

// runCheck tests what Check finds out about databases that are set up badly.
func runCheck(t *testing.T, d Driver) {
	file := func(t *testing.T, query string) string {
		return "file:" + filepath.ToSlash(filepath.Join(t.TempDir(), "app.db")) + query
	}
	in := func(m Mode, busyMS int) func(t *testing.T) string {
		return func(t *testing.T) string { return m.dsn(filepath.Join(t.TempDir(), "a.db"), busyMS) }
	}
	for _, c := range []struct {
		name          string
		dsn           func(t *testing.T) string
		exec          string   // as people do it: reaches one connection
		unsafe, notes []string // what they begin with
	}{
		{name: "good", dsn: in(Modes[0], 5000)},
		{name: "wal_normal", dsn: in(Modes[1], 5000), notes: []string{"synchronous=NORMAL: "}},
		{name: "rollback", dsn: in(Modes[2], 5000), notes: []string{"synchronous=FULL with journal_mode=DELETE: "}},
		{name: "rollback_extra", dsn: in(Mode{Journal: "DELETE", Sync: "EXTRA"}, 5000)},
		{name: "truncate", dsn: in(Mode{Journal: "TRUNCATE", Sync: "FULL"}, 5000)},
		{name: "no_busy_timeout", dsn: in(Modes[0], 0), notes: []string{"busy_timeout=0: "}},
		{name: "rollback_normal", dsn: in(Mode{Journal: "DELETE", Sync: "NORMAL"}, 5000), unsafe: []string{"synchronous=NORMAL with a rollback journal: "}},
		{name: "off", dsn: in(Mode{Journal: "WAL", Sync: "OFF"}, 5000), unsafe: []string{"synchronous=OFF: "}},
		{name: "memory_journal", dsn: in(Mode{Journal: "MEMORY", Sync: "FULL"}, 5000), unsafe: []string{"journal_mode=MEMORY: "}},
		{name: "in_memory", dsn: func(*testing.T) string { return ":memory:" }, unsafe: []string{"the database is in memory"}},
		{name: "one_connection_differs", dsn: in(Modes[0], 5000), exec: `PRAGMA busy_timeout = 7`, unsafe: []string{"connections differ "}},
		{
			name: "one_journal_differs", dsn: in(Mode{Journal: "TRUNCATE", Sync: "FULL"}, 5000), exec: `PRAGMA journal_mode = MEMORY`,
			unsafe: []string{"connections differ ", "journal_mode=MEMORY: "},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			db, err := sql.Open(d.Name, c.dsn(t))
			require.NoError(t, err)
			defer func() { _ = db.Close() }()
			if c.exec != "" {
				_, err := db.Exec(c.exec)
				require.NoError(t, err)
			}
			b, err := sqlbridge.Open(t.Context(), db, nil)
			require.NoError(t, err)
			r, err := b.Check(t.Context())
			require.NoError(t, err)
			begin := func(texts, with []string) {
				require.Len(t, texts, len(with), "%+v", r)
				for i := range texts {
					require.True(t, strings.HasPrefix(texts[i], with[i]), "%q does not begin with %q", texts[i], with[i])
				}
			}
			begin(r.Unsafe, c.unsafe)
			begin(r.Notes, c.notes)
			require.NotEmpty(t, r.Version)
		})
	}
	t.Run("refused", func(t *testing.T) {
		db, err := sql.Open(d.Name, in(Mode{Journal: "OFF", Sync: "FULL"}, 0)(t))
		require.NoError(t, err)
		defer func() { _ = db.Close() }()
		_, err = sqlbridge.Open(t.Context(), db, nil)
		require.ErrorIs(t, err, sqlbridge.ErrUnsafe)
	})
	for i := range 2 { // whichever connection is looked at first
		t.Run(fmt.Sprint("refused_on_one_connection_", i), func(t *testing.T) {
			db, err := sql.Open(d.Name, in(Modes[2], 5000)(t))
			require.NoError(t, err)
			defer func() { _ = db.Close() }()
			var conns [2]*sql.Conn
			for i := range conns {
				conns[i], err = db.Conn(t.Context())
				require.NoError(t, err)
			}
			_, err = conns[i].ExecContext(t.Context(), `PRAGMA journal_mode = OFF`)
			require.NoError(t, err)
			for _, c := range conns {
				require.NoError(t, c.Close())
			}
			_, err = sqlbridge.Open(t.Context(), db, nil)
			require.ErrorIs(t, err, sqlbridge.ErrUnsafe)
		})
	}
	t.Run("defaults", func(t *testing.T) {
		db, err := sql.Open(d.Name, file(t, ""))
		require.NoError(t, err)
		defer func() { _ = db.Close() }()
		b, err := sqlbridge.Open(t.Context(), db, nil)
		require.NoError(t, err)
		r, err := b.Check(t.Context())
		require.NoError(t, err)
		require.Equal(t, "delete", r.JournalMode)
		t.Logf("defaults of this driver: %+v", r)
	})
	t.Run("all_connections_in_use", func(t *testing.T) {
		db, err := sql.Open(d.Name, file(t, ""))
		require.NoError(t, err)
		defer func() { _ = db.Close() }()
		b, err := sqlbridge.Open(t.Context(), db, nil)
		require.NoError(t, err)
		db.SetMaxOpenConns(2)
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		defer func() { _ = conn.Close() }()
		began := time.Now()
		_, err = b.Check(t.Context())
		require.NoError(t, err)
		require.Less(t, time.Since(began), 10*time.Second)
	})
}
