package sqldriver_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	sqlite "modernc.org/sqlite"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/sqlbridge/sqldriver"
)

// application is a database of an application's own, with users in it.
func application(t *testing.T) (path string, db *sql.DB) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "app.db")
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	_, err = db.ExecContext(t.Context(), `CREATE TABLE user (name TEXT PRIMARY KEY, city TEXT);
		INSERT INTO user VALUES ('ann', 'Oslo'), ('bob', 'Rome')`)
	require.NoError(t, err)
	return path, db
}

func someEvents(t *testing.T) place {
	t.Helper()
	p := onDisk(t)
	p.create(t, nil,
		evlog.Record{Key: []byte("ann"), Value: []byte("login")},
		evlog.Record{Key: []byte("bob"), Value: []byte("login")},
		evlog.Record{Key: []byte("ann"), Value: []byte("logout")})
	return p
}

func TestAttach(t *testing.T) {
	p := someEvents(t)
	path, db := application(t)
	c, err := db.Conn(t.Context())
	require.NoError(t, err)
	require.NoError(t, sqldriver.Attach(t.Context(), c, p.dir, "the events"))
	require.Equal(t, []string{`"Oslo"|"login"`, `"Oslo"|"logout"`, `"Rome"|"login"`}, mustQuery(t, c,
		`SELECT city, value FROM user JOIN "the events" e ON e.key = name ORDER BY name, e.offset`))

	// The application writes on as it did, in the same transaction as it reads
	// events, and what it makes of its schema does not disturb the table.
	_, err = c.ExecContext(t.Context(), `BEGIN; CREATE TABLE seen AS SELECT key, max(offset) last FROM "the events" GROUP BY key; ROLLBACK`)
	require.NoError(t, err)
	_, err = c.ExecContext(t.Context(), `BEGIN; CREATE TABLE seen AS SELECT key, max(offset) last FROM "the events" GROUP BY key; COMMIT`)
	require.NoError(t, err)
	_, err = c.ExecContext(t.Context(), `VACUUM`)
	require.NoError(t, err)
	require.Equal(t, []string{`"ann"|2`, `"bob"|1`}, mustQuery(t, c, `SELECT * FROM seen`))
	require.Equal(t, []string{"3"}, mustQuery(t, c, `SELECT count(*) FROM "the events"`))

	for q, text := range map[string]string{
		`INSERT INTO "the events" (value) VALUES ('x')`: "package outbox",
		`UPDATE "the events" SET value = 'x'`:           "only appended to",
		`DELETE FROM "the events"`:                      "only appended to",
	} {
		_, err := c.ExecContext(t.Context(), q)
		require.ErrorContains(t, err, text, q)
	}

	// It is this connection's alone, and not in the file.
	other, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	_, err = query(t.Context(), other, `SELECT * FROM "the events"`)
	require.ErrorContains(t, err, "no such table")
	require.NoError(t, other.Close())
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NotContains(t, string(b), "the events")

	require.ErrorContains(t, sqldriver.Attach(t.Context(), c, p.dir, "the events"), "already exists")
	_, err = c.ExecContext(t.Context(), `DROP TABLE "the events"`)
	require.NoError(t, err)
	require.NoError(t, sqldriver.Attach(t.Context(), c, p.dir, "the events"))
	require.NoError(t, c.Close())
}

// Each statement sees what is durable then.
func TestAttach_Live(t *testing.T) {
	p := someEvents(t)
	db := openAttached(t, p, "events")
	l, err := evlog.Open(p.ctx, p.dir, nil)
	require.NoError(t, err)
	for i := range 5 {
		require.Equal(t, []string{fmt.Sprint(3 + i)}, mustQuery(t, db, `SELECT count(*) FROM events`))
		_, err := l.Append(p.ctx, evlog.Record{})
		require.NoError(t, err)
	}
	require.NoError(t, l.Close())
}

func TestAttachConnector_EveryConnection(t *testing.T) {
	p := someEvents(t)
	path, _ := application(t)
	base, err := sqlite.NewConnector(path)
	require.NoError(t, err)
	c, err := sqldriver.AttachConnector(t.Context(), base, p.dir, "events")
	require.NoError(t, err)
	db := sql.OpenDB(c)
	defer func() { require.NoError(t, db.Close()) }()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			conn, err := db.Conn(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			for range 20 {
				lines, err := query(t.Context(), conn, `SELECT count(*) FROM events JOIN user ON name = key`)
				if err != nil || lines[0] != "3" {
					t.Error(lines, err)
				}
			}
		})
	}
	wg.Wait()
}

func TestAttach_Errors(t *testing.T) {
	p := someEvents(t)
	_, db := application(t)
	c, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer c.Close()
	require.ErrorIs(t, sqldriver.Attach(t.Context(), c, p.dir+"x", "e"), evlog.ErrNoLog)
	base, err := sqlite.NewConnector(":memory:")
	require.NoError(t, err)
	_, err = sqldriver.AttachConnector(t.Context(), base, p.dir+"x", "e")
	require.ErrorIs(t, err, evlog.ErrNoLog)

	foreign := sql.OpenDB(otherDriver{})
	defer foreign.Close()
	fc, err := foreign.Conn(t.Context())
	require.NoError(t, err)
	defer fc.Close()
	require.ErrorContains(t, sqldriver.Attach(t.Context(), fc, p.dir, "e"), "not one of modernc.org/sqlite")

	// No statement opens a directory by itself.
	for _, q := range []string{
		`CREATE VIRTUAL TABLE temp.x USING evlog`,
		`CREATE VIRTUAL TABLE temp.x USING evlog('` + p.dir + `')`,
		`CREATE VIRTUAL TABLE temp.x USING evlog(attach, guess, d00, builtin)`,
		`CREATE VIRTUAL TABLE temp.x USING evlog(conn, 99999, log)`,
	} {
		_, err := c.ExecContext(t.Context(), q)
		require.ErrorContains(t, err, "sqldriver.Attach", q)
	}
}

// otherDriver is no SQLite at all.
type otherDriver struct{}

func (otherDriver) Connect(context.Context) (driver.Conn, error) { return otherConn{}, nil }
func (otherDriver) Driver() driver.Driver                        { return nil }

type otherConn struct{ driver.Conn }

func (otherConn) Close() error { return nil }

// wrapped is a connection in a wrapper of the application's.
type wrapped struct{ driver.Conn }

func (w wrapped) Unwrap() driver.Conn { return w.Conn }

type wrappingConnector struct{ driver.Connector }

func (w wrappingConnector) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := w.Connector.Connect(ctx)
	return wrapped{c}, err
}

func TestAttach_Wrapped(t *testing.T) {
	p := someEvents(t)
	base, err := sqlite.NewConnector(":memory:")
	require.NoError(t, err)
	db := sql.OpenDB(wrappingConnector{base})
	defer func() { require.NoError(t, db.Close()) }()
	c, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, sqldriver.Attach(t.Context(), c, p.dir, "events"))
	require.Equal(t, []string{"3"}, mustQuery(t, c, `SELECT count(*) FROM events`))
}

// Collations of the application's own may call any two keys equal.
func TestAttach_Collation(t *testing.T) {
	var d sqlite.Driver
	d.MustRegisterCollationUtf8("first", func(a, b string) int { return strings.Compare(a[:1], b[:1]) })
	p := someEvents(t)
	c, err := sqldriver.AttachConnector(t.Context(), driverConnector{&d}, p.dir, "log")
	require.NoError(t, err)
	db := sql.OpenDB(c)
	defer func() { require.NoError(t, db.Close()) }()
	require.Equal(t, []string{"0", "2"}, mustQuery(t, db, `SELECT offset FROM log WHERE key = 'arthur' COLLATE first`))
	require.Equal(t, []string{"0", "2"}, mustQuery(t, db, `SELECT offset FROM log WHERE key = 'ann'`))
	require.Equal(t, []string{"3"}, mustQuery(t, db, `SELECT count(*) FROM log WHERE time = '2000-01-01T00:00:00.000Z' COLLATE first`))
	// Those of another connection do not matter, and neither do SQLite's own.
	plain := openAttached(t, p, "log")
	require.Equal(t, []string{"0", "2"}, mustQuery(t, plain, `SELECT offset FROM log WHERE key = 'ANN' COLLATE NOCASE`))
	for _, db := range []querier{plain, db} { // the text of the statement is not known
		require.NotContains(t, mustQuery(t, db, `EXPLAIN QUERY PLAN SELECT offset FROM log WHERE key = 'ANN'`)[0], "key")
	}
}

type driverConnector struct{ d *sqlite.Driver }

func (c driverConnector) Connect(context.Context) (driver.Conn, error) { return c.d.Open(":memory:") }
func (c driverConnector) Driver() driver.Driver                        { return c.d }

// A table that is attached closes its reader with its connection: nothing is open
// afterwards.
func TestAttach_Releases(t *testing.T) {
	p := someEvents(t)
	if _, err := os.ReadDir("/proc/self/fd"); err != nil {
		t.Skip("this system does not list open files")
	}
	open := func() (n int) {
		entries, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		for _, e := range entries {
			if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.HasPrefix(to, p.dir) {
				n++
			}
		}
		return n
	}
	for range evtest.Count(300) + 3 {
		base, err := sqlite.NewConnector(":memory:")
		require.NoError(t, err)
		c, err := sqldriver.AttachConnector(t.Context(), base, p.dir, "events")
		require.NoError(t, err)
		db := sql.OpenDB(c)
		mustQuery(t, db, `SELECT * FROM events`)
		require.Positive(t, open())
		require.NoError(t, db.Close())
		require.Zero(t, open())
	}
}

// A log does not hide a table of the application's.
func TestAttach_NameInUse(t *testing.T) {
	p := someEvents(t)
	path, db := application(t)
	c, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer c.Close()
	_, err = c.ExecContext(t.Context(), `CREATE TEMP TABLE own (x); CREATE VIEW towns AS SELECT city FROM user`)
	require.NoError(t, err)
	for _, name := range []string{"user", "USER", "own", "towns"} {
		err := sqldriver.Attach(t.Context(), c, p.dir, name)
		require.ErrorIs(t, err, evlog.ErrBadOptions, name)
		require.ErrorContains(t, err, "already", name)
	}
	require.Equal(t, []string{`"ann"`, `"bob"`}, mustQuery(t, c, `SELECT name FROM user ORDER BY name`))
	require.NoError(t, sqldriver.Attach(t.Context(), c, p.dir, "events"))
	require.Error(t, sqldriver.Attach(t.Context(), c, p.dir, "Events"), "twice")

	base, err := sqlite.NewConnector(path)
	require.NoError(t, err)
	wrapped, err := sqldriver.AttachConnector(t.Context(), base, p.dir, "user")
	require.NoError(t, err)
	pool := sql.OpenDB(wrapped)
	require.ErrorIs(t, pool.PingContext(t.Context()), evlog.ErrBadOptions)
	require.NoError(t, pool.Close())
}

// Two logs on one connection, and the same one twice, are tables of their own.
func TestAttach_Two(t *testing.T) {
	p, other := someEvents(t), someEvents(t)
	_, db := application(t)
	c, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, sqldriver.Attach(t.Context(), c, p.dir, "a"))
	require.NoError(t, sqldriver.Attach(t.Context(), c, other.dir, "b"))
	require.NoError(t, sqldriver.Attach(t.Context(), c, p.dir, "again"))
	l, err := evlog.Open(p.ctx, other.dir, nil)
	require.NoError(t, err)
	_, err = l.Append(p.ctx, evlog.Record{})
	require.NoError(t, err)
	require.NoError(t, l.Close())
	require.Equal(t, []string{"3|4|3"}, mustQuery(t, c, `SELECT (SELECT count(*) FROM a), (SELECT count(*) FROM b), (SELECT count(*) FROM again)`))
	require.Equal(t, []string{"3"}, mustQuery(t, c, `SELECT count(*) FROM a JOIN b USING (offset) JOIN again USING (offset)`))
	mustExec(t, c, `DROP TABLE again`)
	require.Equal(t, []string{"3"}, mustQuery(t, c, `SELECT count(*) FROM a`))
}

// A connection of the driver has its own log and takes no other one, also behind
// the wrappers of an application.
func TestAttach_ToDriversOwn(t *testing.T) {
	p := someEvents(t)
	c, err := p.open(t, "").Conn(t.Context())
	require.NoError(t, err)
	defer c.Close()
	err = sqldriver.Attach(t.Context(), c, p.dir, "e")
	require.ErrorIs(t, err, sqldriver.ErrNotAllowed)
	require.ErrorContains(t, err, "use one of modernc.org/sqlite")
	require.NoError(t, c.Raw(func(driverConn any) error {
		w, ok := driverConn.(interface{ Unwrap() driver.Conn })
		require.True(t, ok, "what only modernc.org/sqlite has is beneath")
		require.NotNil(t, w.Unwrap())
		require.Implements(t, (*driver.Validator)(nil), driverConn)
		require.True(t, driverConn.(driver.Validator).IsValid())
		return nil
	}))
	require.Equal(t, []string{"3"}, mustQuery(t, c, `SELECT count(*) FROM log`))
}
