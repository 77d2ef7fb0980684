package evlog_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/internal/vfs"
)

func TestFailure_PanicInOnEventPoisons(t *testing.T) {
	for _, kind := range []evlog.EventKind{evlog.EventRolled, evlog.EventOpened, evlog.EventIndexed} {
		t.Run(fmt.Sprint(kind), func(t *testing.T) {
			p, m := inMem(t)
			var armed atomic.Bool
			opts := tiny()
			opts.OnEvent = func(e evlog.Event) {
				if e.Kind == kind && armed.Load() {
					panic("ouch")
				}
			}
			if kind == evlog.EventOpened {
				armed.Store(true)
				l, err := evlog.Open(p.ctx, p.dir, opts)
				if err == nil {
					soon(t, "poisoned", func() bool {
						_, err := l.Append(p.ctx, rec("k", "v"))
						return errors.Is(err, evlog.ErrPoisoned)
					})
					_ = l.Close()
				}
				p.open(t, nil)
				return
			}
			l := p.open(t, opts)
			model := evtest.NewModel()
			armed.Store(true)
			var wg sync.WaitGroup
			var seen atomic.Bool
			for c := range 8 {
				wg.Go(func() {
					for i := range 1000 {
						r := rec("k", fmt.Sprintf("%d/%d", c, i))
						model.Intend(r)
						first, err := l.Append(p.ctx, r)
						if err == nil {
							if err := model.Accept(first, r); err != nil {
								t.Error(err)
							}
							model.Ack(first, 1)
							continue
						}
						if !errors.Is(err, evlog.ErrPoisoned) || !strings.Contains(err.Error(), "ouch") {
							t.Errorf("not the cause: %v", err)
						}
						seen.Store(true)
						return
					}
				})
			}
			done := make(chan struct{})
			go func() { wg.Wait(); close(done) }()
			inTime(t, "nobody hangs", done)
			require.True(t, seen.Load(), "the panic came through to somebody")
			require.ErrorIs(t, l.Close(), evlog.ErrPoisoned)
			q := onFS(t, m.KillImage())
			l = q.open(t, nil)
			recs, err := readAll(q.ctx, l.Reader())
			require.NoError(t, err)
			require.NoError(t, model.Crashed(recs))
		})
	}
}

// A panic on the writer's way poisons the log with that cause, whoever's
// goroutine it is on, and nobody hangs.
func TestFailure_PanicOnTheWritersWay(t *testing.T) {
	for _, c := range []struct {
		name    string
		kind    vfs.OpKind
		pattern string
		sync    evlog.SyncPolicy
	}{
		{"write", vfs.OpWrite, "*.log", evlog.SyncAlways},
		{"write in the background", vfs.OpWrite, "*.log", evlog.SyncInterval},
		{"sync", vfs.OpSyncData, "*.log", evlog.SyncAlways},
		{"sync in the background", vfs.OpSyncData, "*.log", evlog.SyncInterval},
		{"publish", vfs.OpWrite, "DURABLE", evlog.SyncFlush},
		{"roll", vfs.OpCreate, "*.log", evlog.SyncAlways},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := vfs.NewMem()
			var s switchable
			p := onFS(t, vfs.Inject(m, s.run))
			l := p.open(t, &evlog.Options{NoPreallocate: true, Sync: c.sync, SyncInterval: time.Millisecond, SegmentBytes: 300})
			want := appendEach(t, p.ctx, l, numbered(0, 2)...)
			fail := vfs.FailNth(c.kind, c.pattern, 1, errors.New("now"))
			s.set(func(op vfs.Op) error {
				if fail(op) != nil {
					panic("ouch")
				}
				return nil
			})
			errs := make(chan error, 16)
			for range 16 {
				go func() {
					var err error
					for err == nil {
						_, err = l.Append(p.ctx, rec("k", "until it fails"))
					}
					errs <- err
				}()
			}
			for range 16 {
				err := inTime(t, "an error for everybody", errs)
				require.ErrorIs(t, err, evlog.ErrPoisoned)
				require.ErrorContains(t, err, "ouch")
			}
			s.set(nil)
			require.ErrorIs(t, l.Flush(p.ctx), evlog.ErrPoisoned)
			closed := make(chan error, 1)
			go func() { closed <- l.Close() }()
			require.ErrorIs(t, inTime(t, "Close", closed), evlog.ErrPoisoned)
			q := p.on(m)
			l = q.open(t, nil)
			got, err := readAll(q.ctx, l.Reader())
			require.NoError(t, err)
			sameRecs(t, want, got[:2])
			require.NoError(t, l.Close())
			q.verified(t)
		})
	}
}
