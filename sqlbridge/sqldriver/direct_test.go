package sqldriver

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
)

func TestParsePlainInsert(t *testing.T) {
	for query, want := range map[string]plainInsert{
		`INSERT INTO log (value) VALUES (?)`:                            {colValue},
		"insert\tinto LOG(Key,\n\"value\") values(?,?)":                 nil,
		"insert\tinto LOG(Key,\n value)values(?,?) ;\n":                 {colKey, colValue},
		`INSERT INTO log (ts_ms, schema, key, value) VALUES (?,?,?, ?)`: {colTSMS, colSchema, colKey, colValue},
		`INSERT INTO log (time) VALUES (?)`:                             {colTime},
		``:                                                              nil,
		`INSERT INTO log VALUES (?)`:                                    nil,
		`INSERT INTO log () VALUES ()`:                                  nil,
		`INSERT INTO log (offset) VALUES (?)`:                           nil,
		`INSERT INTO log (nope) VALUES (?)`:                             nil,
		`INSERT INTO logs (value) VALUES (?)`:                           nil,
		`INSERT INTO main.log (value) VALUES (?)`:                       nil,
		`INSERT INTO segments (value) VALUES (?)`:                       nil,
		`INSERT OR IGNORE INTO log (value) VALUES (?)`:                  nil,
		`REPLACE INTO log (value) VALUES (?)`:                           nil,
		`INSERT INTO log (value, value) VALUES (?, ?)`:                  nil,
		`INSERT INTO log (key, value) VALUES (?)`:                       nil,
		`INSERT INTO log (value) VALUES (?, ?)`:                         nil,
		`INSERT INTO log (value) VALUES (?1)`:                           nil,
		`INSERT INTO log (value) VALUES (:v)`:                           nil,
		`INSERT INTO log (value) VALUES (? || 'x')`:                     nil,
		`INSERT INTO log (value) VALUES ('x')`:                          nil,
		`INSERT INTO log (value) VALUES (?), (?)`:                       nil,
		`INSERT INTO log (value) VALUES (?) RETURNING value`:            nil,
		`INSERT INTO log (value) VALUES (?) ON CONFLICT DO NOTHING`:     nil,
		`INSERT INTO log (value) VALUES (?); DELETE FROM log`:           nil,
		`INSERT INTO log (value) VALUES (?) -- comment`:                 nil,
		`INSERT /**/ INTO log (value) VALUES (?)`:                       nil,
		`INSERT INTO log (value) SELECT ?`:                              nil,
		`WITH x AS (SELECT 1) INSERT INTO log (value) VALUES (?)`:       nil,
		`INSERTINTO log (value) VALUES (?)`:                             nil,
		"INSERT INTO log (value) VALUES (?);;":                          nil,
		"INSERT INTO log (valu\u00e9) VALUES (?)":                       nil,
		"INSERT INTO log (value) VALUES (?)\x00":                        nil,
	} {
		require.Equal(t, want, parsePlainInsert(query), query)
	}
}

// The first INSERT of a transaction goes to SQLite, and those behind it do not, as
// long as that is the same.
func TestDirectly(t *testing.T) {
	ctx := t.Context()
	c, err := NewConnector(ctx, filepath.Join(t.TempDir(), "log")+"?mode=rwc&hold=1h")
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	cn, err := c.connect()
	require.NoError(t, err)
	defer func() { require.NoError(t, cn.Close()) }()
	const plain = `INSERT INTO log (value) VALUES (?)`
	exec := func(query string, values ...driver.Value) bool {
		t.Helper()
		args := make([]driver.NamedValue, len(values))
		for i, v := range values {
			args[i] = driver.NamedValue{Ordinal: i + 1, Value: v}
		}
		r, err := cn.ExecContext(ctx, query, args)
		require.NoError(t, err)
		_, direct := r.(inserted)
		return direct
	}
	require.False(t, exec(plain, "no transaction"))
	require.False(t, exec(plain, "nor now"))

	tx, err := cn.BeginTx(ctx, driver.TxOptions{})
	require.NoError(t, err)
	exec("SAVEPOINT a")
	require.False(t, exec(plain, "gone"))
	require.True(t, exec(plain, "gone"))
	exec("ROLLBACK TO a")
	require.False(t, exec(plain, "SQLite has to hear of it again"))
	require.True(t, exec(plain, "directly"))
	exec("SAVEPOINT b")
	require.True(t, exec(plain, "gone"))
	require.True(t, exec(plain, "gone"))
	exec("ROLLBACK TO b; RELEASE b")
	require.True(t, exec(plain, "behind"))
	require.False(t, exec(`INSERT INTO log (value) VALUES ('not plain')`))
	require.False(t, exec(`INSERT INTO log (value) VALUES (?), (?)`, "two", "rows"))
	st, err := cn.PrepareContext(ctx, plain)
	require.NoError(t, err)
	r, err := st.(driver.StmtExecContext).ExecContext(ctx, []driver.NamedValue{{Ordinal: 1, Value: "prepared"}})
	require.NoError(t, err)
	require.Equal(t, inserted(8), r)
	n, err := r.RowsAffected()
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err = st.(driver.StmtExecContext).ExecContext(ended, []driver.NamedValue{{Ordinal: 1, Value: "gone"}})
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, tx.Commit())
	r, err = st.(driver.StmtExecContext).ExecContext(ctx, []driver.NamedValue{{Ordinal: 1, Value: "alone again"}})
	require.NoError(t, err)
	require.NotEqual(t, inserted(9), r, "outside of a transaction SQLite commits")
	require.NoError(t, st.Close())

	db := sql.OpenDB(c)
	defer func() { require.NoError(t, db.Close()) }()
	rows, err := db.QueryContext(ctx, `SELECT value FROM log`)
	require.NoError(t, err)
	defer rows.Close()
	var got []string
	for rows.Next() {
		var v string
		require.NoError(t, rows.Scan(&v))
		got = append(got, v)
	}
	require.NoError(t, rows.Err())
	require.Equal(t, []string{
		"no transaction", "nor now",
		"SQLite has to hear of it again", "directly", "behind", "not plain", "two", "rows", "prepared", "alone again",
	}, got)

	// What SQLite does not know it cannot be asked.
	for _, f := range []string{"last_insert_rowid", "changes", "TOTAL_CHANGES"} {
		_, err := cn.PrepareContext(ctx, "SELECT "+f+"()")
		require.ErrorIs(t, err, ErrNotAllowed)
		require.ErrorContains(t, err, "LastInsertId")
	}
}

// Random transactions, with arguments of all types, leave the same whether their
// rows go to SQLite or not: the same errors, offsets and records.
func TestDirectly_SameAsSQLite(t *testing.T) {
	evtest.Seeds(t, 500, func(t *testing.T, seed uint64) {
		rng := evtest.Rand(seed)
		type side struct {
			log  *evlog.Log
			db   *sql.DB
			tail string // of each statement
		}
		sides := []*side{{}, {tail: " /* to SQLite */"}}
		for _, s := range sides {
			var err error
			s.log, err = evlog.Open(t.Context(), filepath.Join(t.TempDir(), "log"), &evlog.Options{Sync: evlog.SyncFlush})
			require.NoError(t, err)
			c, err := NewLogConnector(t.Context(), s.log)
			require.NoError(t, err)
			s.db = sql.OpenDB(c)
		}
		for range 1 + rng.IntN(4) {
			var txs []*sql.Tx
			for _, s := range sides {
				tx, err := s.db.BeginTx(t.Context(), nil)
				require.NoError(t, err)
				txs = append(txs, tx)
			}
			for range rng.IntN(15) {
				query, args := randomStep(rng)
				var said []string
				for i, tx := range txs {
					r, err := tx.ExecContext(t.Context(), query+sides[i].tail, args...)
					if err == nil && !strings.HasPrefix(query, "INSERT") {
						r = inserted(0) // of the INSERT before, which SQLite may not know
					}
					said = append(said, outcome(r, err))
				}
				require.Equal(t, said[1], said[0], "seed %d: %s %v", seed, query, args)
			}
			commit := rng.IntN(4) > 0
			for _, tx := range txs {
				if commit {
					require.NoError(t, tx.Commit())
				} else {
					require.NoError(t, tx.Rollback())
				}
			}
		}
		var left [2][]evlog.Record
		for i, s := range sides {
			for r, err := range s.log.Reader().Records(t.Context(), 0) {
				require.NoError(t, err)
				if time.Since(r.Time).Abs() < time.Hour {
					r.Time = time.Time{} // stamped
				}
				left[i] = append(left[i], evlog.Record{
					Offset: r.Offset, Time: r.Time, Schema: r.Schema, Key: []byte(string(r.Key)), Value: []byte(string(r.Value)),
				})
			}
			require.NoError(t, s.db.Close())
			require.NoError(t, s.log.Close())
		}
		require.Equal(t, left[1], left[0], "seed %d", seed)
	})
}

func outcome(r sql.Result, err error) string {
	if err != nil {
		return err.Error()
	}
	id, _ := r.LastInsertId()
	n, _ := r.RowsAffected()
	return fmt.Sprint(id, " ", n)
}

// randomStep is an INSERT of one row, or something about a savepoint.
func randomStep(rng *rand.Rand) (query string, args []any) {
	if rng.IntN(6) == 0 {
		return []string{"SAVEPOINT a", "ROLLBACK TO a", "RELEASE a"}[rng.IntN(3)], nil
	}
	values := []any{
		nil, int64(0), int64(5), int64(-1), int64(65535), int64(65536), 5.0, 5.5, math.NaN(), math.Inf(1), true, false, "", "5", "text",
		"a\x00b", "\xff", "2026-09-20T03:00:00.123Z", "2026-09-20", []byte(nil),
		[]byte{},
		[]byte("bytes"),
		[]byte{0xff, 0},
		time.UnixMilli(1500),
		strings.Repeat("k", evlog.MaxKeyBytes+1), strings.Repeat("large", 10_000), int32(7),
		sql.NullString{},
		sql.NullInt64{Int64: 3, Valid: true},
	}
	columns := []string{"ts_ms"}
	args = []any{int64(rng.IntN(1000))}
	if rng.IntN(3) == 0 {
		columns, args = []string{"time"}, []any{"2026-09-20T03:00:00.123Z"}
	}
	if rng.IntN(5) == 0 {
		args = []any{values[rng.IntN(len(values))]}
	}
	for _, column := range []string{"schema", "key", "value"} {
		if rng.IntN(2) == 0 {
			columns = append(columns, column)
			args = append(args, values[rng.IntN(len(values))])
		}
	}
	marks := strings.TrimSuffix(strings.Repeat("?, ", len(columns)), ", ")
	return fmt.Sprintf("INSERT INTO log (%s) VALUES (%s)", strings.Join(columns, ", "), marks), args
}
