package cursor_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/cursor"
	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/evlog/evlogtest"
)

// A log with the offsets 3 to 9, and every kind of cursor.
func TestResolve(t *testing.T) {
	dir, l := logOf(t, 10)
	removeBelow(t, dir, 3)
	ctx, r := dir.Context(), l.Reader()
	const other = "another log"
	lost := func(from, to uint64) evlog.OffsetRange { return evlog.OffsetRange{From: from, To: to} }

	for _, tt := range []struct {
		name             string
		next             uint64
		log              string
		wantErr          error // with Fail
		earliest, latest cursor.Start
	}{
		{name: "first", next: 3},
		{name: "middle", next: 5, log: r.ID()},
		{name: "end", next: 10},
		{
			name: "behind", next: 1, wantErr: cursor.ErrBehind,
			earliest: cursor.Start{Next: 3, Lost: lost(1, 3)},
			latest:   cursor.Start{Next: 10, Lost: lost(1, 10)},
		},
		{
			name: "ahead", next: 11, log: r.ID(), wantErr: cursor.ErrAhead,
			earliest: cursor.Start{Next: 3},
			latest:   cursor.Start{Next: 10, Lost: lost(3, 10)},
		},
		{
			name: "another log, though the offset would fit", next: 5, log: other, wantErr: cursor.ErrWrongLog,
			earliest: cursor.Start{Next: 3},
			latest:   cursor.Start{Next: 10, Lost: lost(3, 10)},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := cursor.Resolve(ctx, r, "c", tt.next, tt.log, cursor.Fail)
			require.ErrorIs(t, err, tt.wantErr)
			if tt.wantErr == nil {
				require.Equal(t, cursor.Start{Next: tt.next}, s)
				tt.earliest, tt.latest = s, s
			} else {
				require.ErrorContains(t, err, `"c"`)
			}
			for policy, want := range map[cursor.Policy]cursor.Start{cursor.Earliest: tt.earliest, cursor.Latest: tt.latest} {
				got, err := cursor.Resolve(ctx, r, "c", tt.next, tt.log, policy)
				require.NoError(t, err)
				require.ErrorIs(t, got.Reset, tt.wantErr)
				got.Reset = nil
				require.Equal(t, want, got)
			}
		})
	}
}

func TestResolve_ErrorsHaveBothNumbers(t *testing.T) {
	dir, l := logOf(t, 10)
	removeBelow(t, dir, 3)
	ctx, r := dir.Context(), l.Reader()
	for _, next := range []uint64{1, 11} {
		_, err := cursor.Resolve(ctx, r, "c", next, "", cursor.Fail)
		var out *cursor.RangeError
		require.ErrorAs(t, err, &out)
		require.Equal(t, cursor.RangeError{Name: "c", Cursor: next, First: 3, Next: 10}, *out)
		require.ErrorContains(t, err, "the log has [3, 10)")
	}
	_, err := cursor.Resolve(ctx, r, "c", 5, "other", cursor.Fail)
	require.Equal(t, &cursor.LogError{Name: "c", Cursor: 5, LogID: r.ID(), CursorsLogID: "other"}, err)
}

// After a power failure DURABLE may be older than what a consumer has seen. Its
// cursor is not ahead then: the records are there and will be published.
func TestResolve_BetweenDurableAndValidWaits(t *testing.T) {
	dir := evlogtest.NewMemDir(t)
	ctx := dir.Context()
	l := dir.Open(nil)
	fill(t, ctx, l, 3)
	durable := readFile(t, ctx, dir.Path(), "DURABLE")
	fill(t, ctx, l, 2)
	require.NoError(t, l.Close())
	d := openDir(t, ctx, dir.Path())
	require.NoError(t, d.Remove("00000000000000000000.idx"))
	writeFile(t, ctx, dir.Path(), "DURABLE", durable)

	r := dir.Reader(nil)
	_, next, err := r.Bounds(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 3, next)
	for _, at := range []uint64{3, 4, 5} {
		s, err := cursor.Resolve(ctx, r, "c", at, r.ID(), cursor.Fail)
		require.NoError(t, err, at)
		require.Equal(t, at, s.Next)
	}
	_, err = cursor.Resolve(ctx, r, "c", 6, r.ID(), cursor.Fail)
	require.ErrorIs(t, err, cursor.ErrAhead)
	dir.Open(nil) // publishes them, so that the log is verified whole
}

// A log without an id fits no cursor that is bound, and a policy does not decide
// about what is not known.
func TestResolve_LogWithoutID(t *testing.T) {
	dir, l := logOf(t, 2)
	ctx := dir.Context()
	meta := readFile(t, ctx, dir.Path(), "log.json")
	writeFile(t, ctx, dir.Path(), "log.json", "")
	r := dir.Reader(nil)
	require.Empty(t, r.ID())
	for _, policy := range []cursor.Policy{cursor.Fail, cursor.Earliest, cursor.Latest} {
		_, err := cursor.Resolve(ctx, r, "c", 1, l.Reader().ID(), policy)
		require.ErrorIs(t, err, cursor.ErrNoLogID)
	}
	writeFile(t, ctx, dir.Path(), "log.json", meta)
}

func TestLag(t *testing.T) {
	for _, tt := range []struct{ first, next, committed, want uint64 }{
		{0, 0, 0, 0},
		{0, 10, 0, 10},
		{0, 10, 4, 6},
		{0, 10, 10, 0},
		{0, 10, 11, 0}, // ahead
		{5, 10, 2, 5},  // behind: what is gone is no work left to do
		{5, 5, 2, 0},
		{0, 1<<64 - 1, 1, 1<<64 - 2},
	} {
		require.Equal(t, tt.want, cursor.Lag(tt.first, tt.next, tt.committed), tt)
	}
}

func TestCheckName(t *testing.T) {
	for _, name := range []string{"uplink", "a b", "日本", "\U0001F600", strings.Repeat("x", 255)} {
		require.NoError(t, cursor.CheckName(name), name)
	}
	for _, name := range []string{"", "a\tb", "a\nb", "\x00", "\u0085", "\xff", strings.Repeat("x", 256)} {
		require.ErrorIs(t, cursor.CheckName(name), cursor.ErrBadName, name)
	}
}

func TestIdempotencyKey(t *testing.T) {
	for _, tt := range []struct {
		id     string
		offset uint64
		want   string
	}{
		{"0f8b7c1e-6a0e-4d0b-9a43-5d2c1f4e7a90", 0, "0f8b7c1e-6a0e-4d0b-9a43-5d2c1f4e7a90/0"},
		{"a/b", 1<<64 - 1, "a/b/18446744073709551615"},
	} {
		key := cursor.IdempotencyKey(tt.id, tt.offset)
		require.Equal(t, tt.want, key)
		id, offset, err := cursor.ParseIdempotencyKey(key)
		require.NoError(t, err)
		require.Equal(t, tt.id, id)
		require.Equal(t, tt.offset, offset)
	}
	for _, bad := range []string{"", "/", "a", "a/", "/5", "a/-1", "a/+1", "a/01", "a/1 ", "a/1.0", "a/18446744073709551616"} {
		_, _, err := cursor.ParseIdempotencyKey(bad)
		require.Error(t, err, bad)
	}
}

// staleLog has bounds from before its last records.
type staleLog struct {
	cursor.Log
	next uint64
}

func (l staleLog) Bounds(ctx context.Context) (first, next uint64, err error) {
	first, _, err = l.Log.Bounds(ctx)
	return first, l.next, err
}

// A cursor that another process has just committed may be above what was the
// end a moment ago.
func TestResolve_LogGrowsMeanwhile(t *testing.T) {
	dir, l := logOf(t, 5)
	s, err := cursor.Resolve(dir.Context(), staleLog{l.Reader(), 2}, "c", 4, "", cursor.Fail)
	require.NoError(t, err)
	require.EqualValues(t, 4, s.Next)
}
