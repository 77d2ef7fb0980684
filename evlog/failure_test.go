package evlog_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/internal/vfs"
)

// switchable is a Hook that can be set while the log runs.
type switchable struct{ hook atomic.Pointer[vfs.Hook] }

func (s *switchable) set(h vfs.Hook) { s.hook.Store(&h) }

func (s *switchable) run(op vfs.Op) error {
	if h := s.hook.Load(); h != nil && *h != nil {
		return (*h)(op)
	}
	return nil
}

// changesLog are the operations that a poisoned writer must not do any more.
const changesLog = vfs.OpWrite | vfs.OpTruncate | vfs.OpAllocate | vfs.OpCreate | vfs.OpRename | vfs.OpRemove | vfs.OpAnySync | vfs.OpChtimes

// besidesLock leaves out LOCK, which only tells people who holds the log, and one
// index, which somebody may have begun to write when the log was poisoned.
func besidesLock(ops []vfs.Op) []string {
	var list []string
	index := ""
	for _, op := range ops {
		if base, _, ok := strings.Cut(op.Name, ".idx"); ok && (index == "" || index == base) {
			index = base
			continue
		}
		if op.Name != "LOCK" {
			list = append(list, op.String())
		}
	}
	return list
}

// Any failure of the disk but a full one poisons: nothing is acknowledged any
// more, Close does nothing, and the log reopens with all that was
// acknowledged. (I5)
func TestFailure_Poisons(t *testing.T) {
	type step func(t *testing.T, p place, l *evlog.Log) error
	appendOne := func(_ *testing.T, p place, l *evlog.Log) error {
		_, err := l.Append(p.ctx, rec("k", "fails"))
		return err
	}
	rolls := func(_ *testing.T, p place, l *evlog.Log) error { return l.Roll(p.ctx) }
	flushes := func(t *testing.T, p place, l *evlog.Log) error {
		_, err := l.Enqueue(p.ctx, rec("k", "fails"))
		if err != nil {
			return err
		}
		return l.Flush(p.ctx)
	}
	for _, c := range []struct {
		name    string
		kinds   vfs.OpKind
		pattern string
		err     error
		step    step
	}{
		{"write", vfs.OpWrite, "*.log", syscall.EIO, appendOne},
		{"write at Flush", vfs.OpWrite, "*.log", syscall.EIO, flushes},
		{"sync", vfs.OpSyncData, "*.log", syscall.EIO, appendOne},
		{"sync at Flush", vfs.OpSyncData, "*.log", syscall.EIO, flushes},
		{"sync without space", vfs.OpSyncData, "*.log", syscall.ENOSPC, appendOne},
		{"sync over quota", vfs.OpSyncData, "*.log", syscall.EDQUOT, appendOne},
		{"DURABLE write", vfs.OpWrite, "DURABLE", syscall.EIO, appendOne},
		{"DURABLE write without space", vfs.OpWrite, "DURABLE", syscall.ENOSPC, appendOne},
		{"DURABLE is it still there", vfs.OpSame, "DURABLE", syscall.EIO, appendOne},
		{"roll: truncate", vfs.OpTruncate, "*.log", syscall.EIO, rolls},
		{"roll: sync", vfs.OpSync, "*.log", syscall.EIO, rolls},
		{"roll: sync without space", vfs.OpSync, "*.log", syscall.ENOSPC, rolls},
		{"roll: create", vfs.OpCreate, "*.log", syscall.EIO, rolls},
		{"roll: directory sync", vfs.OpDirSync, "", syscall.EIO, rolls},
		{"roll: directory sync without space", vfs.OpDirSync, "", syscall.ENOSPC, rolls},
		{"roll: DURABLE write", vfs.OpWrite, "DURABLE", syscall.EIO, rolls},
		{"roll: DURABLE sync", vfs.OpSyncData | vfs.OpSync, "DURABLE", syscall.EIO, rolls},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := vfs.NewMem()
			var s switchable
			trace := vfs.NewTrace(changesLog)
			p := onFS(t, vfs.Inject(m, s.run).After(trace.Record))
			var poisoned atomic.Int32
			l := p.open(t, &evlog.Options{
				SegmentBytes: 1 << 20, NoPreallocate: true, Sync: evlog.SyncFlush,
				OnEvent: func(e evlog.Event) {
					if e.Kind == evlog.EventPoisoned {
						poisoned.Add(1)
					}
				},
			})
			want := appendEach(t, p.ctx, l, numbered(0, 5)...)
			follower := followInto(p, l.Reader(), 0)
			inTime(t, "the follower reads", follower.first)

			s.set(vfs.FailNth(c.kinds, c.pattern, 1, c.err))
			err := c.step(t, p, l)
			require.ErrorIs(t, err, evlog.ErrPoisoned)
			require.ErrorIs(t, err, c.err, "the first failure is told")
			s.set(nil)
			trace.Reset()

			// It works again, but nobody knows what is on disk.
			_, err = l.Append(p.ctx, rec("k", "v"))
			require.ErrorIs(t, err, evlog.ErrPoisoned)
			require.ErrorIs(t, err, c.err)
			_, err = l.Enqueue(p.ctx, rec("k", "v"))
			require.ErrorIs(t, err, evlog.ErrPoisoned)
			require.ErrorIs(t, l.Flush(p.ctx), evlog.ErrPoisoned)
			require.ErrorIs(t, l.Roll(p.ctx), evlog.ErrPoisoned)
			// What was durable before can be read on.
			got, err := readAll(p.ctx, l.Reader())
			require.NoError(t, err)
			sameRecs(t, want, got)
			require.ErrorIs(t, l.Close(), evlog.ErrPoisoned)
			require.Empty(t, besidesLock(trace.Ops()), "a poisoned writer touches nothing")
			require.EqualValues(t, 1, poisoned.Load())
			require.Error(t, inTime(t, "the follower ends", follower.done))
			sameRecs(t, want[:len(follower.recs)], follower.recs)

			// Everything acknowledged is there; the one that failed may be.
			q := p.on(m)
			l = q.open(t, nil)
			got, err = readAll(q.ctx, l.Reader())
			require.NoError(t, err)
			sameRecs(t, want, got[:5])
			require.LessOrEqual(t, len(got), 6)
			off, err := l.Append(q.ctx, rec("k", "after"))
			require.NoError(t, err)
			require.EqualValues(t, len(got), off)
			require.NoError(t, l.Close())
			q.verified(t)
		})
	}
}

type followed struct {
	recs  []evtest.Rec  // once done has received
	first chan struct{} // closed when the first record came
	done  chan error
}

// followInto follows in the background until the iterator ends.
func followInto(p place, r *evlog.Reader, from uint64) *followed {
	f := &followed{first: make(chan struct{}), done: make(chan error, 1)}
	go func() {
		started := sync.OnceFunc(func() { close(f.first) })
		recs, err := collect(func(yield func(evlog.Record, error) bool) {
			for r, err := range r.Follow(p.ctx, from) {
				if err == nil {
					started()
				}
				if !yield(r, err) {
					return
				}
			}
		})
		f.recs = recs
		f.done <- err
	}()
	return f
}

// After a failed sync the page cache still shows the records. What the reopened
// log tells a reader must hold after a power failure too. (I5)
func TestFailure_ReopenedLogDoesNotTrustTheCache(t *testing.T) {
	for _, c := range []struct {
		name  string
		kinds vfs.OpKind
		roll  bool
	}{
		{"segment sync", vfs.OpSyncData | vfs.OpSync, false},
		{"directory sync at a roll", vfs.OpDirSync, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, m := inMem(t)
			l := p.open(t, &evlog.Options{NoPreallocate: true})
			want := appendEach(t, p.ctx, l, numbered(0, 3)...)
			m.FailSync(c.kinds, "", 1, syscall.EIO)
			var err error
			if c.roll {
				err = l.Roll(p.ctx)
			} else {
				_, err = l.Append(p.ctx, rec("k", "was lost by the sync"))
			}
			require.ErrorIs(t, err, evlog.ErrPoisoned)
			require.Error(t, l.Close())

			l = p.open(t, &evlog.Options{NoPreallocate: true})
			got, err := readAll(p.ctx, l.Reader())
			require.NoError(t, err)
			next := uint64(len(got))
			want = append(want, got[3:]...) // visible now, so for ever
			after := appendEach(t, p.ctx, l, numbered(10, 3)...)
			require.Equal(t, next, after[0].Offset)
			want = append(want, after...)

			q := onFS(t, m.SyncedImage())
			l2 := q.open(t, nil)
			got, err = readAll(q.ctx, l2.Reader())
			require.NoError(t, err)
			sameRecs(t, want, got, "what the reopened log showed is gone after a power failure")
			require.NoError(t, l2.Close())
			q.verified(t)
		})
	}
}

// The followers of a group commit must not be told that their records are
// safe when the leader's sync failed.
func TestFailure_SyncFailsWhile64CallersWait(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		kind vfs.OpKind
	}{
		{"EIO at sync", syscall.EIO, vfs.OpSyncData},
		{"ENOSPC at sync", syscall.ENOSPC, vfs.OpSyncData},
		{"EIO at write", syscall.EIO, vfs.OpWrite},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := vfs.NewMem()
			stop := newStopper(vfs.OpSyncData)
			var s switchable
			p := onFS(t, vfs.Inject(m, vfs.Hooks(stop.hook, s.run)))
			l := p.open(t, &evlog.Options{NoPreallocate: true})
			defer stop.release()
			stop.stop()
			busy := goAppend(p.ctx, l, rec("k", "before"))
			inTime(t, "the sync", stop.reached)
			var waiting []<-chan appended
			for i := range 64 {
				waiting = append(waiting, goAppend(p.ctx, l, rec("k", fmt.Sprint(i))))
			}
			soon(t, "all accepted", func() bool { return l.Stats().Records == 65 })
			// The running sync has passed the hooks: the next one fails.
			n := 1
			if c.kind == vfs.OpSyncData {
				n = 1
				// stop.hook comes first; the held-up sync meets s.run afterwards.
				n = 2
			}
			s.set(vfs.FailNth(c.kind, "*.log", n, c.err))
			stop.release()
			require.NoError(t, inTime(t, "the first", busy).err)
			for _, w := range waiting {
				got := inTime(t, "an error for everybody", w)
				require.ErrorIs(t, got.err, c.err)
				require.ErrorIs(t, got.err, evlog.ErrPoisoned)
			}
			require.ErrorIs(t, l.Close(), evlog.ErrPoisoned)
			d, err := p.image(t).Durable()
			require.NoError(t, err)
			require.EqualValues(t, 1, d.Next)

			l = p.on(m).open(t, nil)
			recs, err := readAll(p.ctx, l.Reader())
			require.NoError(t, err)
			require.Equal(t, "before", string(recs[0].Value))
			require.LessOrEqual(t, len(recs), 65)
		})
	}
}

func TestFailure_ShortWriteThenError(t *testing.T) {
	m := vfs.NewMem()
	var s switchable
	p := onFS(t, vfs.Inject(m, s.run))
	l := p.open(t, &evlog.Options{NoPreallocate: true})
	want := appendEach(t, p.ctx, l, numbered(0, 3)...)
	s.set(func(op vfs.Op) error {
		if op.Kind == vfs.OpWrite && isLog(op.Name) {
			return &vfs.ShortWrite{N: 20, Err: syscall.EIO}
		}
		return nil
	})
	_, err := l.Append(p.ctx, rec("k", "half of it"))
	require.ErrorIs(t, err, evlog.ErrPoisoned)
	s.set(nil)
	require.Error(t, l.Close())
	q := p.on(m)
	sameRecs(t, want, q.all(t))
	l = q.open(t, nil)
	want = append(want, appendEach(t, q.ctx, l, rec("k", "v"))...)
	require.EqualValues(t, 3, want[3].Offset)
	require.NoError(t, l.Close())
	sameRecs(t, want, q.all(t))
	q.verified(t)
}

// A failing index costs nothing but time.
func TestFailure_IndexCannotBeWritten(t *testing.T) {
	for _, err := range []error{syscall.EIO, syscall.ENOSPC} {
		t.Run(err.Error(), func(t *testing.T) {
			m := vfs.NewMem()
			p := onFS(t, vfs.Inject(m, func(op vfs.Op) error {
				if strings.Contains(op.Name, ".idx") && op.Kind&(vfs.OpCreate|vfs.OpWrite|vfs.OpSync|vfs.OpRename) != 0 {
					return err
				}
				return nil
			}))
			l := p.open(t, tiny())
			want := appendEach(t, p.ctx, l, numbered(0, 60)...)
			sameRecs(t, want, p.all(t))
			require.NoError(t, l.Close())
			l = p.open(t, nil)
			want = append(want, appendEach(t, p.ctx, l, numbered(60, 20)...)...)
			for i, w := range want {
				require.EqualValues(t, i, w.Offset)
			}
			require.NoError(t, l.Close())
			q := p.on(m)
			sameRecs(t, want, q.all(t))
			q.verified(t)
			n, rerr := evlog.Reindex(q.ctx, q.dir, nil)
			require.NoError(t, rerr)
			require.Positive(t, n)
			sameRecs(t, want, q.all(t))
		})
	}
}

func TestFailure_DurableRemovedOrReplacedUnderTheWriter(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		l := p.open(t, nil)
		want := appendEach(t, p.ctx, l, numbered(0, 2)...)
		d, err := p.fsys.OpenDir(p.dir)
		require.NoError(t, err)
		defer d.Close()

		require.NoError(t, d.Remove("DURABLE"))
		want = append(want, appendEach(t, p.ctx, l, rec("k", "removed"))...)
		sameRecs(t, want, p.image(t).Reader().Recs, "acknowledged, so every reader sees it")
		sameRecs(t, want, p.all(t))

		im := evtest.Image{"other": evtest.EncodeDurable(evtest.Durable{})}
		require.NoError(t, im.WriteFS(p.fsys, p.dir))
		require.NoError(t, d.Rename("other", "DURABLE"))
		want = append(want, appendEach(t, p.ctx, l, rec("k", "replaced"))...)
		sameRecs(t, want, p.image(t).Reader().Recs)
		require.NoError(t, l.Close())
		sameRecs(t, want, p.all(t))
		p.verified(t)
	})
}
