package sqldriver_test

import (
	"testing"

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
