package sqldriver_test

import (
	"database/sql"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/sqlbridge/sqldriver"
)

// Other SQLite connections of the process reach the module that makes the tables,
// and get at no log by it: not at one that a connection of the driver has, and not
// at another directory than the one that was attached to them.
func TestModule_OtherConnections(t *testing.T) {
	p, rw := writable(t)
	mustExec(t, rw, insertValue, "v")
	secret := onDisk(t)
	secret.create(t, nil, evlog.Record{Value: []byte("secret")})
	other := openAttached(t, p, "events")

	for n := range 50 {
		_, err := other.ExecContext(t.Context(), fmt.Sprintf(`CREATE VIRTUAL TABLE x%d USING evlog(conn, %d, log)`, n, n))
		require.ErrorContains(t, err, "not allowed")
	}
	// The driver's own connection does not show what its tables were made by.
	for _, schema := range []string{"sqlite_schema", "sqlite_master", "main.sqlite_schema", "SQLITE_MASTER"} {
		require.Equal(t, []string{`"log"|NULL`}, mustQuery(t, rw, `SELECT name, sql FROM `+schema+` WHERE name = 'log'`), schema)
	}
	for _, q := range []string{`SELECT * FROM sqlite_dbpage`, `SELECT count(*) FROM SQLITE_DBPAGE('main')`} {
		_, err := query(t.Context(), rw, q)
		require.ErrorIs(t, err, sqldriver.ErrNotAllowed, q)
	}
	for _, q := range []string{
		`EXPLAIN SELECT * FROM log`, `EXPLAIN QUERY PLAN SELECT * FROM log`, `SELECT * FROM pragma_table_list`,
		`SELECT * FROM pragma_table_xinfo('log')`, `SELECT * FROM sqlite_schema`,
	} {
		for _, line := range mustQuery(t, rw, q) {
			require.NotContains(t, strings.ToLower(line), "conn,", q)
			require.NotRegexp(t, `t[A-Z2-7]{26}`, line, q)
		}
	}

	// An attached table does, to those who can read it anyway.
	made := mustQuery(t, other, `SELECT sql FROM sqlite_temp_schema WHERE name = 'events'`)[0]
	token := regexp.MustCompile(`t[A-Z2-7]{26}`).FindString(made)
	require.NotEmpty(t, token, made)
	for _, args := range []string{
		"attach", "attach, " + token + ", " + fmt.Sprintf("d%x", secret.dir) + ", builtin", "attach, " + fmt.Sprintf("d%x", secret.dir),
		"attach, t" + strings.Repeat("A", 26), "conn, " + token + ", log", "conn, 1, log", "",
	} {
		_, err := other.ExecContext(t.Context(), `CREATE VIRTUAL TABLE stolen USING evlog(`+args+`)`)
		require.ErrorContains(t, err, "not allowed", args)
	}
	third, err := sql.Open("sqlite", ":memory:")
	require.NoError(t, err)
	defer func() { require.NoError(t, third.Close()) }()
	third.SetMaxOpenConns(1)
	mustExec(t, third, `CREATE VIRTUAL TABLE same USING evlog(attach, `+token+`)`)
	require.Equal(t, []string{`"v"`}, mustQuery(t, third, `SELECT value FROM same`))
	_, err = third.ExecContext(t.Context(), `INSERT INTO same (value) VALUES ('no')`)
	require.ErrorContains(t, err, "package outbox")
}
