package evlog_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/evlog/evlogtest"
	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/internal/vfs"
)

// tombstone deletes a key.
func tombstone(key string) evlog.Record { return rec(key, "") }

// fast compacts without a bound on the rate.
func fast() *evlog.CompactOptions { return &evlog.CompactOptions{MinLag: -1, BytesPerSecond: -1} }

// purging is fast without a grace.
func purging() *evlog.CompactOptions {
	o := fast()
	o.Grace = -1
	return o
}

func compact(t testing.TB, p place, l *evlog.Log, o *evlog.CompactOptions) *evlog.CompactReport {
	t.Helper()
	rep, err := l.Compact(p.ctx, o)
	for range 200 {
		if !windowsRules || !inUse(rep, err) {
			break
		}
		time.Sleep(time.Millisecond) // the housekeeper looks at a segment
		before := rep
		rep, err = l.Compact(p.ctx, o)
		rep.Changes = append(before.Changes, rep.Changes...)
		rep.Superseded, rep.Tombstones = rep.Superseded+before.Superseded, rep.Tombstones+before.Tombstones
		rep.Before = before.Before
	}
	require.NoError(t, err)
	return rep
}

// inUse reports whether a compaction left something that somebody has open.
func inUse(rep *evlog.CompactReport, err error) bool {
	return errors.Is(errors.Join(append(rep.Refused, err)...), fs.ErrPermission)
}

// newestOf is what a compaction leaves of recs, by brute force: what lies at or
// above active is not touched and supersedes nothing, and tombstones stay unless
// purge says otherwise.
func newestOf(recs []evtest.Rec, active uint64, purge bool) []evtest.Rec {
	newest := map[string]uint64{}
	for _, r := range recs {
		if r.Offset < active {
			newest[string(r.Key)] = r.Offset
		}
	}
	return slices.DeleteFunc(slices.Clone(recs), func(r evtest.Rec) bool {
		if r.Offset >= active || len(r.Key) == 0 {
			return false
		}
		return newest[string(r.Key)] > r.Offset || purge && len(r.Value) == 0
	})
}

func activeBase(t testing.TB, p place) uint64 {
	t.Helper()
	bases := p.image(t).Bases()
	return bases[len(bases)-1]
}

// stamps are the modification times of all files.
func stamps(t testing.TB, p place) map[string]time.Time {
	t.Helper()
	d, err := p.fsys.OpenDir(p.dir)
	require.NoError(t, err)
	defer d.Close()
	names, err := d.Names()
	require.NoError(t, err)
	all := map[string]time.Time{}
	for _, name := range names {
		info, err := d.Stat(name)
		require.NoError(t, err)
		all[name] = info.ModTime()
	}
	return all
}

// writes counts what changes a file system from now on.
func writes(m *vfs.Mem) func() int64 {
	before := m.Ops()
	return func() int64 { return m.Ops() - before }
}

// Whatever is in the log, in one pass and in many: the newest record of each key
// stays with its bytes, keyless ones stay, and a second run writes nothing.
func TestCompact_AgainstBruteForce(t *testing.T) {
	evtest.Seeds(t, 3000, func(t *testing.T, seed uint64) {
		p, m := inMem(t)
		g := evtest.NewGen(seed)
		g.Keys = 1 + g.Rng.IntN(40)
		l := p.open(t, &evlog.Options{SegmentBytes: 1 + g.Rng.Int64N(4000), IndexBytes: 1 + g.Rng.Int64N(300), Sync: evlog.SyncFlush})
		r := p.reader(t, nil)
		var want []evtest.Rec
		for range 1 + g.Rng.IntN(4) {
			next := l.Stats().NextOffset
			for range g.Rng.IntN(150) {
				rec := g.Record()
				if g.Rng.IntN(6) == 0 {
					next += g.Rng.Uint64N(30) + g.Rng.Uint64N(2)<<33
				}
				rec.Offset = next
				next++
				require.NoError(t, l.EnqueueExact(p.ctx, rec))
				want = append(want, evtest.RecOf(rec))
			}
			last := evlog.Record{Offset: next, Time: time.UnixMilli(1), Value: []byte("no key: the log ends here")}
			require.NoError(t, l.AppendExact(p.ctx, last))
			want = append(want, evtest.RecOf(last))
			if g.Rng.IntN(2) == 0 {
				require.NoError(t, l.Roll(p.ctx))
			}
			o := fast()
			o.MemoryBytes = 1 + g.Rng.Int64N(3000)
			purge := g.Rng.IntN(2) == 0
			if purge {
				o.Grace = -1
			}
			want = newestOf(want, activeBase(t, p), purge)
			dry := *o
			dry.DryRun = true
			r = p.lets(t, r)
			planned := compact(t, p, l, &dry)
			require.False(t, planned.Executed)
			rep := compact(t, p, l, o)
			if !windowsRules {
				planned.Executed, planned.Passes = rep.Executed, rep.Passes
				require.Equal(t, planned, rep, "seed %d: the dry run said otherwise", seed)
			}
			if len(want) > 0 {
				checkReader(t, p.ctx, r, want, g.Rng)
			}
			sameRecs(t, want, p.image(t).Reader().Recs, "seed %d", seed)
			p.verified(t)
			r = p.lets(t, r)
			soon(t, "a second run writes nothing, once the housekeeper is done", func() bool {
				changed := writes(m)
				again := compact(t, p, l, o)
				require.Empty(t, again.Changes, "seed %d", seed)
				return changed() == 0
			})
		}
		require.NoError(t, l.Close())
		l = p.open(t, &evlog.Options{Verify: evlog.VerifyAll})
		got, err := readAll(p.ctx, l.Reader())
		require.NoError(t, err)
		sameRecs(t, want, got, "seed %d, opened again", seed)
	})
}

// A tombstone stays for the grace, counted from the first cleaning of its
// segment and from nothing else, and then goes.
func TestCompact_TombstoneGrace(t *testing.T) {
	p, _ := inMem(t)
	clock := evlogtest.NewClock(time.UnixMilli(1_700_000_000_000))
	opts := &evlog.Options{Clock: clock, TombstoneGrace: time.Hour, NoPreallocate: true}
	l := p.open(t, opts)
	old := tombstone("a")
	old.Time = time.UnixMilli(1_000_000_000_000) // says nothing about the grace
	want := appendEach(t, p.ctx, l, rec("a", "1"), rec("b", "1"), old)
	require.NoError(t, l.Roll(p.ctx))
	clock.Advance(30 * 24 * time.Hour) // nor does when it was closed
	rep := compact(t, p, l, fast())
	require.Equal(t, []uint64{1, 0}, []uint64{rep.Superseded, rep.Tombstones})
	require.True(t, rep.TombstonesLeft)
	sameRecs(t, want[1:], p.all(t))

	clock.Advance(time.Hour - time.Millisecond)
	require.Empty(t, compact(t, p, l, fast()).Changes, "within the grace")
	require.NoError(t, l.Close())
	l = p.open(t, opts)
	require.Empty(t, compact(t, p, l, fast()).Changes, "opening counts for nothing")
	clock.Advance(time.Millisecond)
	rep = compact(t, p, l, fast())
	require.Equal(t, []uint64{0, 1}, []uint64{rep.Superseded, rep.Tombstones})
	require.False(t, rep.TombstonesLeft)
	sameRecs(t, want[1:2], p.all(t))
	require.EqualValues(t, 3, l.Stats().NextOffset)
	require.NoError(t, l.Close())
	l = p.open(t, opts)
	off, err := l.Append(p.ctx, rec("c", "1"))
	require.NoError(t, err)
	require.EqualValues(t, 3, off)
}

// Losing an index, a file's time, or trust in the clock delays the end of a
// grace, and never brings it forward.
func TestCompact_GraceIsOnlyEverLonger(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(t *testing.T, p place, clock *evlogtest.Clock, reopen func(func()))
		wait time.Duration // until the tombstone may go
	}{
		{"index lost", func(t *testing.T, p place, _ *evlogtest.Clock, reopen func(func())) {
			reopen(func() { removeNames(t, p, "*.idx") })
		}, time.Hour},
		{"file touched", func(t *testing.T, p place, _ *evlogtest.Clock, reopen func(func())) {
			reopen(func() {
				d, err := p.fsys.OpenDir(p.dir)
				require.NoError(t, err)
				defer d.Close()
				require.NoError(t, d.Chtimes(evtest.SegmentFile(0), time.UnixMilli(1)))
			})
		}, 30 * time.Minute},
		{"clock jumps ahead", func(_ *testing.T, _ place, clock *evlogtest.Clock, _ func(func())) {
			clock.SetWall(clock.Now().Add(100 * time.Hour))
		}, time.Hour},
		{"clock goes back", func(_ *testing.T, _ place, clock *evlogtest.Clock, _ func(func())) {
			clock.SetWall(clock.Now().Add(-100 * time.Hour))
		}, time.Hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, _ := inMem(t)
			clock := evlogtest.NewClock(time.UnixMilli(1_700_000_000_000))
			opts := &evlog.Options{Clock: clock, TombstoneGrace: time.Hour}
			l := p.open(t, opts)
			appendEach(t, p.ctx, l, rec("a", "1"), tombstone("a"))
			require.NoError(t, l.Roll(p.ctx))
			require.Zero(t, compact(t, p, l, fast()).ClockWait)
			clock.Advance(30 * time.Minute)
			c.do(t, p, clock, func(meanwhile func()) {
				require.NoError(t, l.Close())
				meanwhile()
				l = p.open(t, opts)
			})
			rep := compact(t, p, l, fast())
			require.Equal(t, c.name == "clock jumps ahead", rep.ClockWait == time.Hour, "it says why")
			clock.Advance(c.wait - time.Millisecond)
			compact(t, p, l, fast())
			require.Len(t, p.all(t), 1, "too early")
			clock.Advance(time.Millisecond)
			compact(t, p, l, fast())
			require.Empty(t, p.all(t), "too late")
		})
	}
}

// A clock that shows 1970 starts no grace: it would be over when the clock is set.
func TestCompact_ClockBeforeItIsSet(t *testing.T) {
	p, _ := inMem(t)
	clock := evlogtest.NewClock(time.UnixMilli(5000))
	l := p.open(t, &evlog.Options{Clock: clock, TombstoneGrace: time.Hour})
	appendEach(t, p.ctx, l, rec("a", "1"), tombstone("a"))
	require.NoError(t, l.Roll(p.ctx))
	compact(t, p, l, fast())
	require.NoError(t, l.Close())
	clock.SetWall(time.UnixMilli(1_700_000_000_000))
	l = p.open(t, &evlog.Options{Clock: clock})
	compact(t, p, l, fast())
	clock.Advance(time.Hour - time.Millisecond)
	compact(t, p, l, fast())
	require.Len(t, p.all(t), 1)
}

// removeNames removes the files that match.
func removeNames(t testing.TB, p place, pattern string) {
	t.Helper()
	d, err := p.fsys.OpenDir(p.dir)
	require.NoError(t, err)
	defer d.Close()
	names, err := d.Names()
	require.NoError(t, err)
	for _, name := range names {
		if ok, _ := path.Match(pattern, name); ok {
			require.NoError(t, d.Remove(name))
		}
	}
}

// Small neighbours become one segment; the first one's name, and so the first
// offset, stays, and no file seems to be missing.
func TestCompact_MergesSmallNeighbours(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		l := p.open(t, &evlog.Options{SegmentBytes: 2000, IndexBytes: 100})
		r := p.reader(t, nil)
		want := appendEach(t, p.ctx, l, numbered(0, 300)...)
		require.NoError(t, l.Roll(p.ctx))
		before := p.image(t).Bases()
		require.Greater(t, len(before), 5)
		half := take(t, r.Records(p.ctx, 0), 50)
		r = p.lets(t, r)
		rep := compact(t, p, l, fast())
		after := p.image(t).Bases()
		require.Equal(t, []uint64{before[0], before[len(before)-1]}, after)
		require.EqualValues(t, len(want)-7, rep.Superseded)
		sameRecs(t, want[:50], half)
		left := newestOf(want, 300, false)
		require.Len(t, left, 7)
		checkReader(t, p.ctx, r, left, evtest.Rand(1))
		p.verified(t)
		quiet(t, p) // the housekeeper may be at a segment that is gone
		require.Len(t, p.image(t), 2+1+3, "LOCK, log.json, DURABLE, two segments, one index: %v", p.image(t).Describe())
	})
}

// A segment's file keeps its closing time, in the index and as the file's.
func TestCompact_KeepsTheClosingTime(t *testing.T) {
	p, _ := inMem(t)
	clock := evlogtest.NewClock(time.UnixMilli(1_700_000_000_000))
	l := p.open(t, &evlog.Options{Clock: clock, SegmentBytes: 300})
	appendEach(t, p.ctx, l, rec("a", "1"), rec("a", "2"))
	require.NoError(t, l.Roll(p.ctx))
	closed := clock.Now()
	clock.Advance(time.Hour)
	compact(t, p, l, fast())
	require.Equal(t, closed.UnixMilli(), stamps(t, p)[evtest.SegmentFile(0)].UnixMilli())
	all, err := l.Reader().Segments(p.ctx)
	require.NoError(t, err)
	require.Equal(t, closed.UnixMilli(), all[0].Closed.UnixMilli())
	require.EqualValues(t, 1, all[0].Records)
	require.EqualValues(t, 1, all[0].Holes)
}

// damage flips a bit.
func damage(t testing.TB, p place, name string, pos int64) {
	t.Helper()
	d, err := p.fsys.OpenDir(p.dir)
	require.NoError(t, err)
	defer d.Close()
	f, err := d.OpenFile(name, 2, 0)
	require.NoError(t, err)
	defer f.Close()
	b := make([]byte, 1)
	_, err = f.ReadAt(b, pos)
	require.NoError(t, err)
	b[0] ^= 1
	_, err = f.WriteAt(b, pos)
	require.NoError(t, err)
}

// A damaged segment is left as it is, its records supersede nothing, and no
// tombstone above it goes: its unreadable part may hold what that deletes. The
// rest is compacted.
func TestCompact_DamagedSegmentIsRefused(t *testing.T) {
	p, _ := inMem(t)
	clock := evlogtest.NewClock(time.UnixMilli(1_700_000_000_000))
	l := p.open(t, &evlog.Options{Clock: clock, SegmentBytes: 1 << 20, TombstoneGrace: time.Hour})
	roll := func() { require.NoError(t, l.Roll(p.ctx)) }
	appendEach(t, p.ctx, l, rec("a", "1"), rec("b", "1"), rec("c", "1"), tombstone("z")) // 0: b and c are superseded
	roll()
	appendEach(t, p.ctx, l, rec("a", "2"), rec("b", "2"), rec("d", "1")) // 4: damaged
	roll()
	appendEach(t, p.ctx, l, rec("c", "2"), tombstone("d"), rec("b", "3")) // 7
	roll()
	soon(t, "it has an index, which damage in the middle leaves valid", func() bool {
		return p.image(t)[evtest.IndexFile(7)] != nil
	})
	damage(t, p, evtest.SegmentFile(4), 59)
	before := p.image(t)
	for round := range 3 {
		rep := compact(t, p, l, fast())
		require.Len(t, rep.Refused, 1)
		c := corruptAt(t, rep.Refused[0], evtest.SegmentFile(4), 30)
		require.EqualValues(t, 5, c.Offset)
		after := p.image(t)
		require.Equal(t, before[evtest.SegmentFile(4)], after[evtest.SegmentFile(4)])
		offsets := func(base uint64) (o []uint64) {
			for _, r := range evtest.DecodeSegment(base, after[evtest.SegmentFile(base)]).Recs {
				o = append(o, r.Offset)
			}
			return o
		}
		first := []uint64{0, 3}
		if round > 0 {
			first = first[:1] // the tombstone below goes when its time is over
		}
		require.Equal(t, first, offsets(0))
		require.Equal(t, []uint64{7, 8, 9}, offsets(7))
		all, err := l.Reader().Segments(p.ctx)
		require.NoError(t, err)
		require.Equal(t, evlog.SegmentDamaged, all[1].State, "info and segments tell it")
		corruptAt(t, all[1].Err, evtest.SegmentFile(4), 30)
		clock.Advance(2 * time.Hour)
	}
	require.NoError(t, l.Close())
	_, err := evlog.Repair(p.ctx, p.dir, &evlog.RepairOptions{Execute: true})
	require.NoError(t, err)
	l = p.open(t, &evlog.Options{Clock: clock})
	rep := compact(t, p, l, fast())
	require.Empty(t, rep.Refused)
	require.EqualValues(t, 0, rep.Tombstones, "the grace begins when what it deletes is gone for sure")
	clock.Advance(time.Hour)
	require.EqualValues(t, 1, compact(t, p, l, fast()).Tombstones)
	p.verified(t)
}

// A segment file that is missing may come back from a backup.
func TestCompact_MissingSegmentKeepsTombstones(t *testing.T) {
	p, _ := inMem(t)
	l := p.open(t, tiny())
	for i := range 4 {
		appendEach(t, p.ctx, l, rec("a", fmt.Sprint(i)), tombstone("b"))
		require.NoError(t, l.Roll(p.ctx))
	}
	require.NoError(t, l.Close())
	removeNames(t, p, evtest.SegmentFile(2))
	removeNames(t, p, evtest.IndexFile(2))
	l = p.open(t, nil)
	compact(t, p, l, purging())
	require.Equal(t, []uint64{0, 4, 6, 8}, p.image(t).Bases(), "not merged over what is missing")
	left := p.image(t).Reader()
	require.Error(t, left.Err)
	seg := evtest.DecodeSegment(6, p.image(t)[evtest.SegmentFile(6)])
	sameRecs(t, append(recsAt(6, rec("a", "3")), recsAt(7, tombstone("b"))...), seg.Recs)
	rep, err := evlog.Verify(p.ctx, p.dir, nil)
	require.NoError(t, err)
	require.False(t, rep.OK(), "still told")
}

func TestCompact_LargeRecordAmongSmall(t *testing.T) {
	p, _ := inMem(t)
	l := p.open(t, &evlog.Options{SegmentBytes: 1 << 20})
	big := evlog.Record{Time: time.UnixMilli(7), Key: []byte("big"), Value: make([]byte, 16<<20+13)}
	for i := range big.Value {
		big.Value[i] = byte(i * i >> 7)
	}
	var want []evtest.Rec
	for i := range 3 {
		want = append(want, appendEach(t, p.ctx, l, rec("a", fmt.Sprint(i)), big, rec("b", fmt.Sprint(i)))...)
	}
	require.NoError(t, l.Roll(p.ctx))
	want = newestOf(want, l.Stats().NextOffset, false)
	compact(t, p, l, fast())
	sameRecs(t, want, p.all(t))
	p.verified(t)
}

// Cancelled at any moment, and run again: nothing is lost, and in the end it is
// as if it had not been.
func TestCompact_Cancelled(t *testing.T) {
	evtest.Seeds(t, 300, func(t *testing.T, seed uint64) {
		p, m := inMem(t)
		l := p.open(t, &evlog.Options{SegmentBytes: 3000, IndexBytes: 100})
		want := newestOf(appendEach(t, p.ctx, l, numbered(0, 400)...), 400, false)
		require.NoError(t, l.Roll(p.ctx))
		stop := 1 + evtest.Rand(seed).IntN(60)
		for done := false; !done; {
			ctx, cancel := context.WithCancel(p.ctx)
			n := 0
			ops := m.Ops()
			q := vfs.NewContext(ctx, p.fsys)
			o := fast()
			o.MemoryBytes = 32 * 3
			o.Progress = func(int64, int64) {
				if n++; n == stop {
					cancel()
				}
			}
			_, err := l.Compact(q, o)
			cancel()
			if err != nil {
				require.ErrorIs(t, err, context.Canceled)
			}
			done = err == nil && m.Ops() == ops
			all := p.all(t)
			require.Subset(t, keysOf(all), keysOf(want))
			for name := range p.image(t) {
				require.NotContains(t, name, ".log.tmp", "seed %d", seed)
			}
			stop *= 3
		}
		sameRecs(t, want, p.all(t))
		p.verified(t)
	})
}

func keysOf(recs []evtest.Rec) (keys []string) {
	for _, r := range recs {
		keys = append(keys, fmt.Sprintf("%d %s %s", r.Offset, r.Key, r.Value))
	}
	return keys
}

// Close ends a compaction, which tells why.
func TestCompact_CloseEndsIt(t *testing.T) {
	p, _ := inMem(t)
	l := p.open(t, nil)
	appendEach(t, p.ctx, l, numbered(0, 200)...)
	require.NoError(t, l.Roll(p.ctx))
	begun := make(chan struct{})
	once := false
	result := make(chan error, 1)
	go func() {
		_, err := l.Compact(p.ctx, &evlog.CompactOptions{MinLag: -1, BytesPerSecond: 1, Progress: func(int64, int64) {
			if !once {
				once = true
				close(begun)
			}
		}})
		result <- err
	}()
	inTime(t, "it works", begun)
	require.NoError(t, l.Close())
	require.ErrorIs(t, inTime(t, "it ends", result), evlog.ErrClosed)
	_, err := l.Compact(p.ctx, nil)
	require.ErrorIs(t, err, evlog.ErrClosed)
}

func TestCompact_BadOptions(t *testing.T) {
	p, _ := inMem(t)
	l := p.open(t, nil)
	_, err := l.Compact(p.ctx, &evlog.CompactOptions{MemoryBytes: -1})
	require.ErrorIs(t, err, evlog.ErrBadOptions)
	for _, o := range []*evlog.Options{
		{Compact: 3}, {MinDirtyRatio: -0.1}, {MinDirtyRatio: 1.1}, {MinLag: 1}, {TombstoneGrace: 1},
	} {
		require.ErrorIs(t, onFS(t, vfs.NewMem()).refused(t, o), evlog.ErrBadOptions)
	}
}

// A tombstone's grace ends when it should, also where the segment has a small
// neighbour that was cleaned later: they are merged after it.
func TestCompact_MergesAfterTheGrace(t *testing.T) {
	p, _ := inMem(t)
	clock := evlogtest.NewClock(time.UnixMilli(1_700_000_000_000))
	l := p.open(t, &evlog.Options{Clock: clock, TombstoneGrace: time.Hour})
	appendEach(t, p.ctx, l, rec("x", "1"), tombstone("a"))
	require.NoError(t, l.Roll(p.ctx))
	compact(t, p, l, fast())
	clock.Advance(30 * time.Minute)
	appendEach(t, p.ctx, l, rec("y", "1"))
	require.NoError(t, l.Roll(p.ctx))
	compact(t, p, l, fast())
	require.Equal(t, []uint64{0, 2, 3}, p.image(t).Bases())
	clock.Advance(30 * time.Minute)
	compact(t, p, l, fast())
	require.Len(t, p.all(t), 2)
	require.Equal(t, []uint64{0, 3}, p.image(t).Bases())
}

// Retention removes a segment that is being compacted: it does not come back.
func TestCompact_SegmentRemovedMeanwhile(t *testing.T) {
	if windowsRules {
		t.Skip("what is being read cannot be removed: see TestRetainer_WindowsRules")
	}
	for at := 1; ; at++ {
		p, _ := inMem(t)
		l := p.open(t, &evlog.Options{SegmentBytes: 1 << 20})
		for i := range 3 {
			appendEach(t, p.ctx, l, rec("a", fmt.Sprint(i)), rec("b", fmt.Sprint(i)))
			require.NoError(t, l.Roll(p.ctx))
		}
		calls, removed := 0, true
		o := fast()
		o.Progress = func(int64, int64) {
			if calls++; calls == at {
				// Where the segment was merged with the next one, nothing is due.
				removed = len(retain(t, p, l, evlog.RetainOptions{Below: 2}).Removed) > 0
			}
		}
		compact(t, p, l, o)
		all := p.all(t)
		require.Equal(t, []string{"4 a 2", "5 b 2"}, keysOf(all))
		p.verified(t)
		if calls < at {
			require.Greater(t, at, 4)
			return
		}
		if !removed {
			continue
		}
		first, _, err := l.Reader().Bounds(p.ctx)
		require.NoError(t, err)
		require.GreaterOrEqual(t, first, uint64(2), "removed at step %d, and back", at)
	}
}

// So it is with one that only gets a note that it is clean.
func TestCompact_CleanSegmentRemovedMeanwhile(t *testing.T) {
	if windowsRules {
		t.Skip("what is being read cannot be removed: see TestRetainer_WindowsRules")
	}
	for at := 1; ; at++ {
		p, _ := inMem(t)
		l := p.open(t, &evlog.Options{SegmentBytes: 1})
		appendEach(t, p.ctx, l, rec("a", "1"), rec("b", "1"), rec("c", "1"), rec("d", "1"))
		calls := 0
		o := fast()
		o.Progress = func(int64, int64) {
			if calls++; calls == at {
				retain(t, p, l, evlog.RetainOptions{Below: 3})
			}
		}
		compact(t, p, l, o)
		require.NoError(t, l.Close())
		p.verified(t)
		if calls < at {
			require.Greater(t, at, 3)
			return
		}
		require.EqualValues(t, 3, p.image(t).Bases()[0])
	}
}
