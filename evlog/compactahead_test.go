package evlog_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/internal/vfs"
)

// longKeyed is a log of one closed segment of 5 MiB, in which every second record
// has a newer one.
func longKeyed(t *testing.T, p place) (want []evtest.Rec) {
	t.Helper()
	l := p.open(t, &evlog.Options{Sync: evlog.SyncFlush, NoPreallocate: true})
	value := strings.Repeat("v", 1000)
	for i := range 5000 {
		r := rec(fmt.Sprint("key-", i%2*i), value)
		off, err := l.Enqueue(p.ctx, r)
		require.NoError(t, err)
		if i%2 == 1 || i == 4998 {
			want = append(want, recsAt(off, r)...)
		}
	}
	require.NoError(t, l.Roll(p.ctx))
	quiet(t, p)
	require.NoError(t, l.Close())
	return want
}

// Compaction looks at the keys of what was read while the next part is read.
func TestCompact_ReadsAhead(t *testing.T) {
	twoProcessors(t)
	p, m := inMem(t)
	want := longKeyed(t, p)
	var armed atomic.Bool
	var read atomic.Int64
	p = p.on(vfs.Inject(m, func(op vfs.Op) error {
		if armed.Load() && op.Kind == vfs.OpRead && op.Name == evtest.SegmentFile(0) {
			read.Store(op.Off + op.Len)
		}
		return nil
	}))
	l := p.open(t, nil)
	armed.Store(true)
	looked := 0
	o := fast()
	o.Progress = func(done, _ int64) {
		if done > 3<<19 && done < 3<<20 { // of the first reading
			looked++
			soon(t, "it reads on", func() bool { return read.Load() > done+512<<10 })
		}
	}
	compact(t, p, l, o)
	require.Positive(t, looked)
	sameRecs(t, want, p.all(t))
}

// However a compaction ends, nobody reads on after it.
func TestCompact_EndsReadingAhead(t *testing.T) {
	twoProcessors(t)
	const first, second = 3 << 20, 7 << 20 // of the work: reading keys, writing what stays
	bad := errors.New("bad sector")
	for _, at := range []int64{first, second} {
		for _, c := range []struct {
			name string
			stop func(l *evlog.Log, cancel func(), failing, full *atomic.Bool)
			want error
		}{
			{"cancelled", func(_ *evlog.Log, cancel func(), _, _ *atomic.Bool) { cancel() }, context.Canceled},
			{"closed", func(l *evlog.Log, _ func(), _, _ *atomic.Bool) {
				go l.Close()
				_, err := l.Compact(background, nil) // waits for the first one, or for Close to have come
				require.ErrorIs(t, err, evlog.ErrClosed)
			}, evlog.ErrClosed},
			{"cannot be read", func(_ *evlog.Log, _ func(), failing, _ *atomic.Bool) { failing.Store(true) }, bad},
			{"disk full", func(_ *evlog.Log, _ func(), _, full *atomic.Bool) { full.Store(true) }, syscall.ENOSPC},
			{"panics", func(*evlog.Log, func(), *atomic.Bool, *atomic.Bool) { panic("by the caller") }, evlog.ErrPoisoned},
		} {
			t.Run(fmt.Sprintf("%s/%dMiB", c.name, at>>20), func(t *testing.T) {
				p, m := inMem(t)
				longKeyed(t, p)
				var failing, full atomic.Bool
				q := p.on(vfs.Inject(m, func(op vfs.Op) error {
					if full.Load() && op.Kind == vfs.OpWrite && strings.HasSuffix(op.Name, ".tmp") {
						return syscall.ENOSPC
					}
					if failing.Load() && op.Kind == vfs.OpRead && op.Name == evtest.SegmentFile(0) {
						return bad
					}
					return nil
				}))
				l := q.open(t, nil)
				ctx, cancel := context.WithCancel(q.ctx)
				defer cancel()
				o := fast()
				stopped := false
				o.Progress = func(done, _ int64) {
					if !stopped && done > at {
						stopped = true
						c.stop(l, cancel, &failing, &full)
					}
					if stopped {
						time.Sleep(10 * time.Millisecond) // for what Close has cancelled to be so
					}
				}
				err := func() (err error) {
					defer func() {
						if got := recover(); got != nil {
							err = fmt.Errorf("%w: %v", evlog.ErrPoisoned, got)
						}
					}()
					_, err = l.Compact(ctx, o)
					return err
				}()
				require.True(t, stopped)
				require.ErrorIs(t, err, c.want)
				require.Eventually(t, func() bool { return !readingAhead() }, 10*time.Second, time.Millisecond)
			})
		}
	}
}

// readingAhead reports whether a goroutine reads ahead.
func readingAhead() bool {
	for size := 1 << 20; ; size *= 2 {
		all := make([]byte, size)
		if n := runtime.Stack(all, true); n < size { // none was cut off
			return strings.Contains(string(all[:n]), "readAhead).run")
		}
	}
}
