package evlog_test

import (
	"strings"
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
