package evlog_test

import (
	"fmt"
	"slices"
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

// A segment of which compaction has left nothing has no age of its own: it goes with
// the next one that has records, be that the active one, and does not hold it up.
func TestRetain_EmptySegmentsHoldNothingUp(t *testing.T) {
	old, young := noon.Add(-1000*time.Hour), noon
	for _, c := range []struct {
		name   string
		times  []time.Time       // of the record in each segment; zero: there is none
		active time.Time         // of the one in the active segment
		closed map[int]time.Time // when some were; the others at noon
		after  time.Duration     // noon
		want   []uint64
	}{
		{name: "old records above", times: []time.Time{{}, old, young}, want: []uint64{0, 1}},
		{name: "two of them", times: []time.Time{{}, {}, old, young}, want: []uint64{0, 1, 2}},
		{name: "between", times: []time.Time{old, {}, old, {}, young}, want: []uint64{0, 1, 2}},
		{name: "young records above", times: []time.Time{{}, young}, after: time.Hour - time.Millisecond},
		{name: "by its own closing", times: []time.Time{{}, noon.Add(time.Hour)}, after: time.Hour, want: []uint64{0, 1}},
		{name: "closed in 1970", times: []time.Time{{}, old, young}, closed: map[int]time.Time{0: time.UnixMilli(5)}, want: []uint64{0, 1}},
		{name: "closed in 2090", times: []time.Time{{}, old, young}, closed: map[int]time.Time{0: noon.AddDate(64, 0, 0)}, want: []uint64{0, 1}},
		{name: "closed in 1970, all empty", times: []time.Time{{}, {}}, closed: map[int]time.Time{0: time.UnixMilli(5)}, after: time.Hour, want: []uint64{0, 1}},
		{
			name: "closed in 1970, as what has records", times: []time.Time{{}, {}, time.UnixMilli(5)}, after: time.Hour,
			closed: map[int]time.Time{0: time.UnixMilli(5), 2: time.UnixMilli(5)}, want: []uint64{0, 1},
		},
		{name: "old records in the active one", times: []time.Time{{}, {}}, active: old, want: []uint64{0, 1, 2}},
		{name: "young records in the active one", times: []time.Time{{}, {}}, active: young, after: time.Hour - time.Millisecond},
	} {
		for _, indexed := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, indexed %v", c.name, indexed), func(t *testing.T) {
				p, m := inMem(t)
				b := build()
				for i, at := range append(slices.Clone(c.times), c.active) {
					name := evtest.SegmentFile(uint64(i))
					if b.im[name] = []byte{}; !at.IsZero() {
						b.im[name] = evtest.EncodeRecs(evtest.Rec{Offset: uint64(i), TimeMS: at.UnixMilli(), Value: []byte("v")})
					}
				}
				last := uint64(len(c.times))
				next := last
				if !c.active.IsZero() {
					next++
				}
				p.put(t, b.durable(next, last).im)
				d, err := m.OpenDir(p.dir)
				require.NoError(t, err)
				defer d.Close()
				for i := range c.times {
					closed, ok := c.closed[i]
					if !ok {
						closed = noon
					}
					require.NoError(t, d.Chtimes(evtest.SegmentFile(uint64(i)), closed))
				}
				clock := evlogtest.NewClock(noon.Add(c.after))
				l := p.open(t, &evlog.Options{Clock: clock, NoPreallocate: true, NoRetention: true})
				quiet(t, p)
				if !indexed {
					removeIndexes(t, p)
				}
				limit := evlog.RetainOptions{MaxAge: time.Hour}
				r := p.reader(t, &evlog.ReaderOptions{Clock: clock})
				plan, err := r.PlanRetain(p.ctx, &limit)
				require.NoError(t, err)
				require.Equal(t, c.want, bases(plan.Removed))
				require.NoError(t, r.Close()) // by the rules of Windows it would be in the way
				require.Equal(t, c.want, bases(retain(t, p, l, limit).Removed))
			})
		}
	}
}
