package sqldriver_test

import (
	"database/sql"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
)

// Keys and values as records have them, which is bytes, find what texts find,
// whether the query is narrowed by them or not.
func TestArguments_Bytes(t *testing.T) {
	p := onDisk(t)
	p.create(t, nil,
		evlog.Record{Key: []byte("ann"), Value: []byte("Gr\u00fc\u00dfe")},
		evlog.Record{Key: []byte{0xff, 0}, Value: []byte{0xfe}},
		evlog.Record{Value: []byte("ann")})
	db := p.open(t, "")
	for _, c := range []struct {
		where string
		arg   []byte
		want  []string
	}{
		{`key = ?`, []byte("ann"), []string{"0"}},
		{`key IN (?, 'x')`, []byte("ann"), []string{"0"}},
		{`key || '' = ?`, []byte("ann"), []string{"0"}},
		{`key = ? OR offset = 5`, []byte("ann"), []string{"0"}},
		{`key >= ?`, []byte("ann"), []string{"0", "1"}}, // blobs are above all texts
		{`value = ?`, []byte("Gr\u00fc\u00dfe"), []string{"0"}},
		{`key = ?`, []byte{0xff, 0}, []string{"1"}},
		{`value = ?`, []byte{0xfe}, []string{"1"}},
		{`key IS ?`, nil, []string{"2"}},
		{`key = ?`, []byte{}, nil},
		{`key = CAST(? AS BLOB)`, []byte{0xff, 0}, []string{"1"}},
	} {
		require.Equal(t, c.want, mustQuery(t, db, `SELECT offset FROM log WHERE `+c.where, c.arg), "%s %q", c.where, c.arg)
	}
}

// The documented way to ask for the last hour.
func TestArguments_LastHour(t *testing.T) {
	p := onDisk(t)
	p.create(t, nil, evlog.Record{Time: at(1), Value: []byte("old")}, evlog.Record{Value: []byte("now")})
	require.Equal(t, []string{"1"}, mustQuery(t, p.open(t, ""), `SELECT offset FROM log WHERE ts_ms >= (unixepoch('now') - 3600) * 1000`))
}

// What database/sql takes for bytes or a time in some other form is one.
func TestArguments_Forms(t *testing.T) {
	type name []byte
	type text string
	p := onDisk(t)
	moment := time.Date(2026, 9, 20, 3, 0, 0, 0, time.UTC)
	p.create(t, nil, evlog.Record{Time: moment, Key: []byte("ann"), Value: []byte(`{"a":1}`)})
	db := p.open(t, "")
	ann, bytes := "ann", []byte("ann")
	for _, c := range []struct {
		where string
		arg   any
	}{
		{`key = ?`, name("ann")},
		{`key = ?`, text("ann")},
		{`key = ?`, &ann},
		{`key = ?`, &bytes},
		{`key = ?`, sql.NullString{String: "ann", Valid: true}},
		{`key = ?`, sql.Null[[]byte]{V: bytes, Valid: true}},
		{`key = ?1`, sql.Named("", "ann")},
		{`key = :name`, sql.Named("name", bytes)},
		{`value = ?`, json.RawMessage(`{"a":1}`)},
		{`value = ?`, sql.RawBytes(`{"a":1}`)},
		{`time = ?`, moment},
		{`time = ?`, &moment},
		{`time = ?`, moment.In(time.FixedZone("", 7200))},
		{`time = ?`, sql.NullTime{Time: moment, Valid: true}},
		{`time >= ?`, sql.Null[time.Time]{V: moment, Valid: true}},
		{`offset = ?`, uint8(0)},
		{`offset = ?`, sql.NullInt64{Valid: true}},
		{`tombstone = ?`, false},
		{`? IS NULL`, sql.NullTime{}},
		{`? IS NULL`, (*time.Time)(nil)},
		{`? IS NULL`, []byte(nil)},
		{`typeof(?) = 'blob'`, text("\xff")},
		{`typeof(?) = 'blob'`, "\xff"},
		{`typeof(?) = 'text'`, ""},
	} {
		if n, ok := c.arg.(sql.NamedArg); ok && n.Name == "" {
			c.arg = n.Value
		}
		require.Equal(t, []string{"0"}, mustQuery(t, db, `SELECT offset FROM log WHERE `+c.where, c.arg), "%s %T", c.where, c.arg)
		st, err := db.PrepareContext(t.Context(), `SELECT count(*) FROM log WHERE `+c.where)
		require.NoError(t, err)
		var n int
		require.NoError(t, st.QueryRowContext(t.Context(), c.arg).Scan(&n))
		require.Equal(t, 1, n, "%s %T", c.where, c.arg)
		require.NoError(t, st.Close())
	}
	for _, arg := range []any{uint64(1 << 63), make(chan int), struct{}{}, map[string]int{}} {
		_, err := query(t.Context(), db, `SELECT ?`, arg)
		require.Error(t, err, "%T", arg)
	}
}

// Times that the column time cannot show are NULL there, which can be asked for.
func TestTime_IsNull(t *testing.T) {
	p := onDisk(t)
	p.create(t, nil,
		evlog.Record{Time: time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)},
		evlog.Record{Time: at(5)},
		evlog.Record{Time: time.Date(-1, 12, 31, 0, 0, 0, 0, time.UTC)})
	for _, db := range []*sql.DB{p.open(t, ""), openAttached(t, p, "log")} {
		require.Equal(t, []string{"0", "2"}, mustQuery(t, db, `SELECT offset FROM log WHERE time IS ?`, nil))
		require.Equal(t, []string{"0", "2"}, mustQuery(t, db, `SELECT offset FROM log WHERE time IS NULL`))
		require.Equal(t, []string{"1"}, mustQuery(t, db, `SELECT offset FROM log WHERE time IS ?`, "1970-01-01T00:00:00.005Z"))
		require.Equal(t, []string{"1"}, mustQuery(t, db, `SELECT offset FROM log WHERE time IS NOT ?`, nil))
		require.Empty(t, mustQuery(t, db, `SELECT offset FROM log WHERE time = ?`, nil))
		require.Equal(t, []string{"0|2", "0|0", "2|2", "2|0"}, mustQuery(t, db,
			`SELECT a.offset, b.offset FROM log a JOIN log b ON a.time IS b.time WHERE a.offset != 1 ORDER BY a.offset, b.offset DESC`))
		for _, column := range []string{"offset", "rowid", "ts_ms", "schema", "tombstone", "segment"} {
			require.Empty(t, mustQuery(t, db, `SELECT offset FROM log WHERE `+column+` IS ?`, nil), column)
		}
		require.Equal(t, []string{"0", "1", "2"}, mustQuery(t, db, `SELECT offset FROM log WHERE key IS ?`, nil))
	}
}
