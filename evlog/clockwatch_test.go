package evlog_test

import (
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/evlog/evlogtest"
	"github.com/evlog-go/evlog/internal/vfs"
)

// A clock that was behind makes what was just written look old. That it jumped is
// known to the next writer too, however the one before ended, and to dry runs.
func TestClock_JumpIsKnownAfterReopening(t *testing.T) {
	const day = 24 * time.Hour
	for _, c := range []struct {
		name string
		end  func(t *testing.T, p place, m *vfs.Mem, l *evlog.Log) place
	}{
		{"closed, and nobody had looked", func(t *testing.T, p place, _ *vfs.Mem, l *evlog.Log) place {
			require.NoError(t, l.Close())
			return p
		}},
		{"killed", func(t *testing.T, p place, m *vfs.Mem, l *evlog.Log) place {
			_, err := l.Retain(p.ctx, nil)
			require.NoError(t, err)
			return onFS(t, m.KillImage())
		}},
		{"power lost", func(t *testing.T, p place, m *vfs.Mem, l *evlog.Log) place {
			_, err := l.Compact(p.ctx, fast()) // it looks too
			require.NoError(t, err)
			return onFS(t, m.SyncedImage())
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, m := inMem(t)
			clock := evlogtest.NewClock(noon.Add(-10 * day)) // as it was when the machine was switched off
			opts := &evlog.Options{Clock: clock, NoRetention: true, MaxAge: 7 * day, NoPreallocate: true}
			l := p.open(t, opts)
			appendEach(t, p.ctx, l, evlog.Record{Value: []byte("a moment ago")})
			require.NoError(t, l.Roll(p.ctx))
			clock.SetWall(noon)
			p = c.end(t, p, m, l)
			for at := time.Duration(0); at < 7*day; at += 12 * time.Hour {
				l = p.open(t, opts)
				quiet(t, p) // the two are to see the same files
				plan, err := p.reader(t, &evlog.ReaderOptions{Clock: clock}).PlanRetain(p.ctx, nil)
				require.NoError(t, err)
				rep, err := l.Retain(p.ctx, nil)
				require.NoError(t, err)
				require.Equal(t, plan, rep)
				require.Empty(t, rep.Removed, "%v after the jump", at)
				require.Equal(t, 7*day-at, rep.ClockWait)
				require.NoError(t, l.Close())
				clock.Advance(12 * time.Hour)
			}
			l = p.open(t, opts)
			p.settled(t)
			rep, err := l.Retain(p.ctx, nil)
			require.NoError(t, err)
			require.Len(t, rep.Removed, 1)
			require.Zero(t, rep.ClockWait)
		})
	}
}

// A jump that went decades too far, and was taken back, is waited for once: not
// until that time comes.
func TestClock_JumpTooFar(t *testing.T) {
	p, _ := inMem(t)
	clock := evlogtest.NewClock(noon)
	opts := &evlog.Options{Clock: clock, NoRetention: true, MaxAge: 5 * time.Hour, NoPreallocate: true}
	l := p.open(t, opts)
	appendEach(t, p.ctx, l, evlog.Record{Value: []byte("v")})
	require.NoError(t, l.Roll(p.ctx))
	clock.SetWall(noon.AddDate(64, 0, 0))
	require.NoError(t, l.Close())
	clock.SetWall(noon)
	for at := range 6 { // a program that never runs for long
		l = p.open(t, opts)
		rep, err := l.Retain(p.ctx, nil)
		require.NoError(t, err)
		require.Equal(t, at == 5, len(rep.Removed) == 1, "after %d hours", at)
		require.NoError(t, l.Close())
		clock.Advance(time.Hour)
	}
}

// So it is with the grace of tombstones.
func TestClock_JumpAndGrace(t *testing.T) {
	p, _ := inMem(t)
	clock := evlogtest.NewClock(noon.Add(-100 * time.Hour))
	opts := &evlog.Options{Clock: clock, TombstoneGrace: 24 * time.Hour, NoPreallocate: true}
	l := p.open(t, opts)
	appendEach(t, p.ctx, l, tombstone("a"))
	require.NoError(t, l.Roll(p.ctx))
	compact(t, p, l, fast())
	clock.SetWall(noon)
	require.NoError(t, l.Close())
	dry := fast()
	dry.DryRun = true
	for at := range 25 {
		l = p.open(t, opts)
		plan, err := p.reader(t, &evlog.ReaderOptions{Clock: clock}).PlanCompact(p.ctx, fast())
		require.NoError(t, err)
		own := compact(t, p, l, dry)
		rep := compact(t, p, l, fast())
		require.EqualValues(t, at/24, rep.Tombstones, "after %d hours", at)
		require.Equal(t, rep.Tombstones, plan.Tombstones)
		require.Equal(t, rep.Tombstones, own.Tombstones)
		require.NoError(t, l.Close())
		clock.Advance(time.Hour)
	}
}

// Where it cannot be stored, ages wait all the same, other limits count, and the
// next look tries again. A failed sync of the directory poisons. (I5)
func TestClock_JumpCannotBeStored(t *testing.T) {
	p, m := inMem(t)
	l, clock := agedLog(t, p, evlog.Options{NoRetention: true, MaxAge: time.Hour}, steady(4)...)
	quiet(t, p)
	clock.SetWall(noon.Add(1000 * time.Hour))
	m.SetCapacity(m.Used())
	rep, err := l.Retain(p.ctx, &evlog.RetainOptions{MaxRecords: 3})
	require.NoError(t, err)
	require.Equal(t, []uint64{0}, bases(rep.Removed), "a full disk is when retention is needed")
	require.NotContains(t, string(p.image(t)["log.json"]), "clock_jumped_ms")
	m.SetCapacity(-1)
	clock.Advance(time.Minute)
	_, err = l.Retain(p.ctx, nil)
	require.NoError(t, err)
	require.Contains(t, string(p.image(t)["log.json"]), fmt.Sprintf(`"clock_jumped_ms":%d`, noon.Add(1000*time.Hour).UnixMilli()), "when it was noticed")

	clock.SetWall(noon.Add(2000 * time.Hour))
	m.FailSync(vfs.OpDirSync, "", 1, syscall.EIO)
	_, err = l.Retain(p.ctx, nil)
	require.ErrorIs(t, err, evlog.ErrPoisoned)
}

// sleeper is a clock of a machine that was asleep: Elapsed stood still.
type sleeper struct {
	*evlogtest.Clock
	slept time.Duration
}

func (c *sleeper) SinceBoot() time.Duration { return c.Elapsed() + c.slept }

// Waking up is no jump where the system has a clock that goes on in the sleep.
func TestClock_SleepIsNoJump(t *testing.T) {
	p, _ := inMem(t)
	clock := &sleeper{Clock: evlogtest.NewClock(noon)}
	l := p.open(t, &evlog.Options{Clock: clock, NoRetention: true, MaxAge: 24 * time.Hour, NoPreallocate: true})
	appendEach(t, p.ctx, l, evlog.Record{Value: []byte("v")})
	require.NoError(t, l.Roll(p.ctx))
	for range 2 {
		rep, err := l.Retain(p.ctx, nil)
		require.NoError(t, err)
		require.Empty(t, rep.Removed)
		clock.Advance(4 * time.Hour)
		clock.slept += 8 * time.Hour
		clock.SetWall(clock.Now().Add(8 * time.Hour))
	}
	rep, err := l.Retain(p.ctx, nil)
	require.NoError(t, err)
	require.Len(t, rep.Removed, 1)
}

// jumper is a clock that jumps ahead after it has been asked once more.
type jumper struct {
	*evlogtest.Clock
	left atomic.Int64 // calls before it jumps; negative: never
}

func (c *jumper) Now() time.Time {
	now := c.Clock.Now()
	if c.left.Add(-1) == 0 {
		c.SetWall(now.Add(1000 * time.Hour))
	}
	return now
}

// The clock jumps while retention looks at it: the time that ages are counted by
// has no jump in it that the look has not seen.
func TestRetain_ClockJumpsInTheMoment(t *testing.T) {
	for n := range int64(4) {
		p, _ := inMem(t)
		clock := &jumper{Clock: evlogtest.NewClock(noon)}
		l := p.open(t, &evlog.Options{Clock: clock, NoRetention: true, NoPreallocate: true})
		appendEach(t, p.ctx, l, evlog.Record{Time: noon, Value: []byte("just written")})
		require.NoError(t, l.Roll(p.ctx))
		quiet(t, p)
		clock.left.Store(1 + n)
		rep := retain(t, p, l, evlog.RetainOptions{MaxAge: time.Hour})
		require.Empty(t, rep.Removed, "after %d calls", 1+n)
		require.NoError(t, l.Close())
	}
}
