package evlog_test

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
)

// checkTimeRanges compares TimeRanges with brute force: every record with such a
// time is in one of them.
func checkTimeRanges(t *testing.T, ctx context.Context, r *evlog.Reader, want []evtest.Rec) {
	t.Helper()
	prefix, err := r.Prefix(ctx)
	require.NoError(t, err)
	times := []int64{math.MinInt64, 0, math.MaxInt64}
	for i, rec := range want {
		if i%7 == 0 {
			times = append(times, rec.TimeMS)
		}
	}
	for _, lo := range times {
		for _, hi := range times {
			ranges, err := prefix.TimeRanges(ctx, time.UnixMilli(lo), time.UnixMilli(hi))
			require.NoError(t, err)
			inside := func(offset uint64) bool {
				for _, p := range ranges {
					if p.From <= offset && offset < p.To {
						return true
					}
				}
				return false
			}
			for i, p := range ranges {
				require.Less(t, p.From, p.To)
				require.LessOrEqual(t, p.To, prefix.Next())
				require.True(t, i == 0 || ranges[i-1].To < p.From, "%v", ranges)
			}
			for _, rec := range want {
				if rec.TimeMS >= lo && rec.TimeMS <= hi {
					require.True(t, inside(rec.Offset), "%v is in none of %v for %d to %d", rec, ranges, lo, hi)
				}
			}
		}
	}
}

// Segments before and after the times are left out, and the one that reaches them
// begins at an index entry; how many records are visited is counted.
func TestTimeRanges_LeavesOut(t *testing.T) {
	for _, own := range []bool{true, false} {
		t.Run(fmt.Sprintf("own=%v", own), func(t *testing.T) {
			p, _ := inMem(t)
			l := p.open(t, &evlog.Options{SegmentBytes: 40 * 33, IndexBytes: 10 * 33})
			for i := range 200 { // 33 bytes each, five segments
				_, err := l.Append(p.ctx, evlog.Record{Time: time.UnixMilli(int64(1000 + i)), Value: []byte("value")})
				require.NoError(t, err)
			}
			require.NoError(t, l.Close()) // every closed segment has an index now
			r := p.reader(t, nil)
			if own {
				r = p.open(t, nil).Reader()
			}
			bases, err := r.Bases(p.ctx)
			require.NoError(t, err)
			require.Equal(t, []uint64{0, 40, 80, 120, 160}, bases)
			prefix, err := r.Prefix(p.ctx)
			require.NoError(t, err)
			for _, c := range []struct {
				lo, hi int64
				want   []evlog.OffsetRange
			}{
				{1095, 1100, []evlog.OffsetRange{{From: 90, To: 120}}},
				{1000, 1000, []evlog.OffsetRange{{From: 0, To: 40}}},
				{1155, 1165, []evlog.OffsetRange{{From: 150, To: 200}}},
				{1199, 2000, []evlog.OffsetRange{{From: 190, To: 200}}},
				{1070, 1125, []evlog.OffsetRange{{From: 60, To: 160}}},
				{0, 999, nil},
			} {
				got, err := prefix.TimeRanges(p.ctx, time.UnixMilli(c.lo), time.UnixMilli(c.hi))
				require.NoError(t, err)
				require.Equal(t, c.want, got, "%d to %d", c.lo, c.hi)
			}
			before := r.Visited()
			n := 0
			for _, err := range r.Records(p.ctx, 90) {
				require.NoError(t, err)
				if n++; n == 10 {
					break
				}
			}
			require.EqualValues(t, 10, r.Visited()-before)
		})
	}
}

// The last record of a prefix may be compacted away. Then the one behind it, in the
// same file, ends the reading.
func TestPrefix_LastRecordCompacted(t *testing.T) {
	p, _ := inMem(t)
	l := p.open(t, &evlog.Options{SegmentBytes: 1 << 20, NoPreallocate: true})
	want := appendEach(t, p.ctx, l, rec("a", "1"), rec("b", "1"))
	prefix, err := l.Reader().Prefix(p.ctx)
	require.NoError(t, err)
	appendEach(t, p.ctx, l, rec("b", "2"), rec("c", "1"))
	require.NoError(t, l.Roll(p.ctx))
	require.EqualValues(t, 1, compact(t, p, l, fast()).Superseded)
	apart(t, "reading", func() {
		got, err := collect(prefix.Records(p.ctx, 0))
		require.NoError(t, err)
		sameRecs(t, want[:1], got)
	})
}

// A prefix stays what it was, while the log goes on and rolls.
func TestPrefix_Stays(t *testing.T) {
	evtest.Seeds(t, 200, func(t *testing.T, seed uint64) {
		p, _ := inMem(t)
		g := evtest.NewGen(seed)
		l := p.open(t, &evlog.Options{SegmentBytes: 500, IndexBytes: 1 + g.Rng.Int64N(200)})
		other := p.reader(t, nil)
		type state struct {
			prefix evlog.Prefix
			want   []evtest.Rec
		}
		var states []state
		var all []evtest.Rec
		for range 8 {
			batch := g.Batch(6)
			first, err := l.Append(p.ctx, batch...)
			require.NoError(t, err)
			all = append(all, recsAt(first, batch...)...)
			for _, r := range []*evlog.Reader{l.Reader(), other} {
				prefix, err := r.Prefix(p.ctx)
				require.NoError(t, err)
				states = append(states, state{prefix, all[:len(all):len(all)]})
			}
			s := states[g.Rng.IntN(len(states))]
			from := g.Rng.Uint64N(uint64(len(all)) + 2)
			got, err := collect(s.prefix.Records(p.ctx, from))
			require.NoError(t, err)
			sameRecs(t, s.want[min(int(from), len(s.want)):], got, "from %d", from)
			below, wanted := s.prefix.Below(from), s.want[:min(int(from), len(s.want))]
			got, err = collect(below.Backward(p.ctx))
			require.NoError(t, err)
			sameRecs(t, reversed(wanted), got, "backward from %d", from)
			got, err = collect(below.Records(p.ctx, 0))
			require.NoError(t, err)
			sameRecs(t, wanted, got, "below %d", from)
			for _, key := range [][]byte{[]byte("key-1"), nil, []byte("nobody")} {
				var ofKey []evtest.Rec
				for _, r := range wanted {
					if bytes.Equal(r.Key, key) {
						ofKey = append(ofKey, r)
					}
				}
				got, err = collect(below.ByKey(p.ctx, key, 0))
				require.NoError(t, err)
				sameRecs(t, ofKey, got, "below %d, %q", from, key)
				got, err = collect(below.BackwardByKey(p.ctx, key))
				require.NoError(t, err)
				sameRecs(t, reversed(ofKey), got, "backward from %d, %q", from, key)
			}
			rec, err := s.prefix.Get(p.ctx, from)
			if from < s.prefix.Next() {
				require.NoError(t, err)
				sameRecs(t, s.want[from:from+1], []evtest.Rec{evtest.RecOf(rec)}, "get %d", from)
			} else {
				require.ErrorIs(t, err, evlog.ErrNotFound)
			}
		}
		require.NoError(t, l.Close())
		_, err := states[0].prefix.Get(p.ctx, 0)
		require.ErrorIs(t, err, evlog.ErrClosed)
		_, err = collect(states[0].prefix.Records(p.ctx, 0))
		require.ErrorIs(t, err, evlog.ErrClosed)
	})
}
