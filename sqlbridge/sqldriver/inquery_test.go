package sqldriver_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
)

// Keys that look like numbers are found by the numbers of a query, as in a table.
// SQLite compares what a virtual table returns for IN without the affinity.
func TestKey_InQuery(t *testing.T) {
	p := onDisk(t)
	var records []evlog.Record
	for i := range 50 {
		records = append(records, evlog.Record{Key: fmt.Append(nil, i), Value: fmt.Append(nil, 2*i)})
	}
	p.create(t, nil, records...)
	db := openAttached(t, p, "log")
	for _, q := range []string{
		`CREATE TABLE users (id INTEGER PRIMARY KEY, r REAL, t TEXT, b BLOB)`,
		`INSERT INTO users VALUES (5, 5.0, '5', x'35'), (7, 7.0, '7', x'37')`,
		`CREATE TABLE native ("offset" INTEGER NOT NULL, ts_ms INTEGER NOT NULL, time TEXT, schema INTEGER NOT NULL,
			key BLOB, value BLOB, tombstone INTEGER NOT NULL, segment INTEGER NOT NULL)`,
		`INSERT INTO native SELECT * FROM log`,
	} {
		_, err := db.ExecContext(t.Context(), q)
		require.NoError(t, err, q)
	}
	for _, where := range []string{
		`key IN (SELECT id FROM users)`, `key NOT IN (SELECT id FROM users)`, `key IN (SELECT r FROM users)`,
		`key IN (SELECT t FROM users)`, `key IN (SELECT b FROM users)`, `key IN (5, 7)`, `key IN ('5', '7')`,
		`(key, "offset") IN (SELECT id, id FROM users)`, `key = (SELECT id FROM users LIMIT 1)`, `key = '5'`,
		`EXISTS (SELECT 1 FROM users WHERE id = key)`, `value IN (SELECT id FROM users)`, `key COLLATE NOCASE IN (SELECT id FROM users)`,
		`"offset" IN (SELECT t FROM users)`, `"offset" IN (SELECT b FROM users)`, `ts_ms IN (SELECT t FROM users)`,
		`time IN (SELECT id FROM users)`, `segment IN (SELECT '0')`,
	} {
		want := mustQuery(t, db, `SELECT "offset" FROM native WHERE `+where+` ORDER BY "offset"`)
		require.Equal(t, want, mustQuery(t, db, `SELECT "offset" FROM log WHERE `+where+` ORDER BY "offset"`), where)
	}

	own := p.open(t, "")
	for _, from := range []string{
		`SELECT key FROM log WHERE key IN (SELECT "offset" FROM log WHERE "offset" IN (5, 7))`,
		`WITH u(id) AS (SELECT "offset" FROM log WHERE "offset" IN (5, 7)) SELECT key FROM log WHERE key IN u`,
		`SELECT key FROM log WHERE key IN/* these */(
			SELECT "offset" FROM log WHERE "offset" IN (5, 7))`,
		`SELECT key FROM log WHERE key In(wItH u(id) AS (SELECT "offset" FROM log) SELECT id FROM u WHERE id IN (5, 7))`,
		"SELECT key FROM log WHERE key IN (\ufeffSELECT \"offset\" FROM log WHERE \"offset\" IN (5, 7))",
		`SELECT l.key FROM json_each('[5, 7]') j JOIN log l ON l.key = CAST(j.value AS INTEGER)`,
	} {
		require.Equal(t, []string{`"5"`, `"7"`}, mustQuery(t, own, from), from)
	}
	// A list of values is still looked up.
	for q, want := range map[string]string{
		`SELECT * FROM log WHERE key IN ('5', '7') AND schema = (SELECT 0)`: "key=",
		`SELECT * FROM log WHERE key = '5' AND "offset" IN (5)`:             "key=",
	} {
		require.Contains(t, mustQuery(t, own, `EXPLAIN QUERY PLAN `+q)[0], want, q)
	}
}
