package evlog_test

import (
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/evlog/evlogtest"
	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/internal/vfs"
)

// counted is what was done with the files of closed segments.
type counted struct {
	mu    sync.Mutex
	read  int64 // bytes of segments
	looks int   // how often an index was opened
}

func (c *counted) hook(op vfs.Op) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case op.Kind == vfs.OpRead && strings.HasSuffix(op.Name, ".log"):
		c.read += op.Len
	case op.Kind == vfs.OpOpen && strings.HasSuffix(op.Name, ".idx"):
		c.looks++
	}
	return nil
}

// during returns what was done while f ran.
func (c *counted) during(f func()) (read int64, looks int) {
	c.mu.Lock()
	read, looks = c.read, c.looks
	c.mu.Unlock()
	f()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.read - read, c.looks - looks
}

// five are the bases of the segments that fiveSegments makes.
var five = []uint64{0, 3, 6, 9, 12}

// fiveSegments writes closed segments of a value that stays, one that the next
// segment supersedes, and a tombstone each.
func fiveSegments(t *testing.T, p place, l *evlog.Log) {
	t.Helper()
	for i := range five {
		appendEach(t, p.ctx, l, rec(fmt.Sprint("k", i), string(make([]byte, 15_000))), rec("a", "x"), tombstone(fmt.Sprint("d", i)))
		require.NoError(t, l.Roll(p.ctx))
	}
}

// pass lets time pass for what runs in the background.
func pass(clock *evlogtest.Clock, times int, step time.Duration) {
	for range times {
		clock.Advance(step)
		time.Sleep(time.Second) // of the bubble: for the bound on the rate
		synctest.Wait()
	}
}

// What is in the way of noting that segments are clean, or of the end of a grace,
// does not have the log read again and again; and what had to wait for it is done
// when it is gone.
func TestCompactor_DoesNotReadInVain(t *testing.T) {
	const grace = 100 * time.Minute
	file := func(i int) string { return evtest.SegmentFile(five[i]) }
	missing := func(t *testing.T, p place) {
		removeNames(t, p, file(1))
		removeNames(t, p, evtest.IndexFile(five[1]))
	}
	putBack := func(t *testing.T, p place, _ *evlogtest.Clock, before evtest.Image) {
		t.Helper()
		p.put(t, evtest.Image{file(1): before[file(1)]})
	}
	for _, c := range []struct {
		name    string
		start   time.Time
		cleaned bool // before it is in the way
		over    int  // segments whose grace ends nevertheless
		broken  func(t *testing.T, p place)
		mend    func(t *testing.T, p place, clock *evlogtest.Clock, before evtest.Image)
	}{
		{name: "nothing", start: noon, over: 5},
		{
			name: "the clock is not set", start: time.UnixMilli(5000),
			mend: func(_ *testing.T, _ place, clock *evlogtest.Clock, _ evtest.Image) { clock.SetWall(noon) },
		},
		{name: "a file is missing", start: noon, over: 1, broken: missing, mend: putBack},
		{
			name: "a file is damaged", start: noon, over: 1, mend: putBack,
			broken: func(t *testing.T, p place) { damage(t, p, file(1), 5000) },
		},
		{
			name: "a file is damaged at its beginning, where its index does not match it", start: noon, over: 1, mend: putBack,
			broken: func(t *testing.T, p place) { damage(t, p, file(1), 6) },
		},
		{name: "a file is missing below tombstones", start: noon, cleaned: true, over: 1, broken: missing, mend: putBack},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var n counted
				p := onFS(t, vfs.Inject(vfs.NewMem(), n.hook))
				clock := evlogtest.NewClock(c.start)
				opts := evlog.Options{
					Compact: evlog.On, NoCompaction: true, MinLag: time.Second, TombstoneGrace: grace,
					SegmentBytes: 20_000, NoPreallocate: true, Clock: clock,
				}
				l := p.open(t, &opts)
				fiveSegments(t, p, l)
				quiet(t, p)
				if c.cleaned {
					compact(t, p, l, fast())
				}
				require.NoError(t, l.Close())
				before := p.image(t)
				if c.broken != nil {
					c.broken(t, p)
				}

				opts.NoCompaction = false
				l = p.open(t, &opts)
				read, _ := n.during(func() { pass(clock, 120, time.Second) })
				if !c.cleaned {
					require.Greater(t, read, int64(3*15_000), "it is at work")
				}
				read, looks := n.during(func() { pass(clock, 600, time.Second) })
				require.Less(t, read, int64(15_000), "in ten minutes")
				require.LessOrEqual(t, looks, 15, "in ten minutes: two of all segments are many")
				read, looks = n.during(func() { pass(clock, 120, time.Minute) })
				require.Less(t, read, int64(15_000+c.over*2*16_000), "in two hours")
				require.LessOrEqual(t, looks, 60, "in two hours")
				if c.mend != nil {
					require.NotZero(t, tombstonesOf(t, p, l), "whose grace was not over")
					c.mend(t, p, clock, before)
					pass(clock, 61, time.Minute)
					for _, s := range closedOf(t, p, l) {
						require.Zero(t, s.DirtyBytes, "it is seen within an hour; segment %d", s.Base)
					}
					pass(clock, 105, time.Minute)
				}
				for _, s := range closedOf(t, p, l) {
					require.Zero(t, s.Tombstones, "segment %d", s.Base)
				}
				require.Len(t, p.all(t), 6, "five values and the newest of one key")
				p.verified(t)
				require.NoError(t, l.Close())
			})
		})
	}
}

func closedOf(t *testing.T, p place, l *evlog.Log) []evlog.SegmentInfo {
	t.Helper()
	all, err := l.Reader().Segments(p.ctx)
	require.NoError(t, err)
	return all[:len(all)-1]
}

func tombstonesOf(t *testing.T, p place, l *evlog.Log) (n uint64) {
	t.Helper()
	for _, s := range closedOf(t, p, l) {
		n += s.Tombstones
	}
	return n
}

// recordsOf counts the records of closed segments with bases from from to to.
func recordsOf(t *testing.T, p place, l *evlog.Log, from, to uint64) (n uint64) {
	t.Helper()
	for _, s := range closedOf(t, p, l) {
		if s.Base >= from && s.Base < to {
			n += s.Records
		}
	}
	return n
}

// New segments above a damaged one are compacted as ever; and by hand everything
// is tried again.
func TestCompactor_GoesOnAboveDamage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n counted
		p := onFS(t, vfs.Inject(vfs.NewMem(), n.hook))
		clock := evlogtest.NewClock(noon)
		opts := evlog.Options{Compact: evlog.On, MinLag: time.Second, TombstoneGrace: time.Hour, SegmentBytes: 20_000, NoPreallocate: true, Clock: clock}
		o := opts
		o.NoCompaction = true
		l := p.open(t, &o)
		fiveSegments(t, p, l)
		quiet(t, p)
		require.NoError(t, l.Close())
		damage(t, p, evtest.SegmentFile(3), 5000)
		l = p.open(t, &opts)
		pass(clock, 10, time.Second)
		require.EqualValues(t, 2+2+3, recordsOf(t, p, l, 6, 15), "of one key only the newest is left")
		fiveSegments(t, p, l)
		pass(clock, 120, time.Second)
		require.Zero(t, recordsOf(t, p, l, 6, 15), "all have newer ones")
		read, _ := n.during(func() {
			rep, err := l.Compact(p.ctx, &evlog.CompactOptions{BytesPerSecond: -1})
			require.NoError(t, err)
			require.Len(t, rep.Refused, 1)
		})
		require.Greater(t, read, int64(5*15_000))
		require.NoError(t, l.Close())
	})
}

// What an interrupted merge has left is cleared by the log itself, though nothing
// is dirty: until then no tombstone above goes.
func TestCompactor_ClearsAnOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var inUse atomic.Bool
		p := onFS(t, vfs.Inject(vfs.NewMem(), func(op vfs.Op) error {
			if inUse.Load() && op.Kind == vfs.OpRemove && op.Name == evtest.SegmentFile(1) {
				return fs.ErrPermission
			}
			return nil
		}))
		clock := evlogtest.NewClock(noon)
		l := p.open(t, &evlog.Options{Compact: evlog.On, TombstoneGrace: time.Hour, NoPreallocate: true, Clock: clock})
		for i := range 3 {
			appendEach(t, p.ctx, l, rec(fmt.Sprint("k", i), "v"))
			require.NoError(t, l.Roll(p.ctx))
		}
		quiet(t, p)
		inUse.Store(true)
		rep, err := l.Compact(p.ctx, fast())
		require.NoError(t, err)
		require.Len(t, rep.Refused, 1)
		require.Contains(t, p.image(t).Bases(), uint64(1))
		inUse.Store(false)
		pass(clock, 61, time.Minute)
		require.NotContains(t, p.image(t).Bases(), uint64(1))
		require.Len(t, p.all(t), 3)
		p.verified(t)
		require.NoError(t, l.Close())
	})
}
