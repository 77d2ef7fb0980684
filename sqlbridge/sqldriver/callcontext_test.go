package sqldriver_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/internal/vfs"
)

// A context that ends while a commit is on its way to the disk: what is in the log
// was not interrupted, and the call says so.
func TestInsert_ContextEndsInCommit(t *testing.T) {
	for name, do := range map[string]func(ctx context.Context, c *sql.Conn) (sql.Result, error){
		"INSERT": func(ctx context.Context, c *sql.Conn) (sql.Result, error) {
			return c.ExecContext(ctx, insertValue, "v")
		},
		"prepared": func(ctx context.Context, c *sql.Conn) (sql.Result, error) {
			st, err := c.PrepareContext(t.Context(), insertValue)
			require.NoError(t, err)
			defer func() { require.NoError(t, st.Close()) }()
			return st.ExecContext(ctx, "v")
		},
		"text": func(ctx context.Context, c *sql.Conn) (sql.Result, error) {
			return c.ExecContext(ctx, `BEGIN; INSERT INTO log (value) VALUES ('v'); COMMIT`)
		},
		"COMMIT": func(ctx context.Context, c *sql.Conn) (sql.Result, error) {
			mustExec(t, c, `BEGIN`)
			r := mustExec(t, c, insertValue, "v")
			_, err := c.ExecContext(ctx, `COMMIT`)
			return r, err
		},
		"Tx": func(ctx context.Context, c *sql.Conn) (sql.Result, error) {
			tx, err := c.BeginTx(ctx, nil)
			require.NoError(t, err)
			r := mustExec(t, tx, insertValue, "v")
			return r, tx.Commit()
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := openFaulty(t)
			c, err := f.db.Conn(t.Context())
			require.NoError(t, err)
			for i := range 3 {
				ctx, cancel := context.WithCancel(f.ctx)
				f.fail(func(op vfs.Op) error {
					if op.Kind == vfs.OpSyncData {
						cancel()
						time.Sleep(20 * time.Millisecond) // whoever would interrupt has the time to
					}
					return nil
				})
				r, err := do(ctx, c)
				f.heal()
				cancel()
				require.NoError(t, err)
				offset, err := r.LastInsertId()
				require.NoError(t, err)
				require.EqualValues(t, i, offset)
				require.Equal(t, []string{fmt.Sprint(i + 1)}, mustQuery(t, c, `SELECT count(*) FROM log`))
			}
			require.NoError(t, c.Close())
		})
	}
}

// The next statement of a text is not done any more.
func TestInsert_ContextEndsBetweenStatements(t *testing.T) {
	for _, next := range []string{
		`INSERT INTO log (value) VALUES ('not this one')`,
		`WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c`,
	} {
		f := openFaulty(t)
		ctx, cancel := context.WithCancel(f.ctx)
		f.fail(func(op vfs.Op) error {
			if op.Kind == vfs.OpSyncData {
				cancel()
			}
			return nil
		})
		_, err := f.db.ExecContext(ctx, `INSERT INTO log (value) VALUES ('v'); `+next)
		f.heal()
		require.ErrorIs(t, err, context.Canceled, next)
		require.Equal(t, []string{`0|"v"`}, mustQuery(t, f.db, values))
	}
}

// A context that has ended before the commit begins to write: nothing is written.
func TestInsert_ContextEndsBeforeCommit(t *testing.T) {
	f := openFaulty(t)
	gate, err := f.log.Gate(f.ctx, "test")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(f.ctx)
	done := make(chan error)
	go func() {
		_, err := f.db.ExecContext(ctx, insertValue, "v")
		done <- err
	}()
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	gate.Release()
	require.Empty(t, mustQuery(t, f.db, values))
	mustExec(t, f.db, insertValue, "next")
	require.Equal(t, []string{`0|"next"`}, mustQuery(t, f.db, values))
}
