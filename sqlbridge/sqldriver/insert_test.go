package sqldriver_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/vfs"
	"github.com/evlog-go/evlog/sqlbridge/sqldriver"
)

const (
	insertValue = `INSERT INTO log (value) VALUES (?)`
	values      = `SELECT offset, value FROM log`
)

func writable(t *testing.T) (place, *sql.DB) {
	p := onDisk(t)
	return p, p.open(t, "?mode=rwc")
}

func mustExec(t testing.TB, db interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}, q string, args ...any,
) sql.Result {
	t.Helper()
	r, err := db.ExecContext(t.Context(), q, args...)
	require.NoError(t, err, q)
	return r
}

func TestInsert_Values(t *testing.T) {
	_, db := writable(t)
	const columns = `SELECT offset, ts_ms, time, schema, key, value, tombstone FROM log WHERE offset = ?`
	for i, c := range []struct {
		insert string
		args   []any
		want   string
	}{
		{`(ts_ms, schema, key, value) VALUES (1, 65535, 'k', 'v')`, nil, `1|"1970-01-01T00:00:00.001Z"|65535|"k"|"v"|0`},
		{`(ts_ms, key, value) VALUES (0, x'ff', x'00fe')`, nil, `0|"1970-01-01T00:00:00.000Z"|0|x'ff'|x'00fe'|0`},
		{`(ts_ms, key) VALUES (-1, 'k')`, nil, `-1|"1969-12-31T23:59:59.999Z"|0|"k"|NULL|1`},
		{`(ts_ms, key, value) VALUES (2.0, '', '')`, nil, `2|"1970-01-01T00:00:00.002Z"|0|NULL|NULL|0`},
		{`(time, value) VALUES ('2026-09-20T03:00:00.123Z', 'v')`, nil, `1789873200123|"2026-09-20T03:00:00.123Z"|0|NULL|"v"|0`},
		{`(time, value) VALUES ('2026-09-20T05:00:00+02:00', 'v')`, nil, `1789873200000|"2026-09-20T03:00:00.000Z"|0|NULL|"v"|0`},
		{`(time, value) VALUES (datetime(0, 'unixepoch'), 'v')`, nil, `0|"1970-01-01T00:00:00.000Z"|0|NULL|"v"|0`},
		{`(time, value) VALUES (?, ?)`, []any{at(1500), []byte("text")}, `1500|"1970-01-01T00:00:01.500Z"|0|NULL|"text"|0`},
		{`(ts_ms) VALUES (9223372036854775807)`, nil, `9223372036854775807|NULL|0|NULL|NULL|0`},
		{`(ts_ms) VALUES (-62135596800000)`, nil, `-62135596800000|"0001-01-01T00:00:00.000Z"|0|NULL|NULL|0`},
		{`(ts_ms, value) SELECT ts_ms, value || '!' FROM log WHERE offset = 0`, nil, `1|"1970-01-01T00:00:00.001Z"|0|NULL|"v!"|0`},
		{
			`(ts_ms, key, value) VALUES (?, ?, ?)`,
			[]any{3, strings.Repeat("k", evlog.MaxKeyBytes), "v"},
			`3|"1970-01-01T00:00:00.003Z"|0|"` + strings.Repeat("k", evlog.MaxKeyBytes) + `"|"v"|0`,
		},
		{
			`(ts_ms, value) VALUES (?, ?)`,
			[]any{3, strings.Repeat("large", 40_000)},
			`3|"1970-01-01T00:00:00.003Z"|0|NULL|"` + strings.Repeat("large", 40_000) + `"|0`,
		},
	} {
		r := mustExec(t, db, `INSERT INTO log `+c.insert, c.args...)
		id, err := r.LastInsertId()
		require.NoError(t, err)
		require.EqualValues(t, i, id, "LastInsertId is the offset")
		n, err := r.RowsAffected()
		require.NoError(t, err)
		require.EqualValues(t, 1, n)
		require.Equal(t, []string{fmt.Sprintf("%d|%s", i, c.want)}, mustQuery(t, db, columns, i))
	}
	before := time.Now().UnixMilli()
	id, err := mustExec(t, db, insertValue, "stamped").LastInsertId()
	require.NoError(t, err)
	var ms int64
	require.NoError(t, db.QueryRowContext(t.Context(), `SELECT ts_ms FROM log WHERE offset = ?`, id).Scan(&ms))
	require.GreaterOrEqual(t, ms, before)
	require.LessOrEqual(t, ms, time.Now().UnixMilli())
}

func TestInsert_Refused(t *testing.T) {
	p, db := writable(t)
	for q, text := range map[string]string{
		`INSERT INTO log (offset, value) VALUES (5, 'v')`:                      "offset",
		`INSERT INTO log (rowid, value) VALUES (5, 'v')`:                       "rowid",
		`INSERT INTO log (tombstone, value) VALUES (0, 'v')`:                   "tombstone",
		`INSERT INTO log (segment, value) VALUES (0, 'v')`:                     "segment",
		`INSERT INTO log (key) VALUES (5)`:                                     "key is a number",
		`INSERT INTO log (value) VALUES (5.5)`:                                 "value is a number",
		`INSERT INTO log (schema) VALUES (65536)`:                              "schema is 65536",
		`INSERT INTO log (schema) VALUES (-1)`:                                 "schema is -1",
		`INSERT INTO log (schema) VALUES ('x')`:                                "schema",
		`INSERT INTO log (ts_ms) VALUES ('x')`:                                 "ts_ms",
		`INSERT INTO log (ts_ms) VALUES (1.5)`:                                 "ts_ms is 1.5",
		`INSERT INTO log (ts_ms) VALUES (1e30)`:                                "ts_ms",
		`INSERT INTO log (time) VALUES ('noon')`:                               "noon",
		`INSERT INTO log (time) VALUES (5)`:                                    "time",
		`INSERT INTO log (time, ts_ms) VALUES ('2026-09-20', 5)`:               "not both",
		`INSERT INTO log (key) VALUES (zeroblob(65536))`:                       "65536 bytes",
		`INSERT INTO log (value) VALUES ('x') RETURNING offset`:                "LastInsertId",
		`INSERT INTO log (value) VALUES ('x') RETURNING *`:                     "LastInsertId",
		`INSERT INTO log (value) VALUES ('x') RETURNING schema`:                "LastInsertId",
		`INSERT INTO log (value) SELECT 'x' RETURNING offset`:                  "LastInsertId",
		`INSERT INTO log (value) SELECT value FROM log RETURNING ts_ms`:        "LastInsertId",
		`insert into log (value) select 'x' union select 'y' returning rowid`:  "LastInsertId",
		`INSERT INTO log (value) VALUES ('a'), ('b'), (5)`:                     "number",
		`INSERT INTO log SELECT * FROM (SELECT 1, 2, NULL, 3, 'k', 'v', 0, 0)`: "offset",
	} {
		_, err := db.ExecContext(p.ctx, q)
		require.ErrorContains(t, err, text, q)
	}
	require.Equal(t, []string{"0"}, mustQuery(t, db, `SELECT count(*) FROM log`))
	id, err := mustExec(t, db, insertValue, "v").LastInsertId()
	require.NoError(t, err)
	require.Zero(t, id, "what was refused took no offset")
}

// A transaction is one batch with one sync; what it inserted is there after
// COMMIT and not before.
func TestInsert_Transaction(t *testing.T) {
	p := onDisk(t)
	l, err := evlog.Open(p.ctx, p.dir, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	c, err := sqldriver.NewLogConnector(p.ctx, l)
	require.NoError(t, err)
	db := sql.OpenDB(c)
	defer func() { require.NoError(t, db.Close()) }()
	before := l.Stats()
	tx, err := db.BeginTx(p.ctx, nil)
	require.NoError(t, err)
	for i := range 500 {
		id, err := mustExec(t, tx, insertValue, fmt.Sprint(i)).LastInsertId()
		require.NoError(t, err)
		require.EqualValues(t, i, id)
	}
	require.Equal(t, []string{"0"}, mustQuery(t, tx, `SELECT count(*) FROM log`), "not before COMMIT")
	require.Equal(t, []string{"0"}, mustQuery(t, db, `SELECT count(*) FROM log`))
	require.NotEmpty(t, l.Stats().GateHolder)
	require.NoError(t, tx.Commit())
	after := l.Stats()
	require.EqualValues(t, 1, after.Batches-before.Batches)
	require.EqualValues(t, 1, after.Syncs-before.Syncs)
	require.Empty(t, after.GateHolder)
	require.Equal(t, []string{"500|499"}, mustQuery(t, db, `SELECT count(*), max(offset) FROM log`))

	// Without INSERT nothing is touched, and nobody is kept out.
	tx, err = db.BeginTx(p.ctx, nil)
	require.NoError(t, err)
	mustQuery(t, tx, `SELECT count(*) FROM log`)
	require.Empty(t, l.Stats().GateHolder)
	_, err = l.Append(p.ctx, evlog.Record{})
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	require.Equal(t, after.Batches+1, l.Stats().Batches)

	// The caller's log is still open when the connector is closed.
	require.NoError(t, c.Close())
	_, err = l.Append(p.ctx, evlog.Record{})
	require.NoError(t, err)
}

// What is rolled back leaves nothing, not even an offset: a transaction, a
// savepoint, a statement of several rows that fails in the middle, a context that
// ends.
func TestInsert_Rollback(t *testing.T) {
	p, db := writable(t)
	rolledBack := func(f func(tx *sql.Tx)) {
		t.Helper()
		tx, err := db.BeginTx(p.ctx, nil)
		require.NoError(t, err)
		f(tx)
		require.NoError(t, tx.Rollback())
	}
	rolledBack(func(tx *sql.Tx) { mustExec(t, tx, insertValue, "gone") })
	rolledBack(func(tx *sql.Tx) {
		mustExec(t, tx, `SAVEPOINT a`)
		mustExec(t, tx, insertValue, "gone")
		mustExec(t, tx, `RELEASE a`)
	})
	ctx, cancel := context.WithCancel(p.ctx)
	tx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	mustExec(t, tx, insertValue, "gone")
	cancel()
	require.Eventually(t, func() bool { return errors.Is(tx.Commit(), sql.ErrTxDone) }, 5*time.Second, time.Millisecond)
	require.Equal(t, []string{"0"}, mustQuery(t, db, `SELECT count(*) FROM log`))

	tx, err = db.BeginTx(p.ctx, nil)
	require.NoError(t, err)
	step := func(q string, args ...any) { t.Helper(); mustExec(t, tx, q, args...) }
	step(`SAVEPOINT before`)
	step(insertValue, "0")
	step(`SAVEPOINT a`)
	step(insertValue, "gone")
	step(`SAVEPOINT b`)
	step(`INSERT INTO log (value) VALUES ('gone'), ('gone too')`)
	step(`ROLLBACK TO b`)
	step(insertValue, "gone")
	step(`ROLLBACK TO a`)
	step(insertValue, "1")
	_, err = tx.ExecContext(p.ctx, `INSERT INTO log (value) VALUES ('gone'), ('gone'), (3)`)
	require.Error(t, err)
	step(`RELEASE a`)
	id, err := mustExec(t, tx, `INSERT INTO log (value) VALUES ('2'), ('3')`).LastInsertId()
	require.NoError(t, err)
	require.EqualValues(t, 3, id)
	step(`SAVEPOINT c`)
	step(insertValue, "4")
	step(`RELEASE before`)
	require.NoError(t, tx.Commit())
	require.Equal(t, []string{`0|"0"`, `1|"1"`, `2|"2"`, `3|"3"`, `4|"4"`}, mustQuery(t, db, values))

	tx, err = db.BeginTx(p.ctx, nil)
	require.NoError(t, err)
	step(`SAVEPOINT before`)
	step(insertValue, "gone")
	step(`ROLLBACK TO before`)
	require.NoError(t, tx.Commit())
	require.Equal(t, []string{"5"}, mustQuery(t, db, `SELECT count(*) FROM log`))
	require.Equal(t, []string{`5|"5"`}, func() []string {
		mustExec(t, db, insertValue, "5")
		return mustQuery(t, db, values+` WHERE offset > 4`)
	}())
}

// When an INSERT is interrupted, SQLite rolls the whole transaction back, and
// database/sql does not know. What is inserted next must not be committed on its own.
func TestInsert_InterruptedInTransaction(t *testing.T) {
	const endless = `WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT 'n' FROM c`
	for _, interrupted := range []string{
		`INSERT INTO log (value) ` + endless, `INSERT INTO log (value) ` + endless + ` WHERE x < 0`,
		`INSERT INTO log (value) SELECT value FROM log UNION ALL SELECT * FROM (` + endless + ` WHERE x < 0)`,
	} {
		for _, before := range []int{0, 1, 3} {
			t.Run(fmt.Sprintf("%s/%d", interrupted, before), func(t *testing.T) {
				p, db := writable(t)
				db.SetMaxOpenConns(1)
				mustExec(t, db, insertValue, "there")
				die := func(tx executor) {
					t.Helper()
					for range before {
						mustExec(t, tx, insertValue, "gone")
					}
					untilDead(t, tx, interrupted)
				}
				for _, end := range []string{"commit", "rollback"} {
					tx, err := db.BeginTx(p.ctx, nil)
					require.NoError(t, err)
					prepared, err := tx.PrepareContext(p.ctx, insertValue)
					require.NoError(t, err)
					die(tx)
					_, err = tx.ExecContext(p.ctx, insertValue, "must not be there")
					require.ErrorIs(t, err, sqldriver.ErrRolledBack)
					_, err = prepared.ExecContext(p.ctx, "must not be there")
					require.ErrorIs(t, err, sqldriver.ErrRolledBack)
					_, err = query(p.ctx, tx, `SELECT 1`)
					require.ErrorIs(t, err, sqldriver.ErrRolledBack)
					if end == "commit" {
						require.ErrorIs(t, tx.Commit(), sqldriver.ErrRolledBack)
					} else {
						require.NoError(t, tx.Rollback())
					}
					require.Equal(t, []string{`"there"`}, mustQuery(t, db, `SELECT value FROM log`))
				}

				// The same for a transaction that is begun by a statement.
				c, err := db.Conn(p.ctx)
				require.NoError(t, err)
				for _, end := range []string{"COMMIT", "ROLLBACK"} {
					mustExec(t, c, "BEGIN")
					die(c)
					for _, q := range []string{`INSERT INTO log (value) VALUES ('no')`, `SELECT 1`, `BEGIN`, `SAVEPOINT a`} {
						_, err = c.ExecContext(p.ctx, q)
						require.ErrorIs(t, err, sqldriver.ErrRolledBack, q)
					}
					_, err = c.ExecContext(p.ctx, end)
					require.ErrorContains(t, err, "no transaction is active")
					require.Equal(t, []string{`"there"`}, mustQuery(t, c, `SELECT value FROM log`))
				}
				untilDead(t, c, "BEGIN; INSERT INTO log (value) VALUES ('gone'); "+interrupted)
				_, err = c.ExecContext(p.ctx, insertValue, "must not be there")
				require.ErrorIs(t, err, sqldriver.ErrRolledBack)
				_, err = c.ExecContext(p.ctx, "ROLLBACK")
				require.ErrorContains(t, err, "no transaction is active")
				require.Equal(t, []string{`"there"`}, mustQuery(t, c, `SELECT value FROM log`))
				require.NoError(t, c.Close())

				// A transaction that was not interrupted has all of it.
				tx, err := db.BeginTx(p.ctx, nil)
				require.NoError(t, err)
				mustExec(t, tx, insertValue, "first")
				mustExec(t, tx, insertValue, "second")
				ctx, cancel := context.WithTimeout(p.ctx, 20*time.Millisecond)
				defer cancel()
				_, err = query(ctx, tx, `SELECT count(*) FROM (`+endless+`)`)
				require.ErrorIs(t, err, context.DeadlineExceeded, "a query changes nothing")
				mustExec(t, tx, insertValue, "third")
				require.NoError(t, tx.Commit())
				require.Equal(t, []string{"4"}, mustQuery(t, db, `SELECT count(*) FROM log`))
			})
		}
	}
}

type executor interface {
	querier
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}

// untilDead executes a text that does not end with a context that does, until the
// INSERT in it has begun before that: then the transaction is dead.
func untilDead(t *testing.T, tx executor, text string) {
	t.Helper()
	for d := 20 * time.Millisecond; ; d *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), d)
		_, err := tx.ExecContext(ctx, text)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		if _, err := query(t.Context(), tx, `SELECT 1`); err != nil {
			require.ErrorIs(t, err, sqldriver.ErrRolledBack)
			return
		}
		if strings.HasPrefix(text, "BEGIN") {
			_, _ = tx.ExecContext(t.Context(), "ROLLBACK") // it may not have begun
		}
	}
}

// BEGIN and COMMIT as statements. SAVEPOINT is no transaction of its own.
func TestInsert_Statements(t *testing.T) {
	_, db := writable(t)
	c, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer c.Close()
	mustExec(t, c, `BEGIN; INSERT INTO log (value) VALUES ('0'); INSERT INTO log (value) VALUES ('1'); COMMIT`)
	mustExec(t, c, `BEGIN; SAVEPOINT a; INSERT INTO log (value) VALUES ('2'); RELEASE a; COMMIT`)
	for _, q := range []string{`SAVEPOINT a`, `BEGIN; COMMIT; SAVEPOINT a`, `BEGIN; ROLLBACK; SAVEPOINT a`} {
		_, err = c.ExecContext(t.Context(), q)
		require.ErrorIs(t, err, sqldriver.ErrNotAllowed, q)
		require.ErrorContains(t, err, "SAVEPOINT outside of a transaction")
	}
	mustExec(t, c, `BEGIN`)
	_, err = c.ExecContext(t.Context(), `ROLLBACK; SAVEPOINT a`)
	require.ErrorIs(t, err, sqldriver.ErrNotAllowed)

	// A text that fails behind its BEGIN has begun a transaction.
	_, err = c.ExecContext(t.Context(), `BEGIN; INSERT INTO log (value) VALUES (5)`)
	require.ErrorContains(t, err, "value is a number")
	mustExec(t, c, `SAVEPOINT a; RELEASE a`)
	mustExec(t, c, insertValue, "gone")
	require.Equal(t, []string{"3"}, mustQuery(t, c, `SELECT count(*) FROM log`))
	mustExec(t, c, `ROLLBACK`)
	_, err = c.ExecContext(t.Context(), `BEGIN nonsense`)
	require.ErrorContains(t, err, "syntax error")
	_, err = c.ExecContext(t.Context(), `ROLLBACK`)
	require.ErrorContains(t, err, "no transaction is active", "nothing was begun")
	mustExec(t, c, `BEGIN IMMEDIATE`)
	mustExec(t, c, insertValue, "gone")
	mustExec(t, c, `ROLLBACK`)
	require.Equal(t, []string{`0|"0"`, `1|"1"`, `2|"2"`}, mustQuery(t, c, values))
}

func TestInsert_ReadOnlyTransaction(t *testing.T) {
	p, db := writable(t)
	db.SetMaxOpenConns(1)
	tx, err := db.BeginTx(p.ctx, &sql.TxOptions{ReadOnly: true})
	require.NoError(t, err)
	_, err = tx.ExecContext(p.ctx, insertValue, "v")
	require.ErrorIs(t, err, sqldriver.ErrNotAllowed)
	require.NoError(t, tx.Commit())
	mustExec(t, db, insertValue, "v")
}

// Transactions at the same time take turns: each is contiguous, all offsets are
// given out once, and those who come behind share syncs.
func TestInsert_Concurrent(t *testing.T) {
	p, db := writable(t)
	const writers, rounds = 8, 20
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for r := range rounds {
				if err := insertBatch(p.ctx, db, fmt.Sprintf("%d/%d", w, r), 1+r%4); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, []string{fmt.Sprint(writers * 5 * (1 + 2 + 3 + 4))}, mustQuery(t, db, `SELECT count(*) FROM log`))
	require.Equal(t, []string{fmt.Sprint(writers * rounds)}, mustQuery(t, db, `SELECT count(*) FROM (
		SELECT key, count(*) n, max(offset) - min(offset) + 1 width FROM log GROUP BY key) WHERE n = width`))
	require.Equal(t, []string{"1"}, mustQuery(t, db, `SELECT max(offset) + 1 = count(*) FROM log`))
	require.Empty(t, mustQuery(t, db, `SELECT offset FROM log WHERE offset <> CAST(value AS INTEGER)`), "LastInsertId was right")
}

// insertBatch inserts n records under a key; each but the first says which offset
// the one before got, plus one.
func insertBatch(ctx context.Context, db *sql.DB, key string, n int) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // does nothing after the commit
	// The offset of the first one is not known before it is inserted, so it is
	// inserted twice and taken back once.
	if _, err := tx.ExecContext(ctx, `SAVEPOINT s`); err != nil {
		return err
	}
	r, err := tx.ExecContext(ctx, insertValue, "probe")
	if err != nil {
		return err
	}
	first, err := r.LastInsertId()
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `ROLLBACK TO s`); err != nil {
		return err
	}
	for i := range n {
		if _, err := tx.ExecContext(ctx, `INSERT INTO log (key, value) VALUES (?, ?)`, key, fmt.Sprint(first+int64(i))); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// A transaction that stays open loses the gate, says so, and has left nothing.
func TestInsert_HeldTooLong(t *testing.T) {
	p := onDisk(t)
	p.create(t, nil)
	db := p.open(t, "?mode=rw&hold=50ms")
	slow, err := db.BeginTx(p.ctx, nil)
	require.NoError(t, err)
	mustExec(t, slow, insertValue, "slow")
	mustExec(t, db, insertValue, "quick") // waits until the slow one has lost it
	_, err = slow.ExecContext(p.ctx, insertValue, "slow")
	require.ErrorIs(t, err, sqldriver.ErrHeldTooLong)
	require.ErrorIs(t, slow.Commit(), sqldriver.ErrHeldTooLong)
	require.Equal(t, []string{`0|"quick"`}, mustQuery(t, db, values))

	// The connection is good for the next one, also after a rollback.
	slow, err = db.BeginTx(p.ctx, nil)
	require.NoError(t, err)
	mustExec(t, slow, insertValue, "slow")
	mustExec(t, db, insertValue, "quick")
	require.NoError(t, slow.Rollback())
	db.SetMaxOpenConns(1)
	mustExec(t, db, insertValue, "again")
	require.Equal(t, []string{`0|"quick"`, `1|"quick"`, `2|"again"`}, mustQuery(t, db, values))
}

// A statement that waits for the gate ends with its context.
func TestInsert_WaitIsCancelled(t *testing.T) {
	p, db := writable(t)
	first, err := db.BeginTx(p.ctx, nil)
	require.NoError(t, err)
	mustExec(t, first, insertValue, "first")
	ctx, cancel := context.WithTimeout(p.ctx, 30*time.Millisecond)
	defer cancel()
	_, err = db.ExecContext(ctx, insertValue, "second")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, first.Commit())
	require.Equal(t, []string{`0|"first"`}, mustQuery(t, db, values))
}

// Closing the database does not wait for a transaction that nobody ends, and that
// transaction cannot commit.
func TestInsert_CloseUnderWay(t *testing.T) {
	p := onDisk(t)
	db, err := sql.Open("evlog", p.dir+"?mode=rwc&hold=1h")
	require.NoError(t, err)
	tx, err := db.BeginTx(p.ctx, nil)
	require.NoError(t, err)
	mustExec(t, tx, insertValue, "v")
	require.NoError(t, db.Close())
	require.Error(t, tx.Commit())
	again := p.open(t, "?mode=rw")
	require.Empty(t, mustQuery(t, again, values))
	mustExec(t, again, insertValue, "v")
}

// faulty is a log opened for writing on a file system that fails on demand.
type faulty struct {
	place
	mem *vfs.Mem
	log *evlog.Log
	db  *sql.DB

	hook atomic.Pointer[vfs.Hook]
}

func openFaulty(t *testing.T) *faulty {
	f := &faulty{mem: vfs.NewMem()}
	f.place = onFS(t, vfs.Inject(f.mem, func(op vfs.Op) error {
		if hook := f.hook.Load(); hook != nil {
			return (*hook)(op)
		}
		return nil
	}))
	// Without the goroutine that prepares space: the test says what fails.
	var err error
	f.log, err = evlog.Open(f.ctx, f.dir, &evlog.Options{NoPreallocate: true})
	require.NoError(t, err)
	c, err := sqldriver.NewLogConnector(f.ctx, f.log)
	require.NoError(t, err)
	f.db = sql.OpenDB(c)
	t.Cleanup(func() {
		require.NoError(t, f.db.Close())
		_ = f.log.Close() // a poisoned log says so
	})
	return f
}

// fail lets operations fail from now on.
func (f *faulty) fail(hook vfs.Hook) { f.hook.Store(&hook) }

// heal ends that.
func (f *faulty) heal() { f.hook.Store(nil) }

// Whoever appends beside a transaction waits for its write, not for its sync.
func TestInsert_OthersGoOn(t *testing.T) {
	f := openFaulty(t)
	mustExec(t, f.db, insertValue, "before")
	syncing, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	f.fail(func(op vfs.Op) error {
		if op.Kind == vfs.OpSyncData {
			once.Do(func() {
				close(syncing)
				<-release
			})
		}
		return nil
	})
	done := make(chan error)
	go func() {
		_, err := f.db.ExecContext(f.ctx, insertValue, "slow")
		done <- err
	}()
	<-syncing
	_, err := f.log.Enqueue(f.ctx, evlog.Record{Value: []byte("beside")})
	require.NoError(t, err)
	close(release)
	require.NoError(t, <-done)
	require.NoError(t, f.log.Flush(f.ctx))
	require.Equal(t, []string{`0|"before"`, `1|"slow"`, `2|"beside"`}, mustQuery(t, f.db, values))
}

// A sync that fails is a COMMIT that fails, with the cause; the log is poisoned,
// and a log that is opened anew does not have what power loss took.
func TestInsert_FailedSync(t *testing.T) {
	for _, explicit := range []bool{false, true} {
		t.Run(fmt.Sprintf("explicit=%v", explicit), func(t *testing.T) {
			f := openFaulty(t)
			mustExec(t, f.db, insertValue, "before")
			broken := errors.New("the sync failed")
			f.fail(vfs.FailFrom(vfs.OpSyncData, "*.log", 1, broken))
			var err error
			if explicit {
				tx, beginErr := f.db.BeginTx(f.ctx, nil)
				require.NoError(t, beginErr)
				mustExec(t, tx, insertValue, "lost")
				mustExec(t, tx, insertValue, "lost too")
				err = tx.Commit()
			} else {
				_, err = f.db.ExecContext(f.ctx, insertValue, "lost")
			}
			require.ErrorIs(t, err, broken)
			require.ErrorIs(t, err, evlog.ErrPoisoned)
			require.Equal(t, []string{`0|"before"`}, mustQuery(t, f.db, values))
			f.heal()
			_, err = f.db.ExecContext(f.ctx, insertValue, "no more")
			require.ErrorIs(t, err, evlog.ErrPoisoned)

			after := onFS(t, f.mem.SyncedImage()).open(t, "?mode=rw")
			require.Equal(t, []string{`0|"before"`}, mustQuery(t, after, values))
			mustExec(t, after, insertValue, "after")
		})
	}
}

// A full disk fails the COMMIT and poisons nothing.
func TestInsert_DiskFull(t *testing.T) {
	f := openFaulty(t)
	mustExec(t, f.db, insertValue, "before")
	f.fail(vfs.FailFrom(vfs.OpWrite, "*.log", 1, syscall.ENOSPC))
	tx, err := f.db.BeginTx(f.ctx, nil)
	require.NoError(t, err)
	id, err := mustExec(t, tx, insertValue, "lost").LastInsertId()
	require.NoError(t, err)
	require.EqualValues(t, 1, id)
	require.ErrorIs(t, tx.Commit(), syscall.ENOSPC)
	f.heal()
	id, err = mustExec(t, f.db, insertValue, "after").LastInsertId()
	require.NoError(t, err)
	require.EqualValues(t, 2, id, "the offset of what failed is a hole")
	require.Equal(t, []string{`0|"before"`, `2|"after"`}, mustQuery(t, f.db, values))
}

// A log that needs a hook for its appends (an outbox writes to it) takes no
// INSERT, and says why. It can still be read.
func TestInsert_HookRequired(t *testing.T) {
	p := onDisk(t)
	hook := evlog.Hook{Name: "outbox", Run: func(context.Context, evlog.HookState) error { return nil }}
	l, err := evlog.Open(p.ctx, p.dir, &evlog.Options{OpenHook: hook})
	require.NoError(t, err)
	require.NoError(t, l.RequireHook(p.ctx, "outbox"))
	_, err = l.Append(p.ctx, evlog.Record{Value: []byte("v")})
	require.NoError(t, err)
	require.NoError(t, l.Close())
	db := p.open(t, "?mode=rw")
	_, err = db.ExecContext(p.ctx, insertValue, "w")
	require.ErrorIs(t, err, evlog.ErrHookRequired)
	require.ErrorContains(t, err, `"outbox"`)
	require.Equal(t, []string{`0|"v"`}, mustQuery(t, db, values))
}

// A panic in the writer comes out of COMMIT.
func TestInsert_Panic(t *testing.T) {
	f := openFaulty(t)
	mustExec(t, f.db, insertValue, "before")
	f.fail(func(op vfs.Op) error {
		if op.Kind == vfs.OpWrite {
			panic("in the writer")
		}
		return nil
	})
	_, err := f.db.ExecContext(f.ctx, insertValue, "lost")
	require.ErrorContains(t, err, "in the writer")
	f.heal()
	_, err = f.db.ExecContext(f.ctx, insertValue, "lost")
	require.ErrorIs(t, err, evlog.ErrPoisoned)
	require.Equal(t, []string{`0|"before"`}, mustQuery(t, f.db, values))
}
