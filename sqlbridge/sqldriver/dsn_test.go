package sqldriver_test

import (
	"database/sql"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
)

// What is a name to SQLite's drivers and no directory here is refused, also with
// mode=rwc, and nothing of that name comes into being.
func TestOpen_NoDirectory(t *testing.T) {
	t.Chdir(t.TempDir())
	here, err := os.Getwd()
	require.NoError(t, err)
	for _, c := range []struct{ dsn, text string }{
		{"", "names no directory"},
		{"?mode=rwc", "names no directory"},
		{":memory:", "evlogtest"},
		{":memory:?mode=rwc", "evlogtest"},
		{"file::memory:?mode=rwc", "is a URI"},
		{"file:events?mode=rwc", `"./file:events"`},
		{"file:" + filepath.ToSlash(here) + "/events?mode=rwc", "is a URI"},
		{"file:///tmp/events?mode=rwc", "is a URI"},
		{"evlog://events?mode=rwc", "is a URI"},
		{"sqlite3+x.y-z:events?mode=rwc", "is a URI"},
		{"ev\x00ents?mode=rwc", "NUL"},
		{"events?mode=rwc&cache=shared", `"cache" is no option (mode, since, consumer and hold are)`},
		{"events?mode=rwc&_pragma=busy_timeout(5000)", `"_pragma" is no option`},
		{"events?_txlock=immediate&mode=rwc", `"_txlock" is no option`},
		{"what?", "no log here"}, // the question mark begins options, of which there are none
		{"what?now", `where the directory's name has a question mark, another one ends it`},
		{"events?mode=%zz", "%zz"},
		{"events?mode=rwc;x=y", "semicolon"},
	} {
		db, err := sql.Open("evlog", c.dsn)
		if err == nil {
			require.NoError(t, db.Close())
		}
		require.ErrorContains(t, err, c.text, c.dsn)
		left, err := os.ReadDir(here)
		require.NoError(t, err)
		require.Empty(t, left, c.dsn)
	}
}

// A path is taken as it is: nothing in it is an escape.
func TestOpen_Paths(t *testing.T) {
	t.Chdir(t.TempDir())
	here, err := os.Getwd()
	require.NoError(t, err)
	create := func(dsn, dir string) {
		t.Helper()
		db, err := sql.Open("evlog", dsn)
		require.NoError(t, err, dsn)
		require.NoError(t, db.Close())
		r, err := evlog.OpenReader(t.Context(), filepath.Join(here, dir), nil)
		require.NoError(t, err, dsn)
		require.NoError(t, r.Close())
	}
	create("plain?mode=rwc", "plain")
	create("plain/?mode=rwc", "plain")
	create("./b//c/.?mode=rwc", "b/c")
	create("100%41?mode=rwc", "100%41")
	create("a#b&c=d;e?mode=rwc", "a#b&c=d;e")
	create("with space and plus+?mode=rwc", "with space and plus+")
	create("Grüße?mode=rwc", "Grüße")
	create(filepath.Join(here, "absolute")+"?mode=rwc", "absolute")
	if os.PathSeparator == '/' { // Windows has no such names
		create("what??mode=rwc", "what?")
		create("./file:events?mode=rwc", "file:events")
		create("c:?mode=rwc", "c:") // a drive elsewhere
		create(`c:\dir?mode=rwc`, `c:\dir`)
		create(":odd?mode=rwc", ":odd")
		create("-?mode=rwc", "-")
	}
}

// The path does not depend on where the program goes later.
func TestOpen_RelativeAfterChdir(t *testing.T) {
	t.Chdir(t.TempDir())
	db, err := sql.Open("evlog", "events?mode=rwc")
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	t.Chdir(t.TempDir())
	_, err = db.ExecContext(t.Context(), `INSERT INTO log (value) VALUES ('v')`)
	require.NoError(t, err)
	require.Equal(t, []string{"1"}, mustQuery(t, db, `SELECT count(*) FROM log`))
	require.Empty(t, mustQuery(t, db, `SELECT * FROM consumers`))
	require.Equal(t, []string{"0"}, mustQuery(t, db, `SELECT base FROM segments`))
}
