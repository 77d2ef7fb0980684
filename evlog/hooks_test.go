package evlog_test

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/evlog/evlogtest"
)

// apart runs f in a goroutine of its own, which f may end, and waits for that.
func apart(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	inTime(t, what, done)
}

// A test's FailNow in a hook ends the goroutine in the middle of what it did. The
// log is poisoned, and nobody waits for somebody who is gone.
func TestFailure_GoexitInOnEvent(t *testing.T) {
	for _, kind := range []evlog.EventKind{evlog.EventRolled, evlog.EventPoisoned} {
		t.Run(fmt.Sprint(kind), func(t *testing.T) {
			p, m := inMem(t)
			var armed atomic.Bool
			opts := tiny()
			opts.OnEvent = func(e evlog.Event) {
				if e.Kind == kind && armed.Load() {
					runtime.Goexit()
				}
				if kind == evlog.EventPoisoned && e.Kind == evlog.EventRolled && armed.Load() {
					panic("so that it is poisoned")
				}
			}
			l := p.open(t, opts)
			want := appendEach(t, p.ctx, l, numbered(0, 3)...)
			armed.Store(true)
			apart(t, "the appends", func() {
				for range 100 {
					if _, err := l.Append(p.ctx, rec("k", "until it rolls")); err != nil {
						return
					}
				}
			})
			apart(t, "an append after it", func() {
				_, err := l.Append(p.ctx, rec("k", "v"))
				require.ErrorIs(t, err, evlog.ErrPoisoned)
			})
			apart(t, "Close", func() { require.ErrorIs(t, l.Close(), evlog.ErrPoisoned) })
			q := onFS(t, m)
			got, err := readAll(q.ctx, q.open(t, nil).Reader())
			require.NoError(t, err)
			sameRecs(t, want, got[:3])
		})
	}
}

// The same while the log is opened: it is released, and can be opened again.
func TestOpen_GoexitInAHook(t *testing.T) {
	end := func(context.Context, evlog.HookState) error { runtime.Goexit(); return nil }
	for _, c := range []struct {
		name string
		opts *evlog.Options
	}{
		{"open hook", &evlog.Options{OpenHook: evlog.Hook{Name: "x", Run: end}}},
		{"event", &evlog.Options{OnEvent: func(evlog.Event) { runtime.Goexit() }}},
		{"event before anything runs", &evlog.Options{SegmentBytes: 999, OnEvent: func(e evlog.Event) {
			if e.Kind == evlog.EventConfigured {
				runtime.Goexit()
			}
		}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachPlace(t, func(t *testing.T, p place) {
				l := p.open(t, nil)
				want := appendEach(t, p.ctx, l, numbered(0, 3)...)
				require.NoError(t, l.Close())
				returned := false
				apart(t, "opening", func() {
					l, err := evlog.Open(p.ctx, p.dir, c.opts)
					returned = true
					if err == nil {
						_ = l.Close()
					}
				})
				require.False(t, returned, "the goroutine was ended")
				l = p.open(t, nil)
				sameRecs(t, want, p.all(t))
				require.NoError(t, l.Close())
			})
		})
	}
}

// panicking is a clock whose nth look at the wall clock panics.
type panicking struct {
	evlog.Clock
	left atomic.Int64
}

func (c *panicking) Now() time.Time {
	if c.left.Add(-1) == 0 {
		panic("the clock")
	}
	return c.Clock.Now()
}

// A clock is the caller's code too. Wherever it panics, nobody hangs after it.
func TestFailure_PanicInTheClock(t *testing.T) {
	for at := range int64(40) {
		p, m := inMem(t)
		clock := &panicking{Clock: evlogtest.NewClock(time.UnixMilli(1_700_000_000_000))}
		opts := tiny()
		opts.Clock = clock
		l := p.open(t, opts)
		clock.left.Store(at + 1)
		acked := 0
		apart(t, "the appends", func() {
			defer func() { _ = recover() }()
			for range 30 {
				r := rec("k", "with the clock's time")
				r.Time = time.Time{}
				if _, err := l.Append(p.ctx, r); err != nil {
					require.ErrorIs(t, err, evlog.ErrPoisoned, "at %d", at)
					return
				}
				acked++
			}
		})
		clock.left.Store(0)
		apart(t, "Close", func() { _ = l.Close() })
		q := onFS(t, m)
		got, err := readAll(q.ctx, q.open(t, nil).Reader())
		require.NoError(t, err)
		require.GreaterOrEqual(t, len(got), acked)
	}
}
