package sqldriver_test

import (
	"database/sql"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/internal/vfs"
)

// damagedLog has 30 records in three segments, the one at offset 15 damaged.
func damagedLog(t *testing.T) place {
	t.Helper()
	p := onDisk(t)
	l, err := evlog.Open(p.ctx, p.dir, &evlog.Options{SegmentBytes: 10 * 34})
	require.NoError(t, err)
	for i := range 30 {
		_, err := l.Append(p.ctx, evlog.Record{Time: at(int64(i)), Key: []byte("k"), Value: []byte("value")})
		require.NoError(t, err)
	}
	require.NoError(t, l.Close())
	path := filepath.Join(p.dir, evtest.SegmentFile(10))
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Len(t, b, 340)
	b[5*34+30] ^= 1
	require.NoError(t, os.WriteFile(path, b, 0o600))
	return p
}

// Wherever a query meets the damage, the error is evlog's own, with file, byte
// and offset, and comes out of rows.Err or the first call.
func TestErrors_Damage(t *testing.T) {
	p := damagedLog(t)
	db := p.open(t, "")
	attached := openAttached(t, p, "log")
	for _, q := range []string{
		`SELECT * FROM log`,
		`SELECT offset FROM log`,
		`SELECT rowid FROM log`,
		`SELECT 1 FROM log`,
		`SELECT count(*) FROM log`,
		`SELECT count(*) FROM log WHERE offset > 3`,
		`SELECT offset FROM log ORDER BY offset DESC`,
		`SELECT count(*) FROM log, log b`,
		`SELECT offset FROM log WHERE offset = 15`,
		`SELECT offset FROM log WHERE key = 'k'`,
		`SELECT offset FROM log WHERE key = 'K' COLLATE NOCASE`,
		`SELECT offset FROM log WHERE ts_ms = 17`,
		`SELECT max(offset) FROM log GROUP BY key`,
		`SELECT (SELECT count(*) FROM log)`,
		`SELECT EXISTS (SELECT 1 FROM log WHERE value = 'nothing')`,
	} {
		_, err := query(t.Context(), db, q)
		require.ErrorIs(t, err, evlog.ErrCorrupt, q)
		var damage *evlog.CorruptError
		require.ErrorAs(t, err, &damage, q)
		require.EqualValues(t, 15, damage.Offset, q)
		require.EqualValues(t, 170, damage.Pos, q)
		require.Contains(t, err.Error(), evtest.SegmentFile(10)+": byte 170, offset 15", q)

		_, err = query(t.Context(), attached, q)
		require.Error(t, err, q)
		if readsColumn(q) {
			require.Contains(t, err.Error(), evtest.SegmentFile(10)+": byte 170, offset 15", q)
		}
	}
	// What does not meet it is not held up, and the connection is good.
	for _, q := range []string{
		`SELECT count(*) FROM log WHERE offset < 15`, `SELECT count(*) FROM log WHERE offset > 15 AND offset < 10`,
		`SELECT count(*) FROM log WHERE offset >= 20`,
	} {
		mustQuery(t, db, q)
		mustQuery(t, attached, q)
	}
	require.Equal(t, []string{"15"}, mustQuery(t, db, `SELECT count(*) FROM (SELECT offset FROM log LIMIT 15)`))
	require.Equal(t, []string{"29"}, mustQuery(t, db, `SELECT offset FROM log ORDER BY offset DESC LIMIT 1`))
}

// readsColumn tells whether a query asks for a column of a damaged row. Elsewhere
// SQLite drops the text, and the driver's connection alone puts it back.
func readsColumn(q string) bool {
	for _, without := range []string{`SELECT count(*) FROM log`, `SELECT 1 `, `SELECT (`, `SELECT rowid`} {
		if strings.HasPrefix(q, without) {
			return false
		}
	}
	return true
}

// A limit that is reached at the damaged record does not make a row of it.
func TestErrors_LimitAtDamage(t *testing.T) {
	p := damagedLog(t)
	for i, db := range []*sql.DB{p.open(t, ""), openAttached(t, p, "log")} {
		for _, what := range []string{"1", "'x' || 'y'", "offset", "rowid", "key", "value, 1", "NULL"} {
			for _, where := range []string{"", "WHERE offset >= 0", "WHERE key = 'k'", "WHERE ts_ms < 100", "WHERE 1"} {
				q := fmt.Sprintf(`SELECT %s FROM log %s LIMIT `, what, where)
				lines, err := query(t.Context(), db, q+"15")
				require.NoError(t, err, q)
				require.Len(t, lines, 15, q)
				_, err = query(t.Context(), db, q+"16")
				require.Error(t, err, "%d: %s", i, q)
				_, err = query(t.Context(), db, q+"2 OFFSET 14")
				require.Error(t, err, "%d: %s", i, q)
				var n int
				err = db.QueryRowContext(t.Context(), `SELECT count(*) FROM (`+q+`16)`).Scan(&n)
				require.Error(t, err, "%d: %s", i, q)
			}
		}
	}
}

// Rows come up to the damage, then the error.
func TestErrors_RowsErr(t *testing.T) {
	db := damagedLog(t).open(t, "")
	rows, err := db.QueryContext(t.Context(), `SELECT offset FROM log`)
	require.NoError(t, err)
	defer rows.Close()
	n := 0
	for rows.Next() {
		n++
	}
	require.Equal(t, 15, n)
	require.ErrorIs(t, rows.Err(), evlog.ErrCorrupt)
}

// The prepared statement, a transaction, and Exec say it too.
func TestErrors_OtherCalls(t *testing.T) {
	db := damagedLog(t).open(t, "")
	st, err := db.PrepareContext(t.Context(), `SELECT count(*) FROM log`)
	require.NoError(t, err)
	defer st.Close()
	var n int
	require.ErrorIs(t, st.QueryRowContext(t.Context()).Scan(&n), evlog.ErrCorrupt)
	_, err = st.ExecContext(t.Context())
	require.ErrorIs(t, err, evlog.ErrCorrupt)
	_, err = db.ExecContext(t.Context(), `SELECT count(*) FROM log`)
	require.ErrorIs(t, err, evlog.ErrCorrupt)
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	require.ErrorIs(t, tx.QueryRowContext(t.Context(), `SELECT max(key) FROM log`).Scan(&n), evlog.ErrCorrupt)
	require.NoError(t, tx.Commit())
	// SQLite's own errors stay what they are.
	_, err = query(t.Context(), db, `SELECT nope FROM log`)
	require.ErrorContains(t, err, "no such column: nope")
	require.NotErrorIs(t, err, evlog.ErrCorrupt)
}

// An I/O error is the file system's, also where it comes while reading.
func TestErrors_IO(t *testing.T) {
	mem := vfs.NewMem()
	p := onFS(t, mem)
	p.create(t, nil, evlog.Record{Value: []byte("v")}, evlog.Record{Value: []byte("w")})
	broken := fmt.Errorf("the disk is on fire")
	failing := false
	fsys := vfs.Inject(mem, func(op vfs.Op) error {
		if failing && op.Kind == vfs.OpRead {
			return broken
		}
		return nil
	})
	db := onFS(t, fsys).open(t, "")
	require.Equal(t, []string{"2"}, mustQuery(t, db, `SELECT count(*) FROM log`))
	failing = true
	for _, q := range []string{
		`SELECT * FROM log`, `SELECT count(*) FROM log`, `SELECT * FROM log WHERE offset = 1`,
		`SELECT * FROM log ORDER BY offset DESC`, `SELECT * FROM segments`, `SELECT segment FROM log`,
	} {
		_, err := query(t.Context(), db, q)
		require.ErrorIs(t, err, broken, q)
	}
	failing = false
	require.Equal(t, []string{"2"}, mustQuery(t, db, `SELECT count(*) FROM log`))
}

// A panic beneath a callback comes out as an error, and the connection is good.
func TestErrors_Panic(t *testing.T) {
	mem := vfs.NewMem()
	p := onFS(t, mem)
	p.create(t, nil, evlog.Record{Value: []byte("v")}, evlog.Record{Value: []byte("w")})
	panics := false
	fsys := vfs.Inject(mem, func(op vfs.Op) error {
		if panics && op.Kind&(vfs.OpRead|vfs.OpList|vfs.OpOpen) != 0 {
			panic("beneath")
		}
		return nil
	})
	db := onFS(t, fsys).open(t, "")
	db.SetMaxOpenConns(1)
	require.Equal(t, []string{"2"}, mustQuery(t, db, `SELECT count(*) FROM log`))
	for _, q := range []string{
		`SELECT * FROM log`, `SELECT count(*) FROM log`, `SELECT * FROM log WHERE offset = 1`,
		`SELECT * FROM log ORDER BY offset DESC`, `SELECT * FROM segments`, `SELECT * FROM consumers`,
	} {
		panics = true
		_, err := query(t.Context(), db, q)
		require.ErrorContains(t, err, "panic: beneath", q)
		panics = false
		require.Equal(t, []string{"2"}, mustQuery(t, db, `SELECT count(*) FROM log`), q)
	}
}

// A time that the column time cannot show would not compare as it should.
func TestErrors_Years(t *testing.T) {
	p := inMem(t)
	p.create(t, nil, evlog.Record{Time: at(0)})
	db := p.open(t, "")
	const q = `SELECT count(*) FROM log WHERE time < ?`
	require.Equal(t, []string{"1"}, mustQuery(t, db, q, time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)))
	require.Equal(t, []string{"0"}, mustQuery(t, db, q, time.Time{}))
	for _, year := range []int{10_000, -1} {
		_, err := query(p.ctx, db, q, time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC))
		require.ErrorContains(t, err, fmt.Sprintf("the year %d is not in 0 to 9999", year))
	}
}

// Offsets beyond SQL's integers are an error where they are met.
func TestErrors_LargeOffset(t *testing.T) {
	p := inMem(t)
	l, err := evlog.Open(p.ctx, p.dir, nil)
	require.NoError(t, err)
	require.NoError(t, l.AppendExact(p.ctx,
		evlog.Record{Offset: 1}, evlog.Record{Offset: math.MaxInt64}, evlog.Record{Offset: math.MaxInt64 + 1}))
	require.NoError(t, l.Close())
	db := p.open(t, "")
	require.Equal(t, []string{"1", "9223372036854775807"}, mustQuery(t, db, `SELECT offset FROM log LIMIT 2`))
	require.Equal(t, []string{"9223372036854775807"},
		mustQuery(t, db, `SELECT offset FROM log WHERE offset = 9223372036854775807`))
	for _, q := range []string{`SELECT offset FROM log`, `SELECT count(*) FROM log`, `SELECT offset FROM log ORDER BY offset DESC`} {
		_, err = query(p.ctx, db, q)
		require.ErrorIs(t, err, evlog.ErrTooLarge, q)
		require.ErrorContains(t, err, "9223372036854775808")
	}
	w := p.open(t, "?mode=rw")
	_, err = w.ExecContext(p.ctx, `INSERT INTO log (value) VALUES ('x')`)
	require.ErrorIs(t, err, evlog.ErrTooLarge)
}
