package evlog_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/evlog/evlogtest"
	"github.com/evlog-go/evlog/internal/evtest"
)

// A segment that was closed at a time that cannot be true is kept by age as long
// as nothing that came after says more, and goes by other limits.
func TestRetain_UnknownAge(t *testing.T) {
	p, m := inMem(t)
	l, clock := agedLog(t, p, evlog.Options{}, aged{time.UnixMilli(0), 0}, aged{time.UnixMilli(0), 0})
	quiet(t, p)
	removeIndexes(t, p)
	d, err := m.OpenDir(p.dir)
	require.NoError(t, err)
	defer d.Close()
	for _, mtime := range []time.Time{time.UnixMilli(5000), noon.Add(365 * 24 * time.Hour)} {
		require.NoError(t, d.Chtimes(evtest.SegmentFile(0), mtime))
		require.NoError(t, d.Chtimes(evtest.SegmentFile(1), mtime))
		clock.Advance(30 * 24 * time.Hour)
		rep, err := l.Retain(p.ctx, &evlog.RetainOptions{MaxAge: time.Hour})
		require.NoError(t, err)
		require.Empty(t, rep.Removed, "it cannot be told, and what is behind it waits")
	}
	rep, err := l.Retain(p.ctx, &evlog.RetainOptions{MaxRecords: 1})
	require.NoError(t, err)
	require.Equal(t, []uint64{0}, bases(rep.Removed))
}

// What was written while the clock was wrong by decades goes with what came
// after: not before a segment that was closed later is old enough by its closing,
// whatever times its records were given.
func TestRetain_AgeByWhatCameAfter(t *testing.T) {
	for _, c := range []struct {
		name    string
		wrong   time.Time
		indexed bool
		touched time.Duration // later mtime of what came after
		opts    evlog.Options
		limit   evlog.RetainOptions
	}{
		{name: "1970", wrong: time.UnixMilli(1000), indexed: true, limit: evlog.RetainOptions{MaxAge: time.Hour}},
		{name: "1970, indexes lost", wrong: time.UnixMilli(1000), limit: evlog.RetainOptions{MaxAge: time.Hour}},
		{name: "indexes and times lost", wrong: time.UnixMilli(1000), touched: 20 * time.Minute, limit: evlog.RetainOptions{MaxAge: time.Hour}},
		{name: "2090", wrong: noon.AddDate(64, 0, 0), indexed: true, limit: evlog.RetainOptions{MaxAge: time.Hour}},
		{
			name: "held for nobody longer than that", wrong: time.UnixMilli(1000), indexed: true, limit: evlog.RetainOptions{MaxRecords: 1},
			opts: evlog.Options{HoldFor: []string{"a"}, HoldAge: time.Hour},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, m := inMem(t)
			clock := evlogtest.NewClock(c.wrong)
			opts := c.opts
			opts.Clock, opts.NoPreallocate, opts.NoRetention = clock, true, true
			l := p.open(t, &opts)
			segment := func(at time.Time) {
				appendEach(t, p.ctx, l, evlog.Record{Time: at, Value: []byte("v")})
				require.NoError(t, l.Roll(p.ctx))
			}
			segment(time.Time{})
			segment(time.Time{})
			require.NoError(t, l.Close())
			clock.SetWall(noon) // nobody sees it jump
			l = p.open(t, &opts)
			segment(noon.Add(-1000 * time.Hour)) // old by what its caller says, and closed now
			clock.Advance(10 * time.Minute)
			segment(time.Time{})
			quiet(t, p)
			if !c.indexed {
				removeIndexes(t, p)
			}
			d, err := m.OpenDir(p.dir)
			require.NoError(t, err)
			defer d.Close()
			if c.touched > 0 {
				require.NoError(t, d.Chtimes(evtest.SegmentFile(2), noon.Add(c.touched)))
			}
			clock.Advance(noon.Add(time.Hour + c.touched - time.Millisecond).Sub(clock.Now()))
			rep, err := l.Retain(p.ctx, &c.limit)
			require.NoError(t, err)
			require.Empty(t, rep.Removed, "too early")
			clock.Advance(time.Millisecond)
			plan, err := p.reader(t, &evlog.ReaderOptions{Clock: clock}).PlanRetain(p.ctx, &c.limit)
			require.NoError(t, err)
			rep, err = l.Retain(p.ctx, &c.limit)
			require.NoError(t, err)
			require.Equal(t, plan, rep)
			require.Equal(t, []uint64{0, 1, 2}, bases(rep.Removed[:min(3, len(rep.Removed))]))
		})
	}
}

// The clock is right, or wrong so that it cannot be true; times of records are
// anything; indexes are there or not. What goes was closed for as long as MaxAge.
func TestRetain_NeverTooYoung(t *testing.T) {
	evtest.Seeds(t, 1000, func(t *testing.T, seed uint64) {
		rng := evtest.Rand(seed)
		p, _ := inMem(t)
		clock := evlogtest.NewClock(noon)
		right := func() time.Time { return noon.Add(clock.Elapsed()) }
		opts := evlog.Options{Clock: clock, NoPreallocate: true, NoRetention: true}
		l := p.open(t, &opts)
		var closed []time.Duration // when each segment was, by the clock that does not jump
		gone := 0
		for range 40 {
			clock.Advance(time.Duration(rng.Int64N(int64(2 * time.Hour))))
			switch rng.IntN(6) {
			case 0:
				clock.SetWall(time.UnixMilli(rng.Int64N(900_000_000_000)))
			case 1:
				clock.SetWall(right().Add(time.Duration(rng.Int64N(int64(1e6 * time.Hour)))))
			case 2:
				require.NoError(t, l.Close())
				l = p.open(t, &opts)
			case 3, 4:
				clock.SetWall(right())
			}
			old := noon.AddDate(-1, 0, 0)
			at := []time.Time{{}, old, noon.AddDate(50, 0, 0), time.UnixMilli(5)}[rng.IntN(4)]
			appendEach(t, p.ctx, l, evlog.Record{Time: at, Value: []byte("v")})
			require.NoError(t, l.Roll(p.ctx))
			if at.Equal(old) {
				closed = append(closed, -1<<62) // its caller says so
			} else {
				closed = append(closed, clock.Elapsed())
			}
			if rng.IntN(3) == 0 {
				removeIndexes(t, p)
			}
			clock.SetWall(right())
			rep, err := p.reader(t, &evlog.ReaderOptions{Clock: clock}).PlanRetain(p.ctx, &evlog.RetainOptions{MaxAge: 5 * time.Hour})
			require.NoError(t, err)
			for _, s := range rep.Removed {
				require.GreaterOrEqual(t, clock.Elapsed()-closed[s.Base], 5*time.Hour, "seed %d: %v", seed, s)
			}
			gone = max(gone, len(rep.Removed))
		}
		require.Positive(t, gone, "seed %d: nothing ever goes", seed)
	})
}
