package sqldriver_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/sqlbridge/sqldriver"
)

// counting are statements that read the log in several places; each column of
// their one row is the same number of records, if they see one state.
var counting = []string{
	`SELECT (SELECT count(*) FROM log), (SELECT count(*) FROM log), (SELECT max(offset) + 1 FROM log)`,
	`SELECT count(*), max(offset) + 1, (SELECT count(*) FROM log), (SELECT count(*) FROM log WHERE offset >= 0) FROM log`,
	`SELECT a.n, b.n FROM (SELECT count(*) n FROM log) a, (SELECT count(*) n FROM log) b`,
	`WITH x AS MATERIALIZED (SELECT count(*) n FROM log) SELECT n, (SELECT count(*) FROM log) FROM x`,
	// The inner cursor is used again for each outer row.
	`SELECT min(n), max(n) FROM (SELECT (SELECT count(*) FROM log WHERE offset >= j.value) n FROM json_each('[0,0,0,0,0,0,0,0]') j)`,
	`WITH RECURSIVE c(i, n) AS (SELECT 0, (SELECT count(*) FROM log) UNION ALL SELECT i + 1, (SELECT count(*) FROM log) FROM c WHERE i < 8)
		SELECT min(n), max(n) FROM c`,
	`SELECT min(n), max(n) FROM (SELECT count(*) n FROM log UNION ALL SELECT count(*) FROM log UNION ALL SELECT max(offset) + 1 FROM log)`,
	`SELECT count(*), (SELECT offset + 1 FROM log ORDER BY offset DESC LIMIT 1) FROM log`,
	`SELECT count(*), (SELECT count(*) FROM log x WHERE EXISTS (SELECT 1 FROM log y WHERE y.offset = x.offset)) FROM log`,
	`SELECT (SELECT count(*) FROM log WHERE key = 'k1'), (SELECT count(*) FROM log WHERE key = 'k1' AND offset >= 0),
		(SELECT count(*) FROM log WHERE key IN ('k1', '')), (SELECT count(*) FROM log WHERE key || '' = 'k1')`,
	`SELECT count(*), count(b.offset) + 1 FROM log a LEFT JOIN log b ON b.offset = a.offset + 1`,
}

// Beside a writer that appends without a pause, every statement sees one state.
func TestView_OneState(t *testing.T) {
	for _, kind := range []string{"own", "other", "attached"} {
		t.Run(kind, func(t *testing.T) {
			p := onDisk(t)
			l, err := evlog.Open(p.ctx, p.dir, &evlog.Options{SegmentBytes: 20_000, Sync: evlog.SyncFlush})
			require.NoError(t, err)
			var db *sql.DB
			switch kind {
			case "own":
				c, err := sqldriver.NewLogConnector(p.ctx, l)
				require.NoError(t, err)
				db = sql.OpenDB(c)
				defer func() { require.NoError(t, db.Close()) }()
			case "other":
				db = p.open(t, "")
			case "attached":
				db = openAttached(t, p, "log")
			}
			_, err = l.Append(p.ctx, evlog.Record{})
			require.NoError(t, err)
			stop := appendAlong(t, l, 300)
			grew := 0
			for round := 0; round < evtest.Count(1000) || grew < 20; round++ { // until enough was appended meanwhile
				for _, q := range counting {
					before := mustQuery(t, db, `SELECT count(*) FROM log`)
					lines := mustQuery(t, db, q)
					require.Len(t, lines, 1)
					numbers := strings.Split(lines[0], "|")
					for _, n := range numbers {
						require.Equal(t, numbers[0], n, "round %d: %s: %s", round, q, lines[0])
					}
					if before[0] != numbers[0] {
						grew++
					}
				}
			}
			stop()
			require.NoError(t, l.Close())
		})
	}
}

// appendAlong appends single records until it is stopped or there are most.
func appendAlong(t *testing.T, l *evlog.Log, most int) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			if i >= most {
				time.Sleep(time.Millisecond) // the queries are quadratic
				if i%100 != 0 {
					continue
				}
			}
			if _, err := l.Append(ctx, evlog.Record{Key: fmt.Appendf(nil, "k%d", i%5), Value: []byte("v")}); err != nil && ctx.Err() == nil {
				t.Error(err)
				return
			}
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}

// A transaction sees what its first statement saw; so does a statement beside one
// that is not finished on the same connection, as in SQLite.
func TestView_Transaction(t *testing.T) {
	p := onDisk(t)
	l, err := evlog.Open(p.ctx, p.dir, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	more := func() {
		key := fmt.Appendf(nil, "k%d", l.Stats().NextOffset%2)
		_, err := l.Append(p.ctx, evlog.Record{Key: key, Value: []byte("v")})
		require.NoError(t, err)
	}
	count := func(q querier) string { return mustQuery(t, q, `SELECT count(*) FROM log`)[0] }
	db := p.open(t, "")
	more()
	tx, err := db.BeginTx(p.ctx, &sql.TxOptions{ReadOnly: true})
	require.NoError(t, err)
	more()
	require.Equal(t, "2", count(tx), "the first statement decides, not BEGIN")
	more()
	require.Equal(t, "2", count(tx))
	require.Equal(t, "3", count(db))
	require.Equal(t, []string{"1"}, mustQuery(t, tx, `SELECT count(*) FROM log WHERE key = 'k0'`))
	require.Empty(t, mustQuery(t, tx, `SELECT offset FROM log WHERE offset = 2`))
	require.NoError(t, tx.Commit())
	require.Equal(t, "3", count(db))

	c, err := db.Conn(p.ctx)
	require.NoError(t, err)
	defer c.Close()
	rows, err := c.QueryContext(p.ctx, `SELECT offset FROM log`)
	require.NoError(t, err)
	require.True(t, rows.Next())
	more()
	require.Equal(t, "3", count(c))
	require.NoError(t, rows.Close())
	require.Equal(t, "4", count(c))

	// A look-up by offset does not fix what is seen later, and is not outdone by it.
	tx, err = db.BeginTx(p.ctx, nil)
	require.NoError(t, err)
	require.Len(t, mustQuery(t, tx, `SELECT offset FROM log WHERE offset = 3`), 1)
	require.Empty(t, mustQuery(t, tx, `SELECT offset FROM log WHERE offset = 4`))
	more()
	require.Empty(t, mustQuery(t, tx, `SELECT offset FROM log WHERE offset = 4`))
	require.Equal(t, "4", count(tx))
	require.NoError(t, tx.Rollback())
	require.Equal(t, "5", count(db))
}

// A transaction that is begun by a statement sees one state as well, however the
// statement is executed, and its end is seen too.
func TestView_TransactionByStatement(t *testing.T) {
	p := onDisk(t)
	l, err := evlog.Open(p.ctx, p.dir, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	c, err := p.open(t, "").Conn(p.ctx)
	require.NoError(t, err)
	defer c.Close()
	// grown counts, appends, and tells whether the next count is another one.
	grown := func() bool {
		before := mustQuery(t, c, `SELECT count(*) FROM log`)
		_, err := l.Append(p.ctx, evlog.Record{})
		require.NoError(t, err)
		return mustQuery(t, c, `SELECT count(*) FROM log`)[0] != before[0]
	}
	prepared := func(q string) {
		st, err := c.PrepareContext(p.ctx, q)
		require.NoError(t, err)
		require.True(t, grown() == (q == "BEGIN"), "compiled and not executed")
		mustExecStmt(t, st)
		require.NoError(t, st.Close())
	}
	require.True(t, grown())
	for _, begin := range []string{"BEGIN", "begin immediate transaction", "BEGIN; COMMIT; BEGIN"} {
		for _, end := range []string{"COMMIT", "ROLLBACK", "END TRANSACTION", "COMMIT; SELECT 1"} {
			mustExec(t, c, begin)
			require.False(t, grown(), begin)
			_, err := c.ExecContext(p.ctx, "BEGIN")
			require.ErrorContains(t, err, "within a transaction")
			require.False(t, grown())
			mustExec(t, c, "SAVEPOINT a; ROLLBACK TO a; RELEASE a")
			require.False(t, grown())
			mustQuery(t, c, end)
			require.True(t, grown(), "%s %s", begin, end)
		}
	}
	prepared("BEGIN")
	require.False(t, grown())
	prepared("COMMIT")
	require.True(t, grown())

	// One of database/sql that a statement ends.
	tx, err := c.BeginTx(p.ctx, nil)
	require.NoError(t, err)
	require.False(t, grown())
	mustExec(t, c, "ROLLBACK")
	require.True(t, grown())
	require.Error(t, tx.Commit())
	require.True(t, grown())
	mustExec(t, c, "BEGIN")
	require.False(t, grown())
	mustExec(t, c, "COMMIT")
	require.True(t, grown())
}

func mustExecStmt(t *testing.T, st *sql.Stmt) {
	t.Helper()
	_, err := st.ExecContext(t.Context())
	require.NoError(t, err)
}

// What retention removes under a statement that has seen it is an error, in
// either direction, and never a shorter answer. A statement that begins later
// begins at what is left.
func TestView_Retention(t *testing.T) {
	p, mem := inMemory(t)
	l, err := evlog.Open(p.ctx, p.dir, &evlog.Options{SegmentBytes: 1})
	require.NoError(t, err)
	for range 40 {
		_, err := l.Append(p.ctx, evlog.Record{})
		require.NoError(t, err)
	}
	defer func() { require.NoError(t, l.Close()) }()
	db := p.open(t, "")
	db.SetMaxOpenConns(1)
	removed := 0
	remove := func(n int) {
		dir, err := mem.OpenDir(p.dir)
		require.NoError(t, err)
		for range n {
			require.NoError(t, dir.Remove(evtest.SegmentFile(uint64(removed))))
			removed++
		}
		require.NoError(t, dir.Close())
	}
	require.Equal(t, []string{"40"}, mustQuery(t, db, `SELECT count(*) FROM log`))
	remove(5)
	require.Equal(t, []string{"35|5"}, mustQuery(t, db, `SELECT count(*), min(offset) FROM log`))
	require.Empty(t, mustQuery(t, db, `SELECT offset FROM log WHERE offset = 4`))
	require.Equal(t, []string{"2"}, mustQuery(t, db, `SELECT count(*) FROM log WHERE offset BETWEEN 3 AND 6`))
	require.Equal(t, []string{"0"}, mustQuery(t, db, `SELECT count(*) FROM log WHERE offset BETWEEN 1 AND 3`))

	for _, q := range []string{
		`SELECT offset FROM log`,
		`SELECT offset FROM log ORDER BY offset DESC`,
	} {
		rows, err := db.QueryContext(p.ctx, q)
		require.NoError(t, err)
		require.True(t, rows.Next())
		remove(3)
		for rows.Next() { //nolint:revive // until it ends
		}
		require.ErrorIs(t, rows.Err(), evlog.ErrOffsetOutOfRange, q)
		require.NoError(t, rows.Close())
		require.Equal(t, []string{fmt.Sprint(40 - removed)}, mustQuery(t, db, `SELECT count(*) FROM log`))
	}
	// A second scan of the same statement would begin later than the first one did.
	rows, err := db.QueryContext(p.ctx, `SELECT a.offset FROM json_each('[1, 2]') j CROSS JOIN log a`)
	require.NoError(t, err)
	for range 40 - removed {
		require.True(t, rows.Next())
	}
	remove(3)
	require.False(t, rows.Next())
	require.ErrorIs(t, rows.Err(), evlog.ErrOffsetOutOfRange)
	require.NoError(t, rows.Close())

	// So would a look-up that is made again.
	rows, err = db.QueryContext(p.ctx, `SELECT offset FROM json_each('[1, 2]') j CROSS JOIN log ON offset = ?`, removed+2)
	require.NoError(t, err)
	require.True(t, rows.Next())
	remove(3)
	require.False(t, rows.Next())
	require.ErrorIs(t, rows.Err(), evlog.ErrOffsetOutOfRange)
	require.NoError(t, rows.Close())

	// What was not seen yet, and not asked for, is nobody's loss.
	rows, err = db.QueryContext(p.ctx, `SELECT offset FROM log WHERE offset >= 30`)
	require.NoError(t, err)
	require.True(t, rows.Next())
	remove(3)
	n := 1
	for rows.Next() {
		n++
	}
	require.NoError(t, rows.Err())
	require.Equal(t, 10, n)
	require.NoError(t, rows.Close())
}

// The tables beside the log.
func TestLists(t *testing.T) {
	p := onDisk(t)
	l, err := evlog.Open(p.ctx, p.dir, &evlog.Options{SegmentBytes: 1})
	require.NoError(t, err)
	require.NoError(t, l.AppendExact(p.ctx, evlog.Record{Time: at(1000), Value: []byte("v")},
		evlog.Record{Offset: 3, Time: at(500), Key: []byte("k")}))
	require.NoError(t, l.AppendExact(p.ctx, evlog.Record{Offset: 7, Time: at(2000)}))
	require.NoError(t, l.Close())
	db := p.open(t, "")
	require.Equal(t, []string{
		`0|4|2|2|1|58|58|58|"1970-01-01T00:00:00.500Z"|"1970-01-01T00:00:01.000Z"|NULL|1|"closed"|NULL`,
		`4|8|1|3|0|28|28|28|"1970-01-01T00:00:02.000Z"|"1970-01-01T00:00:02.000Z"|NULL|1|"active"|NULL`,
	}, mustQuery(t, db, `SELECT base, "end", records, holes, tombstones, bytes, file_bytes, dirty_bytes, oldest, newest,
		cleaned, indexed, state, error FROM segments`))
	require.Equal(t, []string{"0|4", "4|8"}, mustQuery(t, db, `SELECT base, end FROM segments`), "end needs no quotes")
	require.Equal(t, []string{"0|2|2", "4|1|1"}, mustQuery(t, db,
		`SELECT s.base, s.records, count(*) FROM segments s JOIN log ON segment = base GROUP BY base`))
	require.Equal(t, []string{"0|0", "3|0", "7|4"}, mustQuery(t, db, `SELECT offset, segment FROM log`))

	require.Empty(t, mustQuery(t, db, `SELECT * FROM consumers`))
	commitAt(t, p, "a", 3)
	commitAt(t, p, "b", 8)
	require.Equal(t, []string{`"a"|3|0|8|5|"ok"|NULL`, `"b"|8|0|8|0|"ok"|NULL`},
		mustQuery(t, db, `SELECT name, committed, log_start, log_end, lag, state, note FROM consumers`))
	require.Equal(t, []string{"3", "7"}, mustQuery(t, db,
		`SELECT log.offset FROM consumers JOIN log ON log.offset >= committed WHERE name = 'a'`))
	commitAt(t, p, "c", 99)
	require.Equal(t, []string{`"ahead"|NULL`}, mustQuery(t, db, `SELECT state, lag FROM consumers WHERE name = 'c'`))
	for _, q := range []string{`INSERT INTO segments (base) VALUES (1)`, `UPDATE consumers SET committed = 0`} {
		_, err := db.ExecContext(p.ctx, q)
		require.ErrorIs(t, err, sqldriver.ErrNotAllowed)
	}
}

// What a statement sees can be gone before it has read any of it. That is an
// error: no rows would say that the log was empty.
func TestView_OvertakenBeforeRead(t *testing.T) {
	for _, q := range []string{
		`SELECT offset FROM log`,
		`SELECT offset FROM log ORDER BY offset DESC`,
		`SELECT offset FROM log WHERE key = 'k1'`,
		`SELECT offset FROM log WHERE key = 'k1' ORDER BY offset DESC`,
		`SELECT offset FROM log WHERE ts_ms >= 0`,
		`SELECT count(*), max(offset) FROM log`,
	} {
		for _, after := range []int{0, 1, 3} {
			p := onDisk(t)
			l, err := evlog.Open(p.ctx, p.dir, nil)
			require.NoError(t, err)
			more := func(n int) {
				for range n {
					_, err := l.Append(p.ctx, evlog.Record{Key: []byte("k1"), Value: []byte("v")})
					require.NoError(t, err)
				}
				require.NoError(t, l.Roll(p.ctx))
			}
			more(4)
			tx, err := p.open(t, "").BeginTx(p.ctx, &sql.TxOptions{ReadOnly: true})
			require.NoError(t, err)
			mustQuery(t, tx, `SELECT base FROM segments`) // now the view is taken, and no record was read
			more(after)
			more(1)
			_, err = l.Retain(p.ctx, &evlog.RetainOptions{MaxRecords: 1})
			require.NoError(t, err)
			_, err = query(p.ctx, tx, q)
			require.ErrorIs(t, err, evlog.ErrOffsetOutOfRange, "%s, %d more", q, after)
			require.NoError(t, tx.Rollback())
			require.NoError(t, l.Close())
		}
	}
}

// Once a statement has read from the log, all of it sees what was there then,
// however it looks for it.
func TestView_OvertakenBetweenReads(t *testing.T) {
	for _, q := range []string{
		`SELECT offset FROM log`,
		`SELECT offset FROM log ORDER BY offset DESC`,
		`SELECT offset FROM log WHERE key = 'k1'`,
		`SELECT offset FROM log WHERE key = 'k1' ORDER BY offset DESC`,
		`SELECT offset FROM log WHERE ts_ms >= 0`,
		`SELECT offset FROM log WHERE ts_ms >= 0 ORDER BY offset DESC`,
		`SELECT offset FROM log WHERE offset = 1`,
		`SELECT offset FROM log WHERE offset IN (5, 1)`,
		`SELECT offset FROM log WHERE offset BETWEEN 1 AND 1`,
		`SELECT offset FROM log WHERE key IN ('k2', 'k1')`,
		`SELECT offset FROM log WHERE segment = 0`,
		`SELECT offset FROM log WHERE segment IN (4, 0)`,
	} {
		p := onDisk(t)
		l, err := evlog.Open(p.ctx, p.dir, nil)
		require.NoError(t, err)
		for range 3 {
			_, err := l.Append(p.ctx, evlog.Record{Key: []byte("k1")}, evlog.Record{Key: []byte("k1")})
			require.NoError(t, err)
			require.NoError(t, l.Roll(p.ctx))
		}
		tx, err := p.open(t, "").BeginTx(p.ctx, &sql.TxOptions{ReadOnly: true})
		require.NoError(t, err)
		require.Equal(t, []string{"0"}, mustQuery(t, tx, `SELECT offset FROM log LIMIT 1`))
		_, err = l.Retain(p.ctx, &evlog.RetainOptions{MaxRecords: 4})
		require.NoError(t, err)
		require.Equal(t, []string{"3"}, mustQuery(t, tx, `SELECT offset FROM log WHERE offset = 3`), "still there")
		require.Equal(t, []string{"4|4", "5|4"}, mustQuery(t, tx, `SELECT offset, segment FROM log WHERE segment = 4`))
		_, err = query(p.ctx, tx, q)
		require.ErrorIs(t, err, evlog.ErrOffsetOutOfRange, q)
		require.NoError(t, tx.Rollback())
		require.NoError(t, l.Close())
	}
}

// A log that retention has emptied is empty, and no error.
func TestView_AllRetained(t *testing.T) {
	p := onDisk(t)
	l, err := evlog.Open(p.ctx, p.dir, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	_, err = l.Append(p.ctx, evlog.Record{Time: time.Now().Add(-time.Hour)})
	require.NoError(t, err)
	require.NoError(t, l.Roll(p.ctx))
	_, err = l.Retain(p.ctx, &evlog.RetainOptions{MaxBytes: 1})
	require.NoError(t, err)
	bases, err := l.Reader().Bases(p.ctx)
	require.NoError(t, err)
	require.Equal(t, []uint64{1}, bases)
	db := p.open(t, "")
	for _, q := range []string{`SELECT offset FROM log`, `SELECT offset FROM log ORDER BY offset DESC`, `SELECT offset FROM log WHERE offset = 0`} {
		require.Empty(t, mustQuery(t, db, q), q)
	}
}

// A transaction that a statement has begun stays out of the pool.
func TestView_TransactionLeftOpen(t *testing.T) {
	p, db := writable(t)
	db.SetMaxOpenConns(1)
	for _, q := range []string{`BEGIN`, `BEGIN; SELECT count(*) FROM log`, `BEGIN; INSERT INTO log (value) VALUES ('no')`} {
		mustExec(t, db, q)
		n := mustQuery(t, db, `SELECT count(*) FROM log`)
		mustExec(t, db, insertValue, "v")
		require.NotEqual(t, n, mustQuery(t, db, `SELECT count(*) FROM log`), q)
		_, err := db.ExecContext(t.Context(), `COMMIT`)
		require.ErrorContains(t, err, "no transaction is active", q)
	}
	require.Equal(t, []string{`"v"`, `"v"`, `"v"`}, mustQuery(t, db, `SELECT value FROM log`))

	// Whoever wants one holds a connection.
	c, err := db.Conn(p.ctx)
	require.NoError(t, err)
	mustExec(t, c, `BEGIN`)
	mustExec(t, c, insertValue, "w")
	mustExec(t, c, `COMMIT`)
	mustExec(t, c, `BEGIN`)
	mustExec(t, c, insertValue, "no")
	require.NoError(t, c.Close())
	require.Equal(t, []string{"4"}, mustQuery(t, db, `SELECT count(*) FROM log`))
}

// A text that ends a transaction and begins the next one sees what is new.
func TestView_TransactionAfterTransaction(t *testing.T) {
	p, db := writable(t)
	ctx := p.ctx
	c, err := p.open(t, "").Conn(ctx)
	require.NoError(t, err)
	defer c.Close()
	mustExec(t, c, `BEGIN`)
	for i, q := range []string{`COMMIT; BEGIN`, `ROLLBACK; BEGIN`, `SELECT 1; COMMIT; SELECT 2; BEGIN; SELECT 3`} {
		require.Equal(t, []string{fmt.Sprint(i)}, mustQuery(t, c, `SELECT count(*) FROM log`))
		mustExec(t, db, insertValue, "v")
		require.Equal(t, []string{fmt.Sprint(i)}, mustQuery(t, c, `SELECT count(*) FROM log`))
		mustExec(t, c, q)
		require.Equal(t, []string{fmt.Sprint(i + 1)}, mustQuery(t, c, `SELECT count(*) FROM log`), q)
	}
	_, err = c.ExecContext(ctx, `COMMIT; BEGIN; SELECT nothing`)
	require.Error(t, err)
	mustExec(t, db, insertValue, "v")
	require.Equal(t, []string{"4"}, mustQuery(t, c, `SELECT count(*) FROM log`))
	mustExec(t, db, insertValue, "v")
	require.Equal(t, []string{"4"}, mustQuery(t, c, `SELECT count(*) FROM log`), "it has begun")
	mustExec(t, c, `ROLLBACK`)
	require.Equal(t, []string{"5"}, mustQuery(t, c, `SELECT count(*) FROM log`))
}
