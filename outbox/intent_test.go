package outbox

import (
	"crypto/rand"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
)

func refs(ids ...int64) []rowRef {
	rows := make([]rowRef, len(ids))
	for i, id := range ids {
		rows[i].id = id
		rand.Read(rows[i].uid[:])
		rand.Read(rows[i].sum[:])
	}
	return rows
}

// What is written down is read again, in the same order.
func TestRefs(t *testing.T) {
	for _, tt := range []struct {
		ids  []int64
		want string
	}{
		{[]int64{7}, "7"},
		{[]int64{7, 8}, "7:8"},
		{[]int64{17, 18, 19, 21, 30, 31}, "17:19,21,30:31"},
		{[]int64{5, 4, 3}, "5,4,3"},
		{[]int64{-2, -1, 0, 1}, "-2:1"},
		{[]int64{math.MinInt64, math.MaxInt64 - 1, math.MaxInt64}, "-9223372036854775808,9223372036854775806:9223372036854775807"},
	} {
		rows := refs(tt.ids...)
		ids, uids, sums := encodeRefs(rows)
		require.Equal(t, tt.want, ids)
		got, err := decodeRefs(len(rows), ids, uids, sums)
		require.NoError(t, err)
		require.Equal(t, rows, got)
	}
	got, err := decodeRefs(0, "", nil, []byte("some random bytes"))
	require.NoError(t, err)
	require.Empty(t, got)
}

// A table can say anything.
func TestRefs_Damaged(t *testing.T) {
	for _, tt := range []struct {
		n    int
		ids  string
		uids int
		sums int
	}{
		{1, "", 16, 8},
		{1, "x", 16, 8},
		{1, "7:", 16, 8},
		{1, ":7", 16, 8},
		{1, "8:7", 16, 8},
		{1, "7,", 16, 8},
		{1, "7,8", 16, 8},
		{1, "7:8", 16, 8},
		{2, "7", 32, 16},
		{2, "7:9", 32, 16},
		{2, "7:8,9", 32, 16},
		{2, "7:8", 31, 16},
		{2, "7:8", 32, 17},
		{1, "9223372036854775808", 16, 8},
		{2, "-9223372036854775808:9223372036854775807", 32, 16},
		{-1, "7", 16, 8},
		{math.MaxInt, "7", 16, 8},
		{math.MaxInt/8 + 1, "7", 0, 0}, // times 8 and 16 this is 0
		{math.MinInt, "", 0, 0},
	} {
		got, err := decodeRefs(tt.n, tt.ids, make([]byte, tt.uids), make([]byte, tt.sums))
		require.ErrorIs(t, err, errDamaged, "%+v", tt)
		require.Nil(t, got)
		require.True(t, lasting(err))
	}
}

// FuzzRefs: nothing panics, nothing large is allocated, and what is read comes to
// the same when it is written and read again.
func FuzzRefs(f *testing.F) {
	f.Add(6, "17:19,21,30:31", make([]byte, 96), make([]byte, 48))
	f.Add(1, "7", make([]byte, 16), make([]byte, 8))
	f.Add(math.MaxInt/8+1, "", []byte{}, []byte{})
	f.Fuzz(func(t *testing.T, n int, ids string, uids, sums []byte) {
		rows, err := decodeRefs(n, ids, uids, sums)
		if err != nil {
			require.ErrorIs(t, err, errDamaged)
			return
		}
		require.Len(t, rows, n)
		again, err := decodeRefs(len(rows), first(encodeRefs(rows)), uids, sums)
		require.NoError(t, err)
		require.Equal(t, rows, again)
	})
}

func first(ids string, _, _ []byte) string { return ids }

// The runs of a part of the rows have the indexes of their first rows.
func TestRunsOf(t *testing.T) {
	rows := refs(1, 2, 3, 4, 9)
	require.Equal(t, []run{{1, 1, 0}, {3, 4, 2}, {9, 9, 4}}, runsOf(rows, func(i int) bool { return i != 1 }))
	require.Empty(t, runsOf(rows, func(int) bool { return false }))
	require.Empty(t, runsOf(nil, nil))
}

// What another hook, or nobody, has left in log.json is no note.
func TestParseNote(t *testing.T) {
	n := note{"4f3a", 17}
	require.Equal(t, n, parseNote(evlog.HookState{Note: n.String()}))
	for _, text := range []string{"", " ", "4f3a", "4f3a x", "4f3a 99999999999999999999", "17", "\n4f3a 17"} {
		require.Equal(t, note{}, parseNote(evlog.HookState{Note: text}), "%q", text)
	}
}
