package evlog_test

import (
	"context"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
)

func randomLog(t testing.TB, seed uint64, n int) (evtest.Image, []evtest.Rec) {
	t.Helper()
	p, _ := inMem(t)
	g := evtest.NewGen(seed)
	l := p.open(t, &evlog.Options{SegmentBytes: 1 + g.Rng.Int64N(2000), IndexBytes: 1 + g.Rng.Int64N(300), Sync: evlog.SyncFlush})
	var want []evtest.Rec
	next := uint64(0)
	for len(want) < n {
		r := g.Record()
		if g.Rng.IntN(6) == 0 {
			next += g.Rng.Uint64N(30)
			if g.Rng.IntN(8) == 0 {
				next += 1 << 32
			}
		}
		r.Offset = next
		next++
		require.NoError(t, l.EnqueueExact(p.ctx, r))
		want = append(want, evtest.RecOf(r))
		if g.Rng.IntN(40) == 0 {
			require.NoError(t, l.Roll(p.ctx))
		}
	}
	require.NoError(t, l.Close())
	return p.image(t), want
}

func from(recs []evtest.Rec, off uint64) []evtest.Rec {
	i := slices.IndexFunc(recs, func(r evtest.Rec) bool { return r.Offset >= off })
	if i < 0 {
		return nil
	}
	return recs[i:]
}

func reversed(recs []evtest.Rec) []evtest.Rec {
	recs = slices.Clone(recs)
	slices.Reverse(recs)
	return recs
}

func offsetsAround(recs []evtest.Rec) []uint64 {
	set := map[uint64]bool{0: true}
	for _, r := range recs {
		set[r.Offset] = true
		set[r.Offset+1] = true
		if r.Offset > 0 {
			set[r.Offset-1] = true
		}
	}
	var all []uint64
	for off := range set {
		all = append(all, off)
	}
	slices.Sort(all)
	return all
}

func checkReader(t *testing.T, ctx context.Context, r *evlog.Reader, want []evtest.Rec, rng interface{ IntN(int) int }) {
	t.Helper()
	first, next, err := r.Bounds(ctx)
	require.NoError(t, err)
	end := uint64(0)
	if len(want) > 0 {
		require.LessOrEqual(t, first, want[0].Offset)
		end = want[len(want)-1].Offset + 1
	}
	require.Equal(t, end, next)

	offsets := offsetsAround(want)
	for _, off := range offsets {
		if len(offsets) > 120 && rng.IntN(len(offsets)) > 120 {
			continue
		}
		got, err := collect(r.Records(ctx, off))
		require.NoError(t, err, "from %d", off)
		sameRecs(t, from(want, off), got, "from %d", off)

		one, err := r.Get(ctx, off)
		if rest := from(want, off); len(rest) > 0 {
			require.NoError(t, err)
			sameRecs(t, rest[:1], []evtest.Rec{evtest.RecOf(one)}, "get %d", off)
		} else {
			require.ErrorIs(t, err, evlog.ErrNotFound)
		}

		got, err = collect(r.Backward(ctx, off))
		require.NoError(t, err)
		sameRecs(t, reversed(want[:len(want)-len(from(want, off))]), got, "backward from %d", off)
	}
	got, err := collect(r.Backward(ctx, math.MaxUint64))
	require.NoError(t, err)
	sameRecs(t, reversed(want), got, "backward from the end")

	checkSegments(t, ctx, r, want)
	checkTimes(t, ctx, r, want)
	checkTimeRanges(t, ctx, r, want)
	checkKeys(t, ctx, r, want)
	for _, n := range []int{1, 2, 3, len(want) / 2, len(want) - 1, len(want), len(want) + 1, math.MaxInt} {
		if n < 1 || len(want) == 0 {
			continue
		}
		off, err := r.OffsetOfLast(ctx, n)
		require.NoError(t, err)
		sameRecs(t, want[max(0, len(want)-n):], from(want, off), "last %d", n)
		if n <= len(want) {
			require.Equal(t, want[len(want)-n].Offset, off, "last %d", n)
		}
	}
}

func checkSegments(t *testing.T, ctx context.Context, r *evlog.Reader, want []evtest.Rec) {
	t.Helper()
	segs, err := r.Segments(ctx)
	require.NoError(t, err)
	for i, s := range segs {
		require.Equal(t, i == len(segs)-1, s.State == evlog.SegmentActive)
		sum := evlog.SegmentInfo{Base: s.Base, End: s.End}
		minMS, maxMS := int64(math.MaxInt64), int64(math.MinInt64)
		for _, r := range want {
			if r.Offset < s.Base || r.Offset >= s.End {
				continue
			}
			sum.Records++
			sum.Bytes += r.Size()
			if len(r.Key) > 0 && len(r.Value) == 0 {
				sum.Tombstones++
			}
			minMS, maxMS = min(minMS, r.TimeMS), max(maxMS, r.TimeMS)
		}
		sum.Holes = s.End - s.Base - sum.Records
		if i > 0 {
			require.Equal(t, segs[i-1].End, s.Base)
		}
		if sum.Records > 0 {
			require.Equal(t, []int64{minMS, maxMS}, []int64{s.Oldest.UnixMilli(), s.Newest.UnixMilli()}, "segment %d", s.Base)
		} else {
			require.True(t, s.Oldest.IsZero() && s.Newest.IsZero())
		}
		sum.FileBytes, sum.Oldest, sum.Newest = s.FileBytes, s.Oldest, s.Newest
		sum.Closed, sum.Indexed, sum.State = s.Closed, s.Indexed, s.State
		if sum.Cleaned = s.Cleaned; s.Cleaned.IsZero() {
			sum.DirtyBytes = sum.Bytes
		}
		require.Equal(t, sum, s)
	}
}

func checkTimes(t *testing.T, ctx context.Context, r *evlog.Reader, want []evtest.Rec) {
	t.Helper()
	times := map[int64]bool{0: true, -1: true, 1: true, math.MaxInt64: true, math.MinInt64: true, math.MaxInt64 - 1: true}
	for _, rec := range want {
		for d := int64(-1); d <= 1; d++ {
			times[rec.TimeMS+d] = true
		}
	}
	for ms := range times {
		off, err := r.OffsetAt(ctx, time.UnixMilli(ms))
		wantOff, ok := evtest.At(want, ms)
		if ok {
			require.NoError(t, err, "at %d ms", ms)
			require.Equal(t, wantOff, off, "at %d ms", ms)
			continue
		}
		require.ErrorIs(t, err, evlog.ErrNotFound, "at %d ms", ms)
		_, next, err := r.Bounds(ctx)
		require.NoError(t, err)
		require.Equal(t, next, off, "at %d ms: the end of the log", ms)
	}
}

func checkKeys(t *testing.T, ctx context.Context, r *evlog.Reader, want []evtest.Rec) {
	t.Helper()
	keys := map[string]bool{"not there": true}
	for _, rec := range want {
		keys[string(rec.Key)] = true
	}
	for key := range keys {
		var with []evtest.Rec
		for _, rec := range want {
			if string(rec.Key) == key {
				with = append(with, rec)
			}
		}
		got, err := collect(r.ByKey(ctx, []byte(key), want[0].Offset))
		require.NoError(t, err)
		if key == "" {
			continue // what "no key" selects is not promised
		}
		sameRecs(t, with, got, "key %q", key)
		newest, err := r.Latest(ctx, []byte(key))
		if len(with) == 0 {
			require.ErrorIs(t, err, evlog.ErrNotFound)
			continue
		}
		require.NoError(t, err)
		sameRecs(t, with[len(with)-1:], []evtest.Rec{evtest.RecOf(newest)}, "latest of %q", key)
		mid := with[len(with)/2].Offset
		got, err = collect(r.ByKey(ctx, []byte(key), mid))
		require.NoError(t, err)
		sameRecs(t, from(with, mid), got, "key %q from %d", key, mid)
	}
}
