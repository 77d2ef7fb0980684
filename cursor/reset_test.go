package cursor_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/cursor"
	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/evlog/evlogtest"
)

// A cursor that does not fit the log, with each policy, in a store that can
// reset in one step and in one that cannot.
func TestRun_CursorDoesNotFit(t *testing.T) {
	for _, tt := range []struct {
		name       string
		stored     uint64 // in a log with the offsets 3 to 9
		foreign    bool
		policy     cursor.Policy
		wantErr    error
		wantFrom   uint64
		wantedLost evlog.OffsetRange
	}{
		{name: "behind, fail", stored: 1, wantErr: cursor.ErrBehind},
		{name: "behind, earliest", stored: 1, policy: cursor.Earliest, wantFrom: 3, wantedLost: evlog.OffsetRange{From: 1, To: 3}},
		{name: "behind, latest", stored: 1, policy: cursor.Latest, wantFrom: 10, wantedLost: evlog.OffsetRange{From: 1, To: 10}},
		{name: "ahead, fail", stored: 12, wantErr: cursor.ErrAhead},
		{name: "ahead, earliest", stored: 12, policy: cursor.Earliest, wantFrom: 3},
		{name: "ahead, latest", stored: 12, policy: cursor.Latest, wantFrom: 10, wantedLost: evlog.OffsetRange{From: 3, To: 10}},
		{name: "another log, fail", stored: 5, foreign: true, wantErr: cursor.ErrWrongLog},
		{name: "another log, earliest", stored: 5, foreign: true, policy: cursor.Earliest, wantFrom: 3},
		{name: "another log, latest", stored: 5, foreign: true, policy: cursor.Latest, wantFrom: 10, wantedLost: evlog.OffsetRange{From: 3, To: 10}},
	} {
		for _, simple := range []bool{false, true} {
			t.Run(tt.name, func(t *testing.T) {
				dir, l := logOf(t, 10)
				removeBelow(t, dir, 3)
				ctx, f := dir.Context(), storeOf(t, dir)
				require.NoError(t, f.Commit(ctx, "c", 0, tt.stored))
				if tt.foreign {
					moveToAnotherLog(t, dir)
				}
				before := readFile(t, ctx, dir.Path(), consumersJSON)
				var store cursor.Store = f
				if simple {
					store = &spy{Store: f}
				}
				var h handled
				var resets []cursor.Start
				logger, warned := warnings()
				opts := &cursor.Options{
					UntilEnd: true, Reset: tt.policy, Logger: logger,
					OnReset: func(s cursor.Start) {
						require.Equal(t, before, readFile(t, ctx, dir.Path(), consumersJSON), "it is told before it is stored")
						resets = append(resets, s)
					},
				}
				err := cursor.Run(ctx, l.Reader(), store, "c", h.handle, opts)
				if tt.wantErr != nil {
					require.ErrorIs(t, err, tt.wantErr)
					require.Empty(t, h.offsets())
					require.Empty(t, resets)
					require.Equal(t, before, readFile(t, ctx, dir.Path(), consumersJSON))
					return
				}
				require.NoError(t, err)
				require.Equal(t, span(tt.wantFrom, 10), h.offsets())
				require.Len(t, resets, 1)
				require.Equal(t, tt.wantFrom, resets[0].Next)
				require.Equal(t, tt.wantedLost, resets[0].Lost)
				require.Error(t, resets[0].Reset)
				require.Contains(t, warned.String(), "cursor reset")
				require.EqualValues(t, 10, standsAt(t, ctx, f, "c"))
				require.NoError(t, cursor.Run(ctx, l.Reader(), f, "c", h.handle, untilEnd), "it fits now")
			})
		}
	}
}

// moveToAnotherLog makes the file one of another log.
func moveToAnotherLog(t *testing.T, dir *evlogtest.Dir) {
	t.Helper()
	theirs, _ := logOf(t, 1)
	require.NoError(t, storeOf(t, theirs).Commit(theirs.Context(), "c", 0, 5))
	writeFile(t, dir.Context(), dir.Path(), consumersJSON, readFile(t, theirs.Context(), theirs.Path(), consumersJSON))
}

// Log and store of two different logs are a mistake that no policy decides.
func TestRun_StoreOfAnotherLog(t *testing.T) {
	dir, _ := logOf(t, 5)
	other, l := logOf(t, 5)
	f := storeOf(t, dir)
	require.NoError(t, f.Commit(dir.Context(), "known", 0, 2))
	for _, store := range []cursor.Store{f, &spy{Store: f}} {
		for _, policy := range []cursor.Policy{cursor.Fail, cursor.Earliest} {
			var h handled
			err := cursor.Run(other.Context(), l.Reader(), store, "known", h.handle, &cursor.Options{UntilEnd: true, Reset: policy})
			require.ErrorIs(t, err, cursor.ErrWrongLog)
			require.Empty(t, h.offsets())
		}
	}
	require.ErrorIs(t, cursor.Run(other.Context(), l.Reader(), f, "new", new(handled).handle, untilEnd), cursor.ErrWrongLog)
	all, err := f.List(dir.Context())
	require.NoError(t, err)
	require.Len(t, all, 1)
}

// Retention removes what a slow consumer has not read.
func TestRun_RetentionOvertakes(t *testing.T) {
	for _, tt := range []struct {
		name   string
		policy cursor.Policy
		want   []uint64
		lost   []cursor.Start
	}{
		{name: "fail", policy: cursor.Fail, want: span(0, 2)},
		{
			name: "earliest", policy: cursor.Earliest, want: append(span(0, 2), span(6, 10)...),
			lost: []cursor.Start{{Next: 6, Lost: evlog.OffsetRange{From: 2, To: 6}}},
		},
		{
			name: "latest", policy: cursor.Latest, want: span(0, 2),
			lost: []cursor.Start{{Next: 10, Lost: evlog.OffsetRange{From: 2, To: 10}}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, _ := logOf(t, 10)
			ctx, f := dir.Context(), storeOf(t, dir)
			h := handled{then: func(_ context.Context, offset uint64) error {
				if offset == 1 {
					removeBelow(t, dir, 6)
				}
				return nil
			}}
			var lost []cursor.Start
			opts := &cursor.Options{
				UntilEnd: true, Reset: tt.policy, CommitInterval: -1,
				OnReset: func(s cursor.Start) {
					require.ErrorIs(t, s.Reset, cursor.ErrBehind)
					require.EqualValues(t, 2, standsAt(t, ctx, f, "c"), "what was handled is committed first")
					s.Reset = nil
					lost = append(lost, s)
				},
			}
			err := cursor.Run(ctx, dir.Reader(nil), f, "c", h.handle, opts)
			require.Equal(t, tt.want, h.offsets())
			require.Equal(t, tt.lost, lost)
			if tt.policy != cursor.Fail {
				require.NoError(t, err)
				require.EqualValues(t, 10, standsAt(t, ctx, f, "c"))
				return
			}
			var behind *cursor.RangeError
			require.ErrorAs(t, err, &behind)
			require.Equal(t, cursor.RangeError{Name: "c", Cursor: 2, First: 6, Next: 10}, *behind)
			require.EqualValues(t, 2, standsAt(t, ctx, f, "c"))
		})
	}
}
