package evlog_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/evlog/evlogtest"
	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/internal/vfs"
)

// noon is when the tests of retention begin.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// aged is a log with a segment for each record: the time of the record, and how
// long after noon the segment was closed.
type aged struct {
	time   time.Time
	closed time.Duration
}

// agedLog makes such a log, with an empty active segment, and leaves the clock
// where the last segment was closed.
func agedLog(t testing.TB, p place, opts evlog.Options, segments ...aged) (*evlog.Log, *evlogtest.Clock) {
	t.Helper()
	clock := evlogtest.NewClock(noon)
	opts.Clock, opts.NoPreallocate = clock, true
	l := p.open(t, &opts)
	for i, s := range segments {
		clock.Advance(noon.Add(s.closed).Sub(clock.Now()))
		_, err := l.Append(p.ctx, evlog.Record{Time: s.time, Key: []byte("k"), Value: fmt.Appendf(nil, "record %d%1000d", i, i)})
		require.NoError(t, err)
		require.NoError(t, l.Roll(p.ctx))
	}
	return l, clock
}

// steady are n segments, one a minute, with records of the moment.
func steady(n int) []aged {
	all := make([]aged, n)
	for i := range all {
		all[i] = aged{noon.Add(time.Duration(i) * time.Minute), time.Duration(i) * time.Minute}
	}
	return all
}

// retain removes what is due. By the rules of Windows the housekeeper, who looks at
// a segment, may be in the way for a moment.
func retain(t testing.TB, p place, l *evlog.Log, o evlog.RetainOptions) *evlog.RetainReport {
	t.Helper()
	rep, err := l.Retain(p.ctx, &o)
	for range 200 {
		if !windowsRules || !errors.Is(err, fs.ErrPermission) {
			break
		}
		time.Sleep(time.Millisecond)
		before := rep
		rep, err = l.Retain(p.ctx, &o)
		rep.Removed = append(before.Removed, rep.Removed...)
		rep.Rolls = rep.Rolls || before.Rolls
	}
	require.NoError(t, err)
	return rep
}

// A call that waits for another run ends with its context, or with the log; and a
// run that is under way ends with the log.
func TestRetain_WaitingEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := inMem(t)
		l, _ := agedLog(t, p, evlog.Options{NoRetention: true}, steady(5)...)
		quiet(t, p)
		closed := make(chan error, 1)
		rep, err := l.Retain(p.ctx, &evlog.RetainOptions{Below: 5, Progress: func(done, _ int) {
			require.Equal(t, 1, done)
			ctx, cancel := context.WithTimeout(p.ctx, time.Minute)
			defer cancel()
			other, err := l.Retain(ctx, &evlog.RetainOptions{Below: 5})
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Empty(t, other.Removed)
			go func() { closed <- l.Close() }()
			_, err = l.Retain(p.ctx, &evlog.RetainOptions{Below: 5})
			require.ErrorIs(t, err, evlog.ErrClosed)
		}})
		require.ErrorIs(t, err, evlog.ErrClosed)
		require.Len(t, rep.Removed, 1, "what is done is told")
		require.NoError(t, <-closed)
		require.EqualValues(t, 1, p.image(t).Bases()[0])
	})
}

// Records that an interrupted merge left twice count once: as many of the newest
// stay as were asked for, for any number, with indexes and without.
func TestRetain_RecordsOfAnOverlapCountOnce(t *testing.T) {
	overlaps := map[string]evtest.Image{
		"one":   build().segment(0, upTo(0, 4)...).segment(4, upTo(4, 12)...).segment(8, upTo(8, 12)...).segment(12, 12).durable(13, 12).im,
		"two":   build().segment(0, upTo(0, 12)...).segment(4, upTo(4, 8)...).segment(8, upTo(8, 12)...).segment(12, 12).durable(13, 12).im,
		"empty": build().segment(0, upTo(0, 4)...).segment(4, upTo(4, 12)...).segment(8).segment(12, 12).durable(13, 12).im,
	}
	for name, whole := range overlaps {
		for _, indexed := range []bool{true, false} {
			for keep := range int64(15) {
				p, _ := inMem(t)
				p.put(t, whole.Clone())
				l := p.open(t, &evlog.Options{NoPreallocate: true, NoRetention: true})
				quiet(t, p)
				if !indexed {
					removeIndexes(t, p)
				}
				retain(t, p, l, evlog.RetainOptions{MaxRecords: keep + 1})
				require.GreaterOrEqual(t, int64(len(p.all(t))), min(keep+1, 13), "%s, indexed %v", name, indexed)
				require.NoError(t, l.Close())
			}
		}
	}
}

// bases are where the segments of a report begin.
func bases(segments []evlog.DueSegment) []uint64 {
	var all []uint64
	for _, s := range segments {
		all = append(all, s.Base)
	}
	return all
}

// size is what retention counts of the image.
func size(im evtest.Image) (n int64) {
	for name, b := range im {
		if !strings.HasSuffix(name, ".tmp") {
			n += int64(len(b))
		}
	}
	return n
}

// quiet waits until all indexes are written, with their filters: files do not
// change any more.
func quiet(t testing.TB, p place) {
	t.Helper()
	soon(t, "indexes are written", func() bool {
		im := p.image(t)
		for name := range im {
			if strings.HasSuffix(name, ".tmp") {
				return false
			}
		}
		return hasFilters(im)
	})
}

// Each limit removes what it should and no more, says why, and does the same
// without any index and when only planned. (I7)
func TestRetain_Limits(t *testing.T) {
	for _, c := range []struct {
		name string
		opts func(segBytes, total int64) evlog.RetainOptions
		want int // segments that go, of 6 closed ones
		why  evlog.RetainReason
	}{
		{"none", func(int64, int64) evlog.RetainOptions { return evlog.RetainOptions{} }, 0, ""},
		{"age", func(int64, int64) evlog.RetainOptions { return evlog.RetainOptions{MaxAge: 3 * time.Minute} }, 3, evlog.RetainAge},
		{"age, a moment before", func(int64, int64) evlog.RetainOptions {
			return evlog.RetainOptions{MaxAge: 3*time.Minute + time.Millisecond}
		}, 2, evlog.RetainAge},
		{"age of nothing", func(int64, int64) evlog.RetainOptions { return evlog.RetainOptions{MaxAge: time.Millisecond} }, 5, evlog.RetainAge},
		{"bytes, just enough", func(_, total int64) evlog.RetainOptions { return evlog.RetainOptions{MaxBytes: total} }, 0, ""},
		{"bytes, one too few", func(_, total int64) evlog.RetainOptions { return evlog.RetainOptions{MaxBytes: total - 1} }, 1, evlog.RetainBytes},
		{"bytes of two segments", func(seg, total int64) evlog.RetainOptions { return evlog.RetainOptions{MaxBytes: total - 2*seg} }, 2, evlog.RetainBytes},
		{"one byte", func(int64, int64) evlog.RetainOptions { return evlog.RetainOptions{MaxBytes: 1} }, 6, evlog.RetainBytes},
		{"records", func(int64, int64) evlog.RetainOptions { return evlog.RetainOptions{MaxRecords: 4} }, 2, evlog.RetainRecords},
		{"all records", func(int64, int64) evlog.RetainOptions { return evlog.RetainOptions{MaxRecords: 6} }, 0, ""},
		{"one record", func(int64, int64) evlog.RetainOptions { return evlog.RetainOptions{MaxRecords: 1} }, 5, evlog.RetainRecords},
		{"below", func(int64, int64) evlog.RetainOptions { return evlog.RetainOptions{Below: 4} }, 4, evlog.RetainBelow},
		{"below everything", func(int64, int64) evlog.RetainOptions { return evlog.RetainOptions{Below: 6} }, 6, evlog.RetainBelow},
		{"below the end and more", func(int64, int64) evlog.RetainOptions { return evlog.RetainOptions{Below: 100} }, 6, evlog.RetainBelow},
		{"the strictest counts", func(int64, int64) evlog.RetainOptions {
			return evlog.RetainOptions{MaxAge: time.Hour, MaxRecords: 2, Below: 1}
		}, 4, evlog.RetainRecords},
	} {
		for _, indexed := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/indexed=%v", c.name, indexed), func(t *testing.T) {
				p, _ := inMem(t)
				l, clock := agedLog(t, p, evlog.Options{}, steady(6)...)
				quiet(t, p)
				im := p.image(t)
				seg := int64(len(im[evtest.SegmentFile(0)]))
				if indexed {
					seg += int64(len(im[evtest.IndexFile(0)]))
				} else {
					removeIndexes(t, p)
				}
				before := p.image(t)
				opts := c.opts(seg, size(before))
				r := p.reader(t, &evlog.ReaderOptions{Clock: clock})
				plan, err := r.PlanRetain(p.ctx, &opts)
				require.NoError(t, err)
				sameImage(t, before, p.image(t))

				rep, err := l.Retain(p.ctx, &opts)
				require.NoError(t, err)
				require.Equal(t, plan, rep, "what was planned is what was done")
				require.Len(t, rep.Removed, c.want)
				for i, s := range rep.Removed {
					require.EqualValues(t, i, s.Base)
					require.EqualValues(t, i+1, s.End)
				}
				if c.want > 0 {
					require.Equal(t, c.why, rep.Removed[c.want-1].Reason)
				}
				require.EqualValues(t, c.want, rep.First)
				require.Empty(t, rep.Held)
				after := p.image(t)
				require.Equal(t, rep.Bytes, size(after))
				require.EqualValues(t, c.want, after.Bases()[0])
				require.EqualValues(t, c.want, l.Stats().Removed)
				eachIndex(after, func(name string) {
					require.GreaterOrEqual(t, name, evtest.IndexFile(uint64(c.want)), "an index without its segment")
				})
				first, next, err := l.Reader().Bounds(p.ctx)
				require.NoError(t, err)
				require.EqualValues(t, c.want, first)
				require.EqualValues(t, 6, next)

				again, err := l.Retain(p.ctx, &opts)
				require.NoError(t, err)
				require.Empty(t, again.Removed, "done is done")
				require.EqualValues(t, 6, appendEach(t, p.ctx, l, rec("k", "v"))[0].Offset)
				require.NoError(t, l.Close())
				p.verified(t)
			})
		}
	}
}

func removeIndexes(t testing.TB, p place) {
	t.Helper()
	d, err := p.fsys.OpenDir(p.dir)
	require.NoError(t, err)
	defer d.Close()
	eachIndex(p.image(t), func(name string) { require.NoError(t, d.Remove(name)) })
}

// What a segment's age counts from. A time that cannot be true deletes nothing,
// one in the future pins nothing.
func TestRetain_PlausibleTimes(t *testing.T) {
	day := 24 * time.Hour
	for _, c := range []struct {
		name    string
		time    time.Time
		goes    time.Duration // after noon, when the segment was closed
		limit   time.Duration
		unknown bool
	}{
		{name: "of the moment", time: noon, limit: day, goes: day},
		{name: "older than its closing", time: noon.Add(-20 * time.Hour), limit: day, goes: 4 * time.Hour},
		{name: "long before", time: noon.Add(-1000 * day), limit: day, goes: 0},
		{name: "2001", time: time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC), limit: day, goes: 0},
		{name: "before 2001", time: time.Date(2000, 12, 31, 23, 59, 59, 0, time.UTC), limit: day, goes: day},
		{name: "1970", time: time.UnixMilli(0), limit: day, goes: day},
		{name: "below 1970", time: time.UnixMilli(-1), limit: day, goes: day},
		{name: "lowest", time: time.UnixMilli(-1 << 63), limit: day, goes: day},
		{name: "highest", time: time.UnixMilli(1<<63 - 1), limit: day, goes: day},
		{name: "in the future", time: noon.Add(400 * day), limit: day, goes: day},
		{name: "in a moment", time: noon.Add(time.Hour), limit: day, goes: day},
	} {
		for _, indexed := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/indexed=%v", c.name, indexed), func(t *testing.T) {
				p, _ := inMem(t)
				l, clock := agedLog(t, p, evlog.Options{}, aged{c.time, 0})
				quiet(t, p)
				if !indexed {
					removeIndexes(t, p)
				}
				retain := func() []evlog.DueSegment {
					rep, err := l.Retain(p.ctx, &evlog.RetainOptions{MaxAge: c.limit})
					require.NoError(t, err)
					return rep.Removed
				}
				if c.goes > 0 {
					// Hour by hour: the two clocks agree.
					clock.Advance(c.goes - time.Millisecond)
					require.Empty(t, retain(), "too early")
					clock.Advance(time.Millisecond)
				}
				require.Len(t, retain(), 1)
			})
		}
	}
}

// Damage in a closed segment is no reason to keep others, nor to remove them
// early.
func TestRetain_DamagedSegment(t *testing.T) {
	p, _ := inMem(t)
	l, clock := agedLog(t, p, evlog.Options{}, steady(4)...)
	quiet(t, p)
	removeIndexes(t, p)
	im := p.image(t)
	im[evtest.SegmentFile(1)][9] ^= 1
	d, err := p.fsys.OpenDir(p.dir)
	require.NoError(t, err)
	defer d.Close()
	f, err := d.OpenFile(evtest.SegmentFile(1), os.O_RDWR, 0)
	require.NoError(t, err)
	_, err = f.WriteAt(im[evtest.SegmentFile(1)], 0)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.NoError(t, d.Chtimes(evtest.SegmentFile(1), noon.Add(time.Minute)))
	rep, err := l.Retain(p.ctx, &evlog.RetainOptions{MaxRecords: 3})
	require.NoError(t, err)
	require.Empty(t, rep.Removed, "what is behind the damage counts for nothing")
	clock.Advance(time.Minute)
	rep, err = l.Retain(p.ctx, &evlog.RetainOptions{MaxAge: 2 * time.Minute})
	require.NoError(t, err)
	require.Equal(t, []uint64{0, 1, 2}, bases(rep.Removed))
}

// What stands behind damage may be younger than what stands before it.
func TestRetain_DamageHidesTimes(t *testing.T) {
	p, _ := inMem(t)
	clock := evlogtest.NewClock(noon)
	l := p.open(t, &evlog.Options{Clock: clock, NoPreallocate: true})
	appendEach(t, p.ctx, l, evlog.Record{Time: noon.Add(-10 * time.Hour), Value: []byte("old")}, evlog.Record{Time: noon, Value: []byte("new")})
	require.NoError(t, l.Roll(p.ctx))
	quiet(t, p)
	removeIndexes(t, p)
	b := p.image(t)[evtest.SegmentFile(0)]
	b[len(b)-1] ^= 1
	d, err := p.fsys.OpenDir(p.dir)
	require.NoError(t, err)
	defer d.Close()
	f, err := d.OpenFile(evtest.SegmentFile(0), os.O_RDWR, 0)
	require.NoError(t, err)
	_, err = f.WriteAt(b, 0)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.NoError(t, d.Chtimes(evtest.SegmentFile(0), noon))
	for _, c := range []struct {
		after time.Duration
		want  int
	}{{59 * time.Minute, 0}, {time.Minute, 1}} {
		clock.Advance(c.after)
		rep, err := l.Retain(p.ctx, &evlog.RetainOptions{MaxAge: time.Hour})
		require.NoError(t, err)
		require.Len(t, rep.Removed, c.want)
	}
}

// A compaction that merges segments in the middle of a run changes what is due.
func TestRetain_BesideCompaction(t *testing.T) {
	p, _ := inMem(t)
	l, _ := agedLog(t, p, evlog.Options{}, steady(8)...)
	appendEach(t, p.ctx, l, rec("other", "key"))
	require.NoError(t, l.Roll(p.ctx))
	quiet(t, p)
	merged := false
	rep, err := l.Retain(p.ctx, &evlog.RetainOptions{Below: 4, Progress: func(done, _ int) {
		if done != 1 || merged {
			return
		}
		merged = true
		_, err := l.Compact(p.ctx, fast())
		require.NoError(t, err)
	}})
	require.NoError(t, err)
	require.True(t, merged)
	require.Equal(t, []uint64{0}, bases(rep.Removed), "the others are one segment with what is not due: %v", p.image(t).Bases())
	recs := p.all(t)
	require.Equal(t, uint64(7), recs[0].Offset, "the newest of its key")
	require.Len(t, recs, 2)
	require.NoError(t, l.Close())
	p.verified(t)
}

// Unfinished writes come and go, and other people's files are theirs: neither is
// a reason to remove records. What recovery kept aside is.
func TestRetain_FilesThatCount(t *testing.T) {
	p, _ := inMem(t)
	l, _ := agedLog(t, p, evlog.Options{}, steady(4)...)
	quiet(t, p)
	limit := size(p.image(t))
	p.put(t, evtest.Image{"00000000000000000001.log.tmp": make([]byte, 5000), "notes.txt": make([]byte, 5000)})
	rep, err := l.Retain(p.ctx, &evlog.RetainOptions{MaxBytes: limit})
	require.NoError(t, err)
	require.Empty(t, rep.Removed)
	p.put(t, evtest.Image{"00000000000000000000.12.0.torn": make([]byte, 1)})
	rep, err = l.Retain(p.ctx, &evlog.RetainOptions{MaxBytes: limit})
	require.NoError(t, err)
	require.Equal(t, []uint64{0}, bases(rep.Removed))
}

// By hand, a quiet active segment that is old enough is closed and goes too.
func TestRetain_RollsWhatIsOld(t *testing.T) {
	p, m := inMem(t)
	l, clock := agedLog(t, p, evlog.Options{}, steady(2)...)
	appendEach(t, p.ctx, l, evlog.Record{Value: []byte("now")})
	clock.Advance(time.Hour)
	r := p.reader(t, &evlog.ReaderOptions{Clock: clock})
	plan, err := r.PlanRetain(p.ctx, &evlog.RetainOptions{MaxAge: time.Hour})
	require.NoError(t, err)
	require.True(t, plan.Rolls)
	require.Equal(t, []uint64{0, 1, 2}, bases(plan.Removed))
	require.EqualValues(t, 3, plan.First)
	p.lets(t, r)

	m.SetCapacity(m.Used()) // no room for a new segment, and none is needed for the closed ones
	rep := retain(t, p, l, evlog.RetainOptions{MaxAge: time.Hour})
	require.True(t, rep.Rolls)
	require.Equal(t, []uint64{0, 1, 2}, bases(rep.Removed))
	require.EqualValues(t, 3, rep.First)
	m.SetCapacity(-1)

	appendEach(t, p.ctx, l, evlog.Record{Value: []byte("new")})
	rep = retain(t, p, l, evlog.RetainOptions{MaxAge: time.Hour})
	require.False(t, rep.Rolls)
	require.Empty(t, rep.Removed)
	rep = retain(t, p, l, evlog.RetainOptions{Below: 4})
	require.Equal(t, []uint64{3}, bases(rep.Removed), "everything")
	require.NoError(t, l.Close())
	l = p.open(t, nil)
	require.EqualValues(t, 4, l.Stats().NextOffset, "an empty log goes on counting")
	p.verified(t)
}

// An active segment that is due is held as long as a closed one, and no longer.
func TestRetain_HeldActiveSegment(t *testing.T) {
	for _, c := range []struct {
		name  string
		opts  evlog.Options
		limit evlog.RetainOptions
		goes  bool
	}{
		{"within both", evlog.Options{HoldAge: 3 * time.Hour, HoldBytes: 1 << 20}, evlog.RetainOptions{MaxAge: time.Hour}, false},
		{"older than HoldAge", evlog.Options{HoldAge: 2 * time.Hour}, evlog.RetainOptions{MaxAge: time.Hour}, true},
		{"older than HoldAge, by hand", evlog.Options{HoldAge: 2 * time.Hour}, evlog.RetainOptions{Below: 100}, true},
		{"more than HoldBytes", evlog.Options{HoldBytes: 100}, evlog.RetainOptions{Below: 100}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, _ := inMem(t)
			opts := c.opts
			opts.HoldFor, opts.NoRetention = []string{"a"}, true
			l, clock := agedLog(t, p, opts)
			appendEach(t, p.ctx, l, evlog.Record{Value: []byte("active")})
			consumers(t, p, l.ID(), map[string]uint64{"a": 0})
			clock.Advance(2 * time.Hour)
			r := p.reader(t, &evlog.ReaderOptions{Clock: clock})
			plan, err := r.PlanRetain(p.ctx, &c.limit)
			require.NoError(t, err)
			require.Equal(t, c.goes, plan.Rolls)
			p.lets(t, r)
			rep := retain(t, p, l, c.limit)
			require.Equal(t, c.goes, rep.Rolls)
			if !c.goes {
				require.Equal(t, []uint64{0}, bases(rep.Held))
				return
			}
			require.Equal(t, []uint64{0}, bases(rep.Removed))
			require.Equal(t, []string{"a"}, rep.Removed[0].Overruled)
			require.Equal(t, plan.Removed[0].Overruled, rep.Removed[0].Overruled)
			require.Empty(t, p.all(t))
		})
	}
}

// On a full disk nothing but retention makes room, and appending goes on.
func TestRetain_FullDisk(t *testing.T) {
	p, m := inMem(t)
	l, _ := agedLog(t, p, evlog.Options{}, steady(5)...)
	quiet(t, p)
	m.SetCapacity(m.Used())
	_, err := l.Append(p.ctx, evlog.Record{Value: make([]byte, 100)})
	require.ErrorIs(t, err, syscall.ENOSPC)
	rep, err := l.Retain(p.ctx, &evlog.RetainOptions{MaxRecords: 2})
	require.NoError(t, err)
	require.Equal(t, []uint64{0, 1, 2}, bases(rep.Removed))
	off, err := l.Append(p.ctx, evlog.Record{Value: make([]byte, 100)})
	require.NoError(t, err)
	require.EqualValues(t, 6, off, "the offset of the one that failed is a hole")
	require.NoError(t, l.Close())
	p.verified(t)
}

// An unlink that fails is no poison, and keeps the order; a failed sync of the
// directory is. (I5)
func TestRetain_Failures(t *testing.T) {
	m := vfs.NewMem()
	var hook atomic.Pointer[vfs.Hook]
	p := onFS(t, vfs.Inject(m, func(op vfs.Op) error {
		if h := hook.Load(); h != nil {
			return (*h)(op)
		}
		return nil
	}))
	l, _ := agedLog(t, p, evlog.Options{}, steady(5)...)
	quiet(t, p)
	hook.Store(new(vfs.Hook(func(op vfs.Op) error {
		if op.Kind == vfs.OpRemove && op.Name == evtest.SegmentFile(1) {
			return syscall.EACCES
		}
		return nil
	})))
	rep, err := l.Retain(p.ctx, &evlog.RetainOptions{Below: 4})
	require.ErrorIs(t, err, syscall.EACCES)
	require.Equal(t, []uint64{0}, bases(rep.Removed))
	require.EqualValues(t, 1, rep.First)
	require.Equal(t, size(p.image(t)), rep.Bytes)
	require.Equal(t, []uint64{1, 2, 3, 4, 5}, p.image(t).Bases())
	appendEach(t, p.ctx, l, rec("k", "not poisoned"))

	hook.Store(nil)
	m.FailSync(vfs.OpDirSync, "", 1, syscall.ENOSPC)
	rep, err = l.Retain(p.ctx, &evlog.RetainOptions{Below: 4})
	require.ErrorIs(t, err, evlog.ErrPoisoned)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.Empty(t, rep.Removed)
	_, err = l.Append(p.ctx, rec("k", "v"))
	require.ErrorIs(t, err, evlog.ErrPoisoned)
	_, err = l.Retain(p.ctx, &evlog.RetainOptions{Below: 4})
	require.ErrorIs(t, err, evlog.ErrPoisoned)
	require.Len(t, p.image(t).Bases(), 4, "nothing more was removed")
}

// A sync of the directory that fails in retention takes the name of a segment
// along that a roll has just made; the roll's own sync, which has nothing left to
// write, must not succeed before the failure is known. (I1, I5)
func TestRetain_FailedSyncBesideARoll(t *testing.T) {
	m := vfs.NewMem()
	made, failing, rolled := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	var armed atomic.Bool
	p := onFS(t, vfs.Inject(m, func(op vfs.Op) error {
		if armed.Load() && op.Kind == vfs.OpSync && op.Name == evtest.SegmentFile(4) {
			close(made) // the new segment's name is there and not yet durable
			<-failing
		}
		return nil
	}).After(func(op vfs.Op, err error) {
		if op.Kind == vfs.OpDirSync && errors.Is(err, errDying) {
			close(failing)
			// Nobody knows yet. A roll that does not wait has time to end.
			select {
			case err := <-rolled:
				rolled <- err
			case <-time.After(100 * time.Millisecond):
			}
		}
	}))
	l, _ := agedLog(t, p, evlog.Options{}, steady(3)...)
	quiet(t, p)
	acked := appendEach(t, p.ctx, l, rec("k", "before"))
	armed.Store(true)
	go func() {
		err := l.Roll(p.ctx)
		if err == nil {
			_, err = l.Append(p.ctx, rec("k", "must not be acknowledged"))
		}
		rolled <- err
	}()
	inTime(t, "the roll has made a name", made)
	m.FailSync(vfs.OpDirSync, "", 1, errDying)
	_, err := l.Retain(p.ctx, &evlog.RetainOptions{Below: 1})
	require.ErrorIs(t, err, errDying)
	require.ErrorIs(t, inTime(t, "the roll", rolled), errDying)
	_ = l.Close()
	q := onFS(t, m.SyncedImage())
	q.open(t, nil)
	recs := q.all(t)
	require.True(t, acked[0].Same(recs[len(recs)-1]))
}

// An index that was left by a crash behind its segment is removed by the next
// opening.
func TestRetain_SweepsIndexes(t *testing.T) {
	p, _ := inMem(t)
	l, _ := agedLog(t, p, evlog.Options{}, steady(3)...)
	quiet(t, p)
	im := p.image(t)
	_, err := l.Retain(p.ctx, &evlog.RetainOptions{Below: 1})
	require.NoError(t, err)
	require.NoError(t, l.Close())
	left := evtest.Image{evtest.IndexFile(0): im[evtest.IndexFile(0)]}
	p.put(t, left)
	p.verified(t)
	l = p.open(t, nil)
	soon(t, "it is gone", func() bool { return len(p.image(t)[evtest.IndexFile(0)]) == 0 })
	require.NoError(t, l.Close())
	p.verified(t)
}

func TestRetain_ClosedLogAndContext(t *testing.T) {
	p, _ := inMem(t)
	l, _ := agedLog(t, p, evlog.Options{}, steady(3)...)
	p.settled(t)
	ctx, cancel := context.WithCancel(p.ctx)
	var calls [][2]int
	rep, err := l.Retain(ctx, &evlog.RetainOptions{Below: 3, Progress: func(done, total int) {
		calls = append(calls, [2]int{done, total})
		if done == 2 {
			cancel()
		}
	}})
	require.ErrorIs(t, err, ctx.Err())
	require.Equal(t, []uint64{0, 1}, bases(rep.Removed))
	require.EqualValues(t, 2, rep.First)
	require.Equal(t, [][2]int{{1, 3}, {2, 3}}, calls)
	_, err = l.Retain(p.ctx, &evlog.RetainOptions{MaxAge: time.Nanosecond})
	require.ErrorIs(t, err, evlog.ErrBadOptions)
	require.NoError(t, l.Close())
	_, err = l.Retain(p.ctx, &evlog.RetainOptions{Below: 3})
	require.ErrorIs(t, err, evlog.ErrClosed)
}

// A segment counts as closed only when the roll's last step has returned. (I1)
func TestRetain_NotBeforeTheRollIsDone(t *testing.T) {
	m := vfs.NewMem()
	var hook atomic.Pointer[vfs.Hook]
	p := onFS(t, vfs.Inject(m, func(op vfs.Op) error {
		if h := hook.Load(); h != nil {
			return (*h)(op)
		}
		return nil
	}))
	l, _ := agedLog(t, p, evlog.Options{}, steady(2)...)
	quiet(t, p)
	acked := appendEach(t, p.ctx, l, rec("k", "in the segment that is being closed"))
	reached, release := make(chan struct{}), make(chan struct{})
	goOn := sync.OnceFunc(func() { close(release) })
	defer goOn()
	hook.Store(new(vfs.Hook(func(op vfs.Op) error {
		if op.Kind == vfs.OpSyncData && op.Name == "DURABLE" {
			close(reached)
			<-release
		}
		return nil
	})))
	rolled := make(chan error, 1)
	go func() { rolled <- l.Roll(p.ctx) }()
	inTime(t, "the roll is at its last step", reached)
	retained := make(chan *evlog.RetainReport, 1)
	go func() {
		rep, err := l.Retain(p.ctx, &evlog.RetainOptions{MaxBytes: 1})
		assert.NoError(t, err)
		retained <- rep
	}()
	soon(t, "the closed segments go", func() bool { return l.Stats().Removed == 2 })
	require.Equal(t, []uint64{2, 3}, p.image(t).Bases())
	lost := onFS(t, m.SyncedImage())
	lost.open(t, nil)
	sameRecs(t, acked, lost.all(t))
	goOn()
	require.NoError(t, inTime(t, "the roll", rolled))
	require.Equal(t, []uint64{0, 1, 2}, bases(inTime(t, "Retain, which waits for the roll", retained).Removed))
}

// A listing that misses a name must not leave that segment behind in the middle.
func TestRetain_OneListingIsNoEvidence(t *testing.T) {
	whole, want := logWith(t, &evlog.Options{SegmentBytes: 230, IndexBytes: 50}, 30)
	evtest.Seeds(t, 1000, func(t *testing.T, seed uint64) {
		m := vfs.NewMem()
		onFS(t, m).put(t, whole)
		rng := evtest.Rand(seed)
		f := &forgetful{FS: m, pick: rng.IntN, whole: true}
		p := onFS(t, f)
		l, err := evlog.Open(p.ctx, p.dir, nil)
		require.NoError(t, err)
		f.mu.Lock()
		f.whole, f.calls = false, rng.IntN(2)
		f.mu.Unlock()
		_, err = l.Retain(p.ctx, &evlog.RetainOptions{Below: rng.Uint64N(31)})
		require.NoError(t, err)
		require.NoError(t, l.Close())
		q := onFS(t, m)
		recs := q.all(t)
		if len(recs) > 0 {
			sameRecs(t, want[recs[0].Offset:], recs, "seed %d", seed)
		}
		q.verified(t)
	})
}
