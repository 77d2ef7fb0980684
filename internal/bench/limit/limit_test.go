package limit

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/internal/format"
)

// TestLimit_WritesRecords tests that the limit's bytes are evlog's.
func TestLimit_WritesRecords(t *testing.T) {
	records := Records(3, 100)
	l := New(t, t.TempDir(), 0)
	l.Add(records...)
	want := slices.Clone(l.Buf)
	l.Write()
	l.Sync()

	at := 0
	Scan(t, l.F, make([]byte, 64<<10), func(offset uint64, pos int64, key, value []byte) {
		h, err := format.Parse(want[pos:], offset)
		require.NoError(t, err)
		require.Equal(t, uint64(at), offset)
		require.Equal(t, records[at].Key, key)
		require.Equal(t, records[at].Value, value)
		require.Equal(t, want[pos:pos+h.Size()], format.Append(nil, offset, h.TimeMS, h.Schema, key, value))
		at++
	})
	require.Equal(t, len(records), at)
}
