package evlog_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/internal/vfs"
)

// Every workload by the rules that Windows has for open files, with readers
// and followers that keep files open.
func TestWindowsRules_Workloads(t *testing.T) {
	for _, wl := range workloads() {
		t.Run(wl.name, func(t *testing.T) {
			m := vfs.NewMem()
			w := worldOn(t, m, 1, wl.opts)
			if wl.start != nil {
				w.p.put(t, wl.start)
				for _, r := range wl.start.Writer().Recs {
					w.model.Intend(evtest.RecordOf(r))
				}
			}
			w.p = w.p.on(vfs.Windows(m))
			require.NoError(t, w.run("open"))
			r := w.p.reader(t, nil)
			f := followInto(w.p, r, wl.opts.FirstOffset)
			require.NoError(t, w.run("append 1, read"))
			inTime(t, "the follower holds a file open", f.first)
			require.NoError(t, w.run(strings.TrimPrefix(wl.script, "open,")))
			recs, err := readAll(w.p.ctx, r)
			require.NoError(t, err)
			if w.model.IsUnfinished() { // the follower had a segment open that was to go
				require.NoError(t, w.model.Check(recs))
			} else {
				sameRecs(t, w.model.Settled(), recs)
			}
			require.NoError(t, r.Close())
			inTime(t, "the follower", f.done)
			w.p.verified(t)
		})
	}
}

func TestWindowsRules_LockAndDurable(t *testing.T) {
	m := vfs.NewMem()
	p := onFS(t, vfs.Windows(m))
	l := p.open(t, tiny())
	require.ErrorIs(t, p.refused(t, nil), evlog.ErrLocked)
	var locked *evlog.LockedError
	require.ErrorAs(t, p.refused(t, nil), &locked)
	require.NotZero(t, locked.Holder.PID, "readable though byte 0 is locked")
	r := p.reader(t, nil)
	want := appendEach(t, p.ctx, l, numbered(0, 50)...)
	got, err := readAll(p.ctx, r)
	require.NoError(t, err)
	sameRecs(t, want, got)
	// DURABLE restored from a backup under the writer.
	d, err := m.OpenDir(p.dir)
	require.NoError(t, err)
	defer d.Close()
	require.NoError(t, d.Remove("DURABLE"))
	want = append(want, appendEach(t, p.ctx, l, numbered(50, 3)...)...)
	got, err = readAll(p.ctx, r)
	require.NoError(t, err)
	sameRecs(t, want, got)
	// An index that somebody has open cannot be replaced: a reader, or for a moment
	// the one who looks whether indexes match.
	require.NoError(t, r.Close())
	require.Eventually(t, func() bool {
		_, err = l.Reindex(p.ctx, nil)
		return err == nil
	}, 30*time.Second, time.Millisecond)
	require.NoError(t, l.Close())
	_, err = evlog.Repair(p.ctx, p.dir, &evlog.RepairOptions{Execute: true})
	require.NoError(t, err)
	p.verified(t)
}

// The log's own reader, and its housekeeper, who looks whether indexes are whole, have
// them open: neither is in the way of Reindex.
func TestWindows_ReindexIsNotInItsOwnWay(t *testing.T) {
	m := vfs.NewMem()
	p := onFS(t, m)
	looks, let := make(chan struct{}), make(chan struct{})
	var armed atomic.Bool
	p.ctx = vfs.NewContext(t.Context(), vfs.Inject(vfs.Windows(m), func(op vfs.Op) error {
		if op.Kind == vfs.OpRead && op.Name == evtest.IndexFile(0) && armed.CompareAndSwap(true, false) {
			close(looks)
			<-let
		}
		return nil
	}))
	l := p.open(t, tiny())
	want := appendEach(t, p.ctx, l, numbered(0, 60)...)
	require.NoError(t, l.Close())

	armed.Store(true)
	l = p.open(t, &evlog.Options{NoRetention: true}) // which looks too
	inTime(t, "the housekeeper looks", looks)
	done := make(chan error, 1)
	go func() {
		_, err := l.Reindex(p.ctx, nil)
		done <- err
	}()
	time.Sleep(2 * time.Millisecond) // enough to fail, without the rule
	close(let)
	require.NoError(t, inTime(t, "Reindex", done))

	for _, w := range want {
		got, err := l.Reader().Get(p.ctx, w.Offset)
		require.NoError(t, err)
		require.True(t, w.Same(evtest.RecOf(got)))
	}
	_, err := l.Reindex(p.ctx, nil)
	require.NoError(t, err)
	require.NoError(t, l.Close())
}
