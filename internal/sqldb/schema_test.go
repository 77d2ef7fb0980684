package sqldb_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/sqldb"
)

var errNoTables = errors.New("no tables")

var schema = sqldb.Schema{Part: "test", Version: 2, NoTables: errNoTables, Objects: []sqldb.Object{
	{Kind: "TABLE", Name: "evlog_test", As: `(n INTEGER) STRICT`},
	{Kind: "UNIQUE INDEX", Name: "evlog_test_n", As: `ON evlog_test (n)`},
	{Kind: "TABLE", Name: "evlog_other", As: `(n INTEGER) STRICT`},
}}

// Whatever is missing is told by its name, and made anew; what is there stays.
func TestSchema(t *testing.T) {
	db, err := sql.Open("sqlite", ":memory:")
	require.NoError(t, err)
	defer db.Close()
	db.SetMaxOpenConns(1) // each connection has a database of its own
	ctx := t.Context()
	exec := func(query string, args ...any) (sql.Result, error) {
		return db.ExecContext(context.WithoutCancel(ctx), query, args...)
	}
	must := func(query string) {
		_, err := exec(query)
		require.NoError(t, err)
	}
	err = schema.Check(ctx, db)
	require.ErrorIs(t, err, errNoTables)
	require.ErrorContains(t, err, "no such table: main.evlog_schema")
	must(`CREATE TEMP TABLE evlog_other (n)`) // does not stand in its place
	require.NoError(t, schema.Create(exec))
	require.NoError(t, schema.Check(ctx, db))

	for _, o := range schema.Objects {
		if o.Name != "evlog_test" {
			must(`INSERT INTO evlog_test DEFAULT VALUES`)
		}
		kind := o.Kind
		if kind == "UNIQUE INDEX" {
			kind = "INDEX"
		}
		must(fmt.Sprintf("DROP %s main.%s", kind, o.Name))
		err := schema.Check(ctx, db)
		require.ErrorIs(t, err, errNoTables, o.Name)
		require.ErrorContains(t, err, o.Name+" is missing")
		require.NoError(t, schema.Create(exec))
		require.NoError(t, schema.Check(ctx, db))
	}
	var rows int
	require.NoError(t, db.QueryRow(`SELECT count(*) FROM evlog_test`).Scan(&rows))
	require.Equal(t, 2, rows)

	must(`UPDATE evlog_schema SET version = 3`)
	must(`DROP TABLE evlog_test`) // a later version may have others
	err = schema.Check(ctx, db)
	require.ErrorIs(t, err, evlog.ErrVersion)
	require.ErrorContains(t, err, "version 3")
	must(`DELETE FROM evlog_schema`)
	require.ErrorIs(t, schema.Check(ctx, db), errNoTables)
}
