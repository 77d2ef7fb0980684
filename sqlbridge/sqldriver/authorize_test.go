package sqldriver_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/sqlbridge/sqldriver"
)

// What neither mode allows. Whoever gets past one of these reaches files, or
// changes a pooled connection for those who have it next.
var refused = []struct{ query, text string }{
	{`UPDATE log SET value = 'x'`, "only appended to"},
	{`UPDATE log SET value = 'x' WHERE offset = 99`, "only appended to"},
	{`DELETE FROM log`, "only appended to"},
	{`DELETE FROM log WHERE 0`, "only appended to"},
	{`INSERT INTO segments (base) VALUES (1)`, "follows from the log"},
	{`DELETE FROM consumers`, "follows from the log"},
	{`ATTACH 'DIR/x.db' AS x`, "ATTACH"},
	{`ATTACH ':memory:' AS x`, "ATTACH"},
	{`DETACH main`, "DETACH"},
	{`VACUUM INTO 'DIR/x.db'`, "ATTACH"},
	{`CREATE TABLE x (a)`, "schema"},
	{`CREATE TEMP TABLE x (a)`, "schema"},
	{`CREATE TABLE x AS SELECT * FROM log`, "schema"},
	{`CREATE VIEW x AS SELECT 1`, "schema"},
	{`CREATE TEMP VIEW x AS SELECT 1`, "schema"},
	{`CREATE TEMP TRIGGER x INSERT ON log BEGIN SELECT 1; END`, ""},
	{`CREATE VIRTUAL TABLE x USING evlog(conn, 1, log)`, "schema"},
	{`CREATE VIRTUAL TABLE x USING fts5(a)`, "schema"},
	{`DROP TABLE log`, "schema"},
	{`ALTER TABLE log RENAME TO x`, "schema"},
	{`CREATE INDEX x ON log (key)`, ""},
	{`ANALYZE`, "schema"},
	{`DELETE FROM sqlite_schema`, ""},
	{`PRAGMA query_only = 0`, "PRAGMA query_only"},
	{`PRAGMA writable_schema = 1`, "PRAGMA writable_schema"},
	{`PRAGMA journal_mode = WAL`, "PRAGMA journal_mode"},
	{`PRAGMA temp_store_directory = 'DIR'`, "PRAGMA temp_store_directory"},
	{`PRAGMA cache_size = 1`, "PRAGMA cache_size"},
	{`SELECT * FROM pragma_journal_mode`, "PRAGMA journal_mode"},
	{`SELECT load_extension('DIR/x')`, "load_extension"},
	{`SELECT LOAD_EXTENSION('DIR/x', 'y')`, "load_extension"},
	{`SELECT 1; ATTACH 'DIR/x.db' AS x`, "ATTACH"},
	{`WITH x AS (SELECT 1) DELETE FROM log`, "only appended to"},
	{`INSERT INTO log (value) VALUES ('x') ON CONFLICT DO UPDATE SET value = 'y'`, ""},
}

func TestAuthorize_Refused(t *testing.T) {
	for _, mode := range []string{"ro", "rw"} {
		t.Run(mode, func(t *testing.T) {
			p := onDisk(t)
			p.create(t, nil, evlog.Record{Key: []byte("k"), Value: []byte("v")})
			db := p.open(t, "?mode="+mode)
			db.SetMaxOpenConns(1) // so that what sticks to the connection shows
			other := t.TempDir()
			const all = `SELECT * FROM log`
			const schema = `SELECT * FROM sqlite_schema UNION ALL SELECT * FROM sqlite_temp_schema`
			wantLog, wantSchema := mustQuery(t, db, all), mustQuery(t, db, schema)
			for _, c := range refused {
				q := replaceDir(c.query, other)
				_, err := db.ExecContext(t.Context(), q)
				require.Error(t, err, q)
				if c.text != "" {
					require.ErrorIs(t, err, sqldriver.ErrNotAllowed, q)
					require.ErrorContains(t, err, c.text, q)
				}
				_, err = query(t.Context(), db, q)
				require.Error(t, err, q)
				require.Equal(t, wantLog, mustQuery(t, db, all), q)
				require.Equal(t, wantSchema, mustQuery(t, db, schema), q)
			}
			left, err := os.ReadDir(other)
			require.NoError(t, err)
			require.Empty(t, left)
		})
	}
}

func replaceDir(q, dir string) string {
	const word = "DIR/"
	for i := 0; i+len(word) <= len(q); i++ {
		if q[i:i+len(word)] == word {
			return q[:i] + filepath.ToSlash(dir) + "/" + q[i+len(word):]
		}
	}
	return q
}

func TestAuthorize_Insert(t *testing.T) {
	p := onDisk(t)
	p.create(t, nil)
	ro := p.open(t, "")
	for _, q := range []string{`INSERT INTO log (value) VALUES ('x')`, `REPLACE INTO log (value) VALUES ('x')`} {
		_, err := ro.ExecContext(t.Context(), q)
		require.ErrorIs(t, err, sqldriver.ErrNotAllowed)
		require.ErrorContains(t, err, "mode=rw")
	}
	rw := p.open(t, "?mode=rw")
	_, err := rw.ExecContext(t.Context(), `INSERT INTO log (value) VALUES ('x')`)
	require.NoError(t, err)
	require.Equal(t, []string{"1"}, mustQuery(t, ro, `SELECT count(*) FROM log`))
}

func TestAuthorize_Allowed(t *testing.T) {
	p := onDisk(t)
	p.create(t, nil, evlog.Record{Value: []byte(`{"a":[1,2]}`)})
	db := p.open(t, "")
	for q, want := range map[string][]string{
		`SELECT json_extract(value, '$.a[1]') FROM log`:                                             {"2"},
		`SELECT e.value FROM log, json_each(log.value, '$.a') e`:                                    {"1", "2"},
		`WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c WHERE x < 3) SELECT x FROM c`: {"1", "2", "3"},
		`SELECT name FROM sqlite_schema`:                                                            {`"log"`, `"segments"`, `"consumers"`},
		`SELECT count(*) FROM pragma_table_info('log')`:                                             {"8"},
		`PRAGMA database_list`:                                                                      {`0|"main"|""`},
		`SELECT offset FROM main.log`:                                                               {"0"},
	} {
		require.Equal(t, want, mustQuery(t, db, q), q)
	}
	for _, q := range []string{"BEGIN", "SAVEPOINT a", "RELEASE a", "ROLLBACK"} {
		c, err := db.Conn(t.Context())
		require.NoError(t, err)
		if q != "BEGIN" && q != "SAVEPOINT a" {
			_, err = c.ExecContext(t.Context(), "BEGIN; SAVEPOINT a")
			require.NoError(t, err)
		}
		_, err = c.ExecContext(t.Context(), q)
		require.NoError(t, err, q)
		_, _ = c.ExecContext(context.Background(), "ROLLBACK")
		require.NoError(t, c.Close())
	}
}
