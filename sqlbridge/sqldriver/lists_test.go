package sqldriver_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/cursor"
	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/sqlbridge/sqldriver"
)

// A log of 30 records in 10 segments, whose oldest three are gone.
func segmentedLog(t *testing.T) place {
	t.Helper()
	p := onDisk(t)
	l, err := evlog.Open(p.ctx, p.dir, &evlog.Options{SegmentBytes: 3 * 29})
	require.NoError(t, err)
	for i := range 30 {
		_, err := l.Append(p.ctx, evlog.Record{Time: at(int64(i)), Value: []byte("v")})
		require.NoError(t, err)
	}
	require.NoError(t, l.Close())
	for _, base := range []uint64{0, 3, 6} {
		require.NoError(t, os.Remove(filepath.Join(p.dir, evtest.SegmentFile(base))))
	}
	return p
}

// What consumers.json says of each consumer, and what it means for the log.
func TestConsumers_States(t *testing.T) {
	p := segmentedLog(t)
	store, err := cursor.OpenFile(p.ctx, p.dir, nil)
	require.NoError(t, err)
	for name, next := range map[string]uint64{"at the end": 30, "ahead": 40, "behind": 5, "fine": 20} {
		require.NoError(t, store.Commit(p.ctx, name, 0, next))
	}
	require.NoError(t, store.Close())
	const states = `SELECT name, committed, log_start, log_end, lag, state, note IS NULL FROM consumers ORDER BY name`
	require.Equal(t, []string{
		`"ahead"|40|9|30|NULL|"ahead"|0`,
		`"at the end"|30|9|30|0|"ok"|1`,
		`"behind"|5|9|30|21|"behind"|0`,
		`"fine"|20|9|30|10|"ok"|1`,
	}, mustQuery(t, p.open(t, ""), states))
	for name, want := range map[string]error{"ahead": cursor.ErrAhead, "behind": cursor.ErrBehind} {
		_, err := sqldriver.NewConnector(p.ctx, p.dir+"?consumer="+name)
		require.ErrorIs(t, err, want)
	}

	// Without log.json nothing tells whether they belong to this log; with that of
	// another one they do not.
	meta := filepath.Join(p.dir, "log.json")
	b, err := os.ReadFile(meta)
	require.NoError(t, err)
	require.NoError(t, os.Remove(meta))
	for _, line := range mustQuery(t, p.open(t, ""), states) {
		require.Contains(t, line, `|9|30|NULL|"unknown"|0`)
	}
	other := onDisk(t)
	other.create(t, nil)
	b2, err := os.ReadFile(filepath.Join(other.dir, "log.json"))
	require.NoError(t, err)
	require.NotEqual(t, b, b2)
	require.NoError(t, os.WriteFile(meta, b2, 0o600))
	for _, line := range mustQuery(t, p.open(t, ""), states) {
		require.Contains(t, line, `|9|30|NULL|"other log"|0`)
	}
}

// A segment is looked up by its base, and the list is made once for a statement.
func TestSegments_ByBase(t *testing.T) {
	p := segmentedLog(t)
	db := p.open(t, "")
	all := mustQuery(t, db, `SELECT base FROM segments`)
	require.Equal(t, []string{"9", "12", "15", "18", "21", "24", "27"}, all)
	for where, want := range map[string][]string{
		`base = 12`:                {"12"},
		`base = 13`:                nil,
		`base = -1`:                nil,
		`base = 12.0`:              {"12"},
		`base = '12'`:              {"12"},
		`base = NULL`:              nil,
		`base = x'12'`:             nil,
		`base IN (9, 27, 30)`:      {"9", "27"},
		`base = 12 AND base = 15`:  nil,
		`base = 12 OR base = 15`:   {"12", "15"},
		`+base = 15`:               {"15"},
		`base = 9 AND records > 5`: nil,
	} {
		require.Equal(t, want, mustQuery(t, db, `SELECT base FROM segments WHERE `+where+` ORDER BY base`), where)
	}
	require.Contains(t, strings.Join(mustQuery(t, db, `EXPLAIN QUERY PLAN SELECT * FROM log LEFT JOIN segments ON base = segment`), "\n"), "INDEX 1")
	require.Equal(t, []string{"21|7|9"}, mustQuery(t, db, `SELECT count(*), count(DISTINCT s.base), min(s.base) FROM log l LEFT JOIN segments s ON s.base = l.segment`))
}
