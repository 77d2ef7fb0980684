package evlog_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

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

// The order that I1 demands, operation by operation.
func TestOrder_WriteSyncPublishAcknowledge(t *testing.T) {
	trace := vfs.NewTrace(vfs.OpWrite | vfs.OpAnySync)
	p := onFS(t, vfs.Inject(vfs.NewMem(), nil).After(trace.Record))
	l := p.open(t, &evlog.Options{NoPreallocate: true})
	trace.Reset()
	size := rec("k", "v").Size()
	for i := range int64(3) {
		_, err := l.Append(p.ctx, rec("k", "v"))
		require.NoError(t, err)
		ops := trace.Strings()
		trace.Reset()
		seg := evtest.SegmentFile(0)
		want := []string{
			fmt.Sprintf("write %s [%d,%d)", seg, i*size, (i+1)*size),
			"syncdata " + seg,
			"write DURABLE [0,32)",
		}
		// DURABLE itself may be synced behind it at any time, in the background.
		require.Equal(t, want, ops[:3])
		for _, op := range ops[3:] {
			require.Contains(t, op, "DURABLE")
		}
	}
}

// FORMAT.md, Roll: the order of the steps.
func TestOrder_Roll(t *testing.T) {
	trace := vfs.NewTrace(vfs.OpWrite | vfs.OpAnySync | vfs.OpTruncate | vfs.OpCreate | vfs.OpChtimes)
	p := onFS(t, vfs.Inject(vfs.NewMem(), nil).After(trace.Record))
	l := p.open(t, &evlog.Options{NoPreallocate: true, Sync: evlog.SyncFlush})
	_, err := l.Enqueue(p.ctx, rec("k", "v"))
	require.NoError(t, err)
	trace.Reset()
	require.NoError(t, l.Roll(p.ctx))
	old, next := evtest.SegmentFile(0), evtest.SegmentFile(1)
	var ops []string
	for _, op := range trace.Strings() {
		if !strings.Contains(op, ".idx") {
			ops = append(ops, op)
		}
	}
	size := rec("k", "v").Size()
	inOrder(t, ops,
		fmt.Sprintf("write %s [0,%d)", old, size),
		fmt.Sprintf("truncate %s %d", old, size),
		"chtimes "+old,
		"sync "+old,
		"create "+next,
		"sync "+next,
		"dirsync",
		"write DURABLE [0,32)",
		"syncdata DURABLE")
}

// inOrder asserts that want is a subsequence of ops.
func inOrder(t testing.TB, ops []string, want ...string) {
	t.Helper()
	i := 0
	for _, op := range ops {
		if i < len(want) && op == want[i] {
			i++
		}
	}
	if i < len(want) {
		require.Fail(t, "operations are missing or out of order", "%q is missing behind %q in\n%s", want[i], want[:i], strings.Join(ops, "\n"))
	}
}

func TestClose_AfterPowerLossOpensWithoutReading(t *testing.T) {
	p, m := inMem(t)
	l := p.open(t, nil)
	want := appendEach(t, p.ctx, l, numbered(0, 1000)...)
	require.NoError(t, l.Close())
	q := onFS(t, m.SyncedImage())
	sameRecs(t, want, q.all(t), "a clean close leaves everything synced")

	trace := vfs.NewTrace(vfs.OpRead)
	q = q.on(vfs.Inject(q.fsys, nil).After(trace.Record))
	l = q.open(t, nil)
	var read int64
	for _, op := range trace.Ops() {
		if isLog(op.Name) {
			read += op.Len
		}
	}
	size := int64(len(q.image(t)[evtest.SegmentFile(0)]))
	require.Less(t, read, size/4, "only the last frame is read after a clean close")
	require.NoError(t, l.Close())
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
