package cursor_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/cursor"
	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/evlog/evlogtest"
	"github.com/evlog-go/evlog/internal/vfs"
)

// When the context ends, what was handled is committed, though with that
// context nothing can be.
func TestRun_StopsGracefully(t *testing.T) {
	dir, l := logOf(t, 10)
	f := storeOf(t, dir)
	ctx, cancel := context.WithCancel(dir.Context())
	h := handled{then: func(ctx context.Context, offset uint64) error {
		if offset == 4 {
			cancel()
			<-ctx.Done()
		}
		return nil
	}}
	require.ErrorIs(t, cursor.Run(ctx, l.Reader(), f, "c", h.handle, nil), context.Canceled)
	require.Equal(t, span(0, 5), h.offsets(), "nothing is begun after the end")
	require.EqualValues(t, 5, standsAt(t, dir.Context(), f, "c"))

	// A handler that gives up because of the context has nothing against the
	// record.
	ctx, cancel = context.WithCancel(dir.Context())
	h.then = func(ctx context.Context, offset uint64) error {
		if offset == 7 {
			cancel()
			return fmt.Errorf("call the uplink: %w", ctx.Err())
		}
		return nil
	}
	err := cursor.Run(ctx, l.Reader(), f, "c", h.handle, nil)
	require.Equal(t, context.Canceled, err)
	require.EqualValues(t, 7, standsAt(t, dir.Context(), f, "c"))
}

// A commit that cannot be made does not hold up the end for ever, and is told.
func TestRun_StopTimeout(t *testing.T) {
	dir, l := logOf(t, 3)
	f := storeOf(t, dir)
	var h handled
	r := start(t, dir.Context(), l.Reader(), f, "c", &h, &cursor.Options{StopTimeout: 30 * time.Millisecond, CommitInterval: -1})
	eventually(t, func() bool { return len(h.offsets()) == 3 })
	lock, err := openDir(t, dir.Context(), dir.Path()).Lock("consumers.lock")
	require.NoError(t, err)
	err = r.stop()
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "consumers.lock")
	require.NoError(t, lock.Unlock())
	require.EqualValues(t, 0, standsAt(t, dir.Context(), f, "c"))
}

// Record k fails: k+1 is not delivered, what came before is committed, and k
// comes first the next time.
func TestRun_HandlerError(t *testing.T) {
	dir, l := logOf(t, 10)
	ctx, f := dir.Context(), storeOf(t, dir)
	poison := errors.New("cannot be parsed")
	h := handled{then: func(_ context.Context, offset uint64) error {
		if offset == 6 {
			return poison
		}
		return nil
	}}
	for range 2 {
		err := cursor.Run(ctx, l.Reader(), f, "c", h.handle, untilEnd)
		require.ErrorIs(t, err, poison)
		var at *cursor.HandlerError
		require.ErrorAs(t, err, &at)
		require.Equal(t, cursor.HandlerError{Name: "c", Offset: 6, Err: poison}, *at)
		require.EqualValues(t, 6, standsAt(t, ctx, f, "c"))
	}
	require.Equal(t, append(span(0, 7), 6), h.offsets())
}

// A handler that reads another log gets that log's errors; they say nothing of
// this one.
func TestRun_HandlersOwnOffsetError(t *testing.T) {
	dir, l := logOf(t, 3)
	h := handled{then: func(_ context.Context, offset uint64) error {
		return fmt.Errorf("the other log: %w", &evlog.OffsetError{Asked: 0, First: 5, Next: 9})
	}}
	err := cursor.Run(dir.Context(), l.Reader(), storeOf(t, dir), "c", h.handle, &cursor.Options{Reset: cursor.Latest})
	var at *cursor.HandlerError
	require.ErrorAs(t, err, &at)
	require.Equal(t, span(0, 1), h.offsets())
}

// A panic goes to the caller. Nothing is flushed or committed on top of what the
// handler left half done, and nothing of Run stays behind (see TestMain).
func TestRun_HandlerPanics(t *testing.T) {
	for name, end := range map[string]func(){
		"panic":  func() { panic("half done") },
		"goexit": runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			dir, l := logOf(t, 5)
			f := storeOf(t, dir)
			clock := evlogtest.NewClock(time.UnixMilli(0))
			h := handled{then: func(_ context.Context, offset uint64) error {
				if offset == 3 {
					clock.Advance(time.Hour) // a commit by time is due, and comes to wait for the handler
					time.Sleep(5 * time.Millisecond)
					end()
				}
				return nil
			}}
			flushed := false
			ended := make(chan any)
			go func() {
				defer close(ended)
				defer func() {
					if p := recover(); p != nil {
						ended <- p
					}
				}()
				_ = cursor.Run(dir.Context(), l.Reader(), f, "c", h.handle, &cursor.Options{
					Clock:        clock,
					BeforeCommit: func(context.Context) error { flushed = true; return nil },
				})
			}()
			if p := <-ended; name == "panic" {
				require.Equal(t, "half done", p)
			}
			for range ended {
			}
			require.False(t, flushed)
			require.EqualValues(t, 0, standsAt(t, dir.Context(), f, "c"))
		})
	}
}

// A store that fails ends the loop, also while it waits for records; nothing is
// committed on top of what is not known.
func TestRun_StoreFails(t *testing.T) {
	dir, l := logOf(t, 3)
	clock := evlogtest.NewClock(time.UnixMilli(0))
	s := &spy{Store: storeOf(t, dir)}
	attempts := 0
	s.fail = func(_, to uint64) error {
		if to > 0 {
			attempts++
			return syscall.EIO
		}
		return nil
	}
	var h handled
	r := start(t, dir.Context(), l.Reader(), s, "c", &h, &cursor.Options{Clock: clock})
	eventually(t, func() bool { return len(h.offsets()) == 3 })
	clock.WaitTimers(1)
	clock.Advance(time.Second)
	require.Equal(t, syscall.EIO, r.wait())
	require.Equal(t, 1, attempts)
	require.Equal(t, span(0, 3), h.offsets())
}

func TestRun_LogIsClosed(t *testing.T) {
	dir, l := logOf(t, 3)
	f := storeOf(t, dir)
	var h handled
	r := start(t, dir.Context(), l.Reader(), f, "c", &h, nil)
	eventually(t, func() bool { return len(h.offsets()) == 3 })
	require.NoError(t, l.Close())
	require.ErrorIs(t, r.wait(), evlog.ErrClosed)
	require.EqualValues(t, 3, standsAt(t, dir.Context(), f, "c"))
}

func TestRun_DamagedLog(t *testing.T) {
	mem := vfs.NewMem()
	ctx := vfs.NewContext(t.Context(), mem)
	l, err := evlog.Open(ctx, memPath, onePerSegment)
	require.NoError(t, err)
	defer l.Close()
	fill(t, ctx, l, 5)
	name := fmt.Sprintf("%020d.log", 3)
	writeFile(t, ctx, memPath, name, "X"+readFile(t, ctx, memPath, name)[1:])
	f := openFile(t, ctx, memPath)
	var h handled
	require.ErrorIs(t, cursor.Run(ctx, l.Reader(), f, "c", h.handle, nil), evlog.ErrCorrupt)
	require.Equal(t, span(0, 3), h.offsets())
	require.EqualValues(t, 3, standsAt(t, ctx, f, "c"))
}

// BeforeCommit runs on a second goroutine when a commit falls due by time. If it
// panics there, Run panics; if it leaves the goroutine, Run ends. In both cases
// nothing is committed.
func TestRun_BeforeCommitDoesNotReturn(t *testing.T) {
	for name, leave := range map[string]func(){"Goexit": runtime.Goexit, "panic": func() { panic("flush") }} {
		t.Run(name, func(t *testing.T) {
			dir, l := logOf(t, 3)
			f := storeOf(t, dir)
			var h handled
			run := func() error {
				return cursor.Run(dir.Context(), l.Reader(), f, "c", h.handle, &cursor.Options{
					CommitInterval: time.Millisecond,
					BeforeCommit:   func(context.Context) error { leave(); return nil },
				})
			}
			if name == "panic" {
				require.PanicsWithValue(t, "flush", func() { _ = run() })
			} else {
				// On a slow machine the interval is over while records are still handled: then
				// it is the goroutine of Run that ends.
				left := make(chan error, 1)
				go func() {
					err := errors.New("Run left its goroutine")
					defer func() { left <- err }()
					err = run()
				}()
				require.ErrorContains(t, <-left, "left its goroutine")
			}
			require.EqualValues(t, 0, standsAt(t, dir.Context(), f, "c"))
		})
	}
}
