package evlog_test

import (
	"errors"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/internal/vfs"
)

// Preparing space ahead is a convenience.
func TestFailure_PreallocationIsNotSupported(t *testing.T) {
	for _, err := range []error{vfs.ErrUnsupported, syscall.ENOSPC, syscall.EOPNOTSUPP} {
		t.Run(err.Error(), func(t *testing.T) {
			m := vfs.NewMem()
			p := onFS(t, vfs.Inject(m, func(op vfs.Op) error {
				if op.Kind == vfs.OpAllocate {
					return err
				}
				return nil
			}))
			l := p.open(t, tiny())
			want := appendEach(t, p.ctx, l, numbered(0, 40)...)
			require.NoError(t, l.Close())
			sameRecs(t, want, p.all(t))
			p.verified(t)
		})
	}
}

// Whoever prepares space ahead fails: what its sync covered may have been
// records, so the log is poisoned; what has no room is done without.
func TestFailure_WhilePreparingSpace(t *testing.T) {
	beyond := func(kind vfs.OpKind, err error) vfs.Hook {
		return func(op vfs.Op) error {
			if op.Kind == kind && isLog(op.Name) && (kind != vfs.OpWrite || op.Len > 1000) {
				return err
			}
			return nil
		}
	}
	for _, c := range []struct {
		name     string
		hook     vfs.Hook
		poisoned bool
	}{
		{"allocate", beyond(vfs.OpAllocate, syscall.EIO), false},
		{"allocate without space", beyond(vfs.OpAllocate, syscall.ENOSPC), false},
		{"allocate not supported", beyond(vfs.OpAllocate, vfs.ErrUnsupported), false},
		{"write", beyond(vfs.OpWrite, syscall.EIO), true},
		{"write without space", beyond(vfs.OpWrite, syscall.ENOSPC), false},
		{"sync", vfs.FailNth(vfs.OpSyncData, "*.log", 2, syscall.EIO), true}, // the first is the record's
	} {
		t.Run(c.name, func(t *testing.T) {
			m := vfs.NewMem()
			var s switchable
			p := onFS(t, vfs.Inject(m, s.run))
			l := p.open(t, nil)
			s.set(c.hook)
			if !c.poisoned {
				want := appendEach(t, p.ctx, l, numbered(0, 51)...)
				require.NoError(t, l.Close())
				sameRecs(t, want, p.all(t))
				p.verified(t)
				return
			}
			// It starts with the first record, and may be quicker than its commit.
			first := numbered(0, 1)
			_, acked := l.Append(p.ctx, first...)
			if acked != nil {
				require.ErrorIs(t, acked, evlog.ErrPoisoned)
			}
			soon(t, "poisoned", func() bool {
				return errors.Is(l.Flush(p.ctx), evlog.ErrPoisoned)
			})
			_, err := l.Append(p.ctx, rec("k", "v"))
			require.ErrorIs(t, err, syscall.EIO)
			require.ErrorIs(t, l.Close(), evlog.ErrPoisoned)
			l = p.on(m).open(t, nil)
			got := p.on(m).all(t)
			if acked == nil || len(got) > 0 {
				sameRecs(t, recsAt(0, first...), got)
			}
			require.NoError(t, l.Close())
		})
	}
}

// The sync of whoever prepares space fails, and with it goes what the writer
// has written and not yet synced. Where the system tells only one of them, the
// writer's own sync succeeds: nothing may be acknowledged all the same. (I5)
func TestFailure_SyncOfPreparedSpaceBesideAnAppend(t *testing.T) {
	for tries := 0; !syncOfPreparedSpaceFails(t); tries++ {
		require.Less(t, tries, 50, "preparing is always quicker than the first record")
	}
}

// syncOfPreparedSpaceFails reports false where zeros were synced before the first
// record was, and so the wrong sync failed.
func syncOfPreparedSpaceFails(t *testing.T) bool {
	m := vfs.NewMem()
	var syncs atomic.Int32
	var armed atomic.Bool
	written, failed, acked := make(chan struct{}), make(chan struct{}), make(chan struct{})
	wait := func(c <-chan struct{}) {
		select {
		case <-c:
		case <-time.After(300 * time.Millisecond): // it waits for us: all the better
		}
	}
	var preparing atomic.Int64 // Seq of the sync that is to fail
	p := onFS(t, vfs.Inject(m, func(op vfs.Op) error {
		if op.Kind != vfs.OpSyncData || !isLog(op.Name) {
			return nil
		}
		switch syncs.Add(1) {
		case 2: // the first one is of the first record
			preparing.Store(op.Seq)
			armed.Store(true)
			wait(written)
			m.FailSync(vfs.OpSyncData, "*.log", 1, syscall.EIO)
		case 3:
			wait(failed)
		}
		return nil
	}).After(func(op vfs.Op, _ error) {
		switch {
		case armed.Load() && op.Kind == vfs.OpWrite && isLog(op.Name) && op.Off > 0 && op.Len < 1000:
			close(written)
		case op.Seq == preparing.Load() && op.Kind == vfs.OpSyncData:
			close(failed)
			wait(acked)
		}
	}))
	l := p.open(t, nil)
	if _, err := l.Append(p.ctx, numbered(0, 1)...); err != nil {
		require.ErrorIs(t, err, evlog.ErrPoisoned)
		close(acked)
		_ = l.Close()
		return false
	}
	want := recsAt(0, numbered(0, 1)...)
	soon(t, "space is being prepared", armed.Load)
	_, err := l.Append(p.ctx, numbered(1, 1)...)
	close(acked)
	if err != nil {
		require.ErrorIs(t, err, evlog.ErrPoisoned)
		require.ErrorIs(t, l.Close(), evlog.ErrPoisoned)
	} else {
		want = append(want, recsAt(1, numbered(1, 1)...)...)
	}
	out := onFS(t, m.SyncedImage()).image(t).Writer()
	require.NoError(t, out.Err)
	require.GreaterOrEqual(t, len(out.Recs), len(want), "acknowledged, and lost by the sync that failed")
	sameRecs(t, want, out.Recs[:len(want)])
	_ = l.Close()
	return true
}

// Whoever prepares space lets the segment go when it is rolled, also where nothing
// is appended any more: by the rules of Windows it could not be removed, and
// elsewhere a removal would free no space.
func TestPrepare_LetsARolledSegmentGo(t *testing.T) {
	m := vfs.NewMem()
	var armed atomic.Bool
	opened := make(chan struct{})
	p := onFS(t, vfs.Windows(vfs.Inject(m, func(op vfs.Op) error {
		if op.Kind == vfs.OpOpen && op.Name == evtest.SegmentFile(0) && armed.CompareAndSwap(true, false) {
			close(opened)
		}
		return nil
	})))
	l := p.open(t, nil)
	armed.Store(true)
	appendEach(t, p.ctx, l, rec("k", "v"))
	inTime(t, "space is prepared", opened)
	require.NoError(t, l.Roll(p.ctx))
	soon(t, "it can be removed", func() bool {
		_, err := l.Retain(p.ctx, &evlog.RetainOptions{Below: 1})
		return err == nil
	})
	require.Equal(t, []uint64{1}, onFS(t, m).image(t).Bases())
}
