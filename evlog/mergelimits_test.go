package evlog_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/evlog/evlogtest"
	"github.com/evlog-go/evlog/internal/evtest"
)

const day = 24 * time.Hour

// A log that gets little, compacts and has a MaxAge does not keep its records for
// ever: merging carried the oldest along in ever younger segments.
func TestMerge_KeepsToMaxAge(t *testing.T) {
	for _, on := range []evlog.Switch{evlog.Off, evlog.On} {
		synctest.Test(t, func(t *testing.T) {
			p, _ := inMem(t)
			clock := evlogtest.NewClock(noon)
			l := p.open(t, &evlog.Options{Compact: on, TombstoneGrace: time.Hour, MaxAge: 7 * day, NoPreallocate: true, Clock: clock})
			for i := range 120 {
				_, err := l.Append(p.ctx, evlog.Record{Key: fmt.Append(nil, "session-", i), Value: []byte("x")})
				require.NoError(t, err)
				for range 12 {
					clock.Advance(time.Hour)
					synctest.Wait()
				}
				recs := p.all(t)
				require.LessOrEqual(t, clock.Now().Sub(time.UnixMilli(recs[0].TimeMS)), 7*day+7*day/4+2*time.Hour)
				require.GreaterOrEqual(t, len(recs), min(i+1, 13), "what is younger stays")
			}
			require.Less(t, len(p.image(t).Bases()), 12, "small ones are merged")
			require.NoError(t, l.Close())
		})
	}
}

// Whatever the times of records are, and however often segments are merged: none
// stays for more than a quarter of MaxAge longer than it would have.
func TestMerge_AddsAQuarterOfMaxAgeAtMost(t *testing.T) {
	evtest.Seeds(t, 500, func(t *testing.T, seed uint64) {
		rng := evtest.Rand(seed)
		p, _ := inMem(t)
		clock := evlogtest.NewClock(noon.Add(time.Duration(rng.Int64N(int64(day)))))
		const limit = 8 * time.Hour
		opts := evlog.Options{Clock: clock, NoPreallocate: true, NoRetention: true, MaxAge: limit, SegmentAge: 1000 * day}
		l := p.open(t, &opts)
		var closed, ages []time.Time // of the segment that each record was in first
		merged, keys, often := 0, 10+rng.IntN(300), 1+rng.IntN(5)
		for range 100 {
			kind, now := rng.IntN(4), clock.Now()
			at := []time.Time{now, now.Add(-time.Hour), noon.AddDate(50, 0, 0), time.UnixMilli(5)}[kind]
			for range 1 + rng.IntN(3) {
				appendEach(t, p.ctx, l, evlog.Record{Time: at, Key: fmt.Append(nil, rng.IntN(keys)), Value: []byte("v")})
				closed = append(closed, time.Time{})
			}
			clock.Advance(time.Duration(rng.Int64N(int64(40 * time.Minute))))
			require.NoError(t, l.Roll(p.ctx))
			for i := range closed {
				if closed[i].IsZero() {
					closed[i] = clock.Now()
					byClosing := closed[i].Add(-limit / 4) // its own time cannot be believed
					ages = append(ages, []time.Time{at, at, byClosing, byClosing}[kind])
				}
			}
			if rng.IntN(3) == 0 {
				removeIndexes(t, p)
			}
			if rng.IntN(often) > 0 {
				continue
			}
			plan, err := p.reader(t, &evlog.ReaderOptions{Clock: clock}).PlanCompact(p.ctx, purging())
			require.NoError(t, err)
			rep := compact(t, p, l, purging())
			if !windowsRules {
				planned(t, plan, rep, "seed %d", seed)
			}
			for _, c := range rep.Changes {
				if c.Into != c.Base {
					merged++
				}
			}
			before := p.all(t)
			first := retain(t, p, l, evlog.RetainOptions{}).First
			for _, r := range before {
				require.True(t, r.Offset >= first || clock.Now().Sub(ages[r.Offset]) >= limit-time.Millisecond, "seed %d: %v went too early", seed, r)
			}
			for _, r := range p.all(t) {
				require.Less(t, clock.Now().Sub(closed[r.Offset]), limit+limit/4, "seed %d, %v", seed, r)
			}
		}
		require.Positive(t, merged, "seed %d: nothing is merged", seed)
		require.NoError(t, l.Close())
	})
}

// planned asserts that a compaction by the writer dropped what a plan said that was
// made beside it. Other segments may be written again: who has not made them cannot
// know that the disk has them.
func planned(t *testing.T, plan, rep *evlog.CompactReport, msg ...any) {
	t.Helper()
	require.Equal(t, []uint64{rep.Superseded, rep.Tombstones}, []uint64{plan.Superseded, plan.Tombstones}, msg...)
	require.Equal(t, []int64{rep.Before, rep.After}, []int64{plan.Before, plan.After}, msg...)
	drops := func(all []evlog.CompactChange) map[uint64][2]uint64 {
		of := map[uint64][2]uint64{}
		for _, c := range all {
			if c.Superseded+c.Tombstones > 0 {
				of[c.Base] = [2]uint64{c.Superseded, c.Tombstones}
			}
		}
		return of
	}
	require.Equal(t, drops(rep.Changes), drops(plan.Changes), msg...)
}

// What a plan says from outside is what a writer does that is opened then, down to
// the last segment that is written again for safety alone.
func TestPlanCompact_IsWhatTheNextWriterDoes(t *testing.T) {
	evtest.Seeds(t, 500, func(t *testing.T, seed uint64) {
		rng := evtest.Rand(seed)
		p, _ := inMem(t)
		clock := evlogtest.NewClock(noon)
		opts := evlog.Options{Clock: clock, NoPreallocate: true, SegmentBytes: 2000}
		for range 5 {
			l := p.open(t, &opts)
			for range 1 + rng.IntN(6) {
				for range rng.IntN(8) {
					appendEach(t, p.ctx, l, rec(fmt.Sprint(rng.IntN(60)), "v"[:rng.IntN(2)]))
				}
				require.NoError(t, l.Roll(p.ctx))
			}
			quiet(t, p)
			require.NoError(t, l.Close())
			if rng.IntN(2) == 0 {
				removeIndexes(t, p)
			}
			r := p.reader(t, &evlog.ReaderOptions{Clock: clock})
			plan, err := r.PlanCompact(p.ctx, purging())
			require.NoError(t, err)
			require.NoError(t, r.Close())
			plan.Executed = true
			var rep *evlog.CompactReport
			before := p.image(t)
			for range 100 {
				l = p.open(t, &opts)
				p.settled(t)
				rep, err = l.Compact(p.ctx, purging())
				if !windowsRules || !inUse(rep, err) {
					break
				}
				// The housekeeper of the new writer looked at a segment: another one begins
				// where that did.
				require.NoError(t, l.Close())
				p = placeWith(t, before)
			}
			require.NoError(t, err)
			require.Equal(t, plan, rep, "seed %d", seed)
			quiet(t, p)
			require.NoError(t, l.Close())
		}
	})
}

// Merging leaves MaxBytes something to remove: no segment gets larger than a
// quarter of it, so no removal takes more than that.
func TestMerge_KeepsToMaxBytes(t *testing.T) {
	p, _ := inMem(t)
	const limit = 40_000
	l := p.open(t, &evlog.Options{MaxBytes: limit, NoRetention: true, NoPreallocate: true})
	removed := 0
	for i := range 200 {
		_, err := l.Append(p.ctx, evlog.Record{Key: fmt.Append(nil, "k", i), Value: make([]byte, 1000)})
		require.NoError(t, err)
		if i%2 == 1 {
			require.NoError(t, l.Roll(p.ctx))
		}
		compact(t, p, l, fast())
		before := len(p.all(t))
		rep := retain(t, p, l, evlog.RetainOptions{})
		require.Less(t, before-len(p.all(t)), limit/4/1000+1, "%+v", rep.Removed)
		if removed += len(rep.Removed); removed > 0 {
			require.Greater(t, rep.Bytes, int64(limit)*2/3)
		}
		require.LessOrEqual(t, rep.Bytes, int64(limit))
	}
	require.Positive(t, removed)
	require.Less(t, len(p.image(t).Bases()), 12, "small ones are merged")
	require.NoError(t, l.Close())
}
