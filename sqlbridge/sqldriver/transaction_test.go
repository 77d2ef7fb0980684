package sqldriver_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/sqlbridge/sqldriver"
)

// A prepared COMMIT or ROLLBACK that was not done, because its context had ended,
// ends nothing.
func TestTransaction_EndNotDone(t *testing.T) {
	p, db := writable(t)
	ended, cancel := context.WithCancel(p.ctx)
	cancel()
	for _, end := range []string{"COMMIT", "ROLLBACK"} {
		c, err := db.Conn(p.ctx)
		require.NoError(t, err)
		prepared, err := c.PrepareContext(p.ctx, end)
		require.NoError(t, err)
		reader, err := p.open(t, "").Conn(p.ctx)
		require.NoError(t, err)
		readerEnd, err := reader.PrepareContext(p.ctx, end)
		require.NoError(t, err)

		// The state stays that of the transaction.
		mustExec(t, reader, "BEGIN")
		n := mustQuery(t, reader, `SELECT count(*) FROM log`)
		mustExec(t, c, insertValue, "v")
		for _, try := range []func() error{
			func() error { _, err := readerEnd.ExecContext(ended); return err },
			func() error { _, err := reader.ExecContext(ended, end); return err },
			func() error { _, err := readerEnd.QueryContext(ended); return err },
		} {
			require.ErrorIs(t, try(), context.Canceled)
			require.Equal(t, n, mustQuery(t, reader, `SELECT count(*) FROM log`))
		}
		mustExec(t, reader, end)
		require.NotEqual(t, n, mustQuery(t, reader, `SELECT count(*) FROM log`))
		require.NoError(t, readerEnd.Close())
		require.NoError(t, reader.Close())

		// And a dead one stays dead.
		mustExec(t, c, "BEGIN")
		mustExec(t, c, insertValue, "no")
		untilDead(t, c, `INSERT INTO log (value) WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT 'n' FROM c`)
		_, err = prepared.ExecContext(ended)
		require.ErrorIs(t, err, context.Canceled)
		_, err = c.ExecContext(p.ctx, insertValue, "no")
		require.ErrorIs(t, err, sqldriver.ErrRolledBack)
		_, err = prepared.ExecContext(p.ctx)
		require.ErrorContains(t, err, "no transaction is active")
		require.NoError(t, prepared.Close())
		require.NoError(t, c.Close())
	}
	require.Equal(t, []string{`"v"`, `"v"`}, mustQuery(t, db, `SELECT value FROM log`))
}

// A prepared text of several statements does what the same text does.
func TestTransaction_PreparedText(t *testing.T) {
	p, db := writable(t)
	c, err := db.Conn(p.ctx)
	require.NoError(t, err)
	defer c.Close()
	reader := p.open(t, "")
	prepared, err := c.PrepareContext(p.ctx, `INSERT INTO log (value) VALUES ('a'); COMMIT; BEGIN; INSERT INTO log (value) VALUES ('b')`)
	require.NoError(t, err)
	defer prepared.Close()
	mustExec(t, c, "BEGIN")
	for i := range 3 {
		_, err := prepared.ExecContext(p.ctx)
		require.NoError(t, err)
		if i == 0 {
			require.Equal(t, []string{`"a"`}, mustQuery(t, reader, `SELECT value FROM log`))
		}
		require.Equal(t, []string{[]string{"1", "3", "5"}[i]}, mustQuery(t, c, `SELECT count(*) FROM log`))
	}
	mustExec(t, c, "COMMIT")
	require.Equal(t, []string{"6"}, mustQuery(t, c, `SELECT count(*) FROM log`))
	begin, err := c.PrepareContext(p.ctx, `SELECT 1; BEGIN`)
	require.NoError(t, err)
	defer begin.Close()
	_, err = begin.ExecContext(p.ctx)
	require.NoError(t, err)
	n := mustQuery(t, c, `SELECT count(*) FROM log`)
	mustExec(t, c, insertValue, "c")
	require.Equal(t, n, mustQuery(t, c, `SELECT count(*) FROM log`))
	mustExec(t, c, "ROLLBACK")
	require.Equal(t, n, mustQuery(t, c, `SELECT count(*) FROM log`))
}

// For a reader a SAVEPOINT begins a transaction, as it does for SQLite.
func TestTransaction_Savepoint(t *testing.T) {
	p, db := writable(t)
	reader, err := p.open(t, "").Conn(p.ctx)
	require.NoError(t, err)
	mustExec(t, reader, "SAVEPOINT a")
	require.Empty(t, mustQuery(t, reader, values))
	mustExec(t, db, insertValue, "v")
	require.Empty(t, mustQuery(t, reader, values))
	mustExec(t, reader, "RELEASE a")
	require.Len(t, mustQuery(t, reader, values), 1)
	require.NoError(t, reader.Close())
}
