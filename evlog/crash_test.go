package evlog_test

import (
	"errors"
	"fmt"
	"path/filepath"
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

// workload is a script and how the log is set up.
type workload struct {
	name   string
	opts   evlog.Options
	script string
	start  evtest.Image // what is there before; nil: nothing
}

func workloads() []workload {
	exact := evlog.Options{NoPreallocate: true, SegmentBytes: 1 << 20}
	small := evlog.Options{NoPreallocate: true, SegmentBytes: 300, IndexBytes: 100}
	torn := build().segment(0, upTo(0, 4)...).segment(4, 4, 5, 6).tail(4, make([]byte, 600)...).tail(4, evtest.EncodeRec(small5())...).
		durable(5, 4).file("left.tmp", []byte("x")).im
	return []workload{
		{"create", exact, "open, append 1, close", nil},
		{"append", exact, "open, append 1, append 3, append 1, append 4, close", nil},
		{"preallocated", evlog.Options{SegmentBytes: 1 << 20}, "open, append 1, append 3, append 1, roll, append 2, close", nil},
		{"enqueue", evlog.Options{NoPreallocate: true, Sync: evlog.SyncFlush}, "open, enqueue 2, enqueue 1, flush, enqueue 3, append 1, enqueue 2, close", nil},
		{"roll", small, "open, append 1, append 2, append 3, append 1, append 2, append 3, append 1, close", nil},
		{"roll by hand", exact, "open, append 2, roll, append 1, roll, roll, enqueue 2, roll, close, open, roll, append 1, close", nil},
		{"roll to a higher base", small, "open, append 2, skip 7, append 1, append 3, skip 0, roll, append 1, enqueue 2, skip 100, close, open, append 1, skip 3, close", nil},
		{"create a copy", evlog.Options{NoPreallocate: true, SegmentBytes: 300, ID: "copy", FirstOffset: 40}, "open, close, open, append 2, append 1, skip 2, close", nil},
		{"reopen", small, "open, append 2, close, open, append 1, close, open, close, open, enqueue 2, append 1, close", nil},
		{"holes", small, "open, exact 5, append 1, exact 0, exact 1000, append 1, roll, exact 70, append 2, close, open, append 1, close", nil},
		{"idle", evlog.Options{NoPreallocate: true, SegmentAge: time.Second}, "open, append 1, idle 60, idle 60, append 1, idle 500, idle 600, append 1, close", nil},
		{"recovery", small, "open, append 1, append 2, close", torn},
		{"recovery of a log without DURABLE", small, "open, append 2, close", build().segment(0, upTo(0, 4)...).segment(4, 4, 5).im},
		{"recovery of a roll", exact, "open, append 2, roll, append 1, close", build().segment(0, upTo(0, 4)...).segment(4).durable(4, 0).im},
		{"reindex", small, "open, append 3, append 3, append 3, unindex, reindex, append 2, unindex, close, open, reindex, append 1, close", nil},
		{"compact", small, "open, append 5, append 5, append 5, compact, append 5, compact 2, close, open, compact, append 1, close", nil},
		{"compact tombstones", small, "open, delete 2, append 4, delete 3, roll, purge 3, delete 2, append 2, roll, purge, append 1, close", nil},
		{"merge", evlog.Options{NoPreallocate: true, SegmentBytes: 1500, IndexBytes: 100}, "open, append 2, roll, append 3, roll, delete 2, roll, append 1, roll, purge, append 2, roll, append 2, purge 2, append 1, close", nil},
		{"retain", small, "open, append 3, append 2, append 3, retain 5, append 2, unindex, retain 2, append 1, close, open, retain 0, append 1, close", nil},
		{"hook", evlog.Options{NoPreallocate: true, OpenHook: anyHook}, "open, append 1, hook, append 1, close, open, append 1, close", nil},
	}
}

func small5() evtest.Rec { return small(9) }

// begin makes the world of a workload.
func (wl workload) begin(t testing.TB, seed uint64) *world {
	t.Helper()
	w := newWorld(t, seed, wl.opts)
	if wl.start != nil {
		w.p.put(t, wl.start)
		// What a reader could see before.
		for _, r := range wl.start.Reader().Recs {
			w.model.Intend(evtest.RecordOf(r))
			require.NoError(t, w.model.Saw(r), "after %q", w.done)
		}
		for _, r := range wl.start.Writer().Recs {
			w.model.Intend(evtest.RecordOf(r))
		}
	}
	return w
}

// Stop at every operation on the file system, and look at what the end of the
// process and a power failure leave.
func TestCrash_AtEveryOperation(t *testing.T) {
	for _, wl := range workloads() {
		t.Run(wl.name, func(t *testing.T) {
			t.Parallel()
			evtest.Seeds(t, 100, func(t *testing.T, seed uint64) {
				whole := wl.begin(t, seed)
				before := whole.m.Ops()
				require.NoError(t, whole.run(wl.script))
				total := whole.m.Ops() - before
				require.NoError(t, survives(t, whole.m.SyncedImage(), whole.model))
				for n := range total + 1 {
					cutAt(t, wl, seed, n)
					if t.Failed() {
						return
					}
				}
			})
		})
	}
}

// cutAt runs a workload up to operation n.
func cutAt(t *testing.T, wl workload, seed uint64, n int64) {
	t.Helper()
	w := wl.begin(t, seed)
	// A write that meets the cut may have got part of the way.
	w.m.SetTornCut(n, int(seed*uint64(n)%97))
	if err := w.run(wl.script); err != nil && !errors.Is(err, vfs.ErrCut) {
		require.NoError(t, err, "seed %d, cut at %d, after %v", seed, n, w.done)
	}
	w.abandon()
	seen(t, w)
	images := map[string]*vfs.Mem{"killed": w.m.KillImage(), "synced": w.m.SyncedImage()}
	for i := range uint64(evtest.Count(20)) {
		s := seed*1_000_003 + uint64(n)*1009 + i
		images[fmt.Sprintf("power failure %d", s)] = w.m.Crash(s)
	}
	for name, m := range images {
		again := m.KillImage()
		if err := survives(t, m, w.model.Clone()); err != nil {
			keep(t, again, fmt.Sprintf("%s-%d-%d", wl.name, seed, n))
			require.NoError(t, err, "%s: seed %d, cut at operation %d, %s, after %v", wl.name, seed, n, name, w.done)
		}
	}
	if n%7 == int64(seed%7) {
		crashInRecovery(t, w, seed, fmt.Sprintf("%s: seed %d, cut at %d", wl.name, seed, n))
	}
}

// seen settles what readers in other processes can see at the moment of the
// cut: DURABLE as it stands in the page cache. (I2)
func seen(t testing.TB, w *world) {
	t.Helper()
	im, err := evtest.ReadFS(w.m, w.p.dir)
	if err != nil || len(im.Bases()) == 0 {
		return
	}
	if _, err := im.Durable(); err != nil {
		return
	}
	for _, r := range im.Reader().Recs {
		require.NoError(t, w.model.Saw(r), "after %q", w.done)
	}
}

// crashInRecovery lets power fail again at every operation of the recovery.
func crashInRecovery(t *testing.T, w *world, seed uint64, what string) {
	t.Helper()
	first := w.m.Crash(seed)
	for n := int64(0); ; n++ {
		m := first.KillImage()
		p := onFS(t, m)
		m.SetTornCut(n, int(n)*13)
		l, err := evlog.Open(p.ctx, p.dir, &evlog.Options{NoPreallocate: true, OpenHook: anyHook, Clock: w.clock})
		model := w.model.Clone()
		if err == nil {
			recs, err := readAll(p.ctx, l.Reader())
			require.NoError(t, err, what)
			require.NoError(t, model.Crashed(recs), what) // what it shows now is settled
			_ = l.Close()
		} else {
			require.ErrorIs(t, err, vfs.ErrCut, what)
		}
		met := m.WasCut()
		for i := range uint64(evtest.Count(10)) {
			image := m.Crash(seed + i + uint64(n))
			if err := survives(t, image, model.Clone()); err != nil {
				require.NoError(t, err, "%s, again at operation %d of the recovery", what, n)
			}
		}
		require.NoError(t, survives(t, m.KillImage(), model), "%s, killed at operation %d of the recovery", what, n)
		if !met {
			return
		}
	}
}

// keep saves the image of a failure.
func keep(t testing.TB, m *vfs.Mem, name string) {
	t.Helper()
	tt, ok := t.(interface{ ArtifactDir() string })
	im, err := evtest.ReadFS(m, "/data/log")
	if !ok || err != nil {
		return
	}
	dir := filepath.Join(tt.ArtifactDir(), strings.ReplaceAll(name, " ", "_"))
	if err := im.WriteTo(dir); err == nil {
		t.Logf("image kept in %s", dir)
	}
}

// Every sync in turn fails, as on a dying disk; then power fails. (I5)
func TestCrash_AfterEveryFailedSync(t *testing.T) {
	for _, wl := range workloads() {
		t.Run(wl.name, func(t *testing.T) {
			t.Parallel()
			evtest.Seeds(t, 300, func(t *testing.T, seed uint64) {
				for n := 1; ; n++ {
					w := wl.begin(t, seed)
					m := w.m
					var hit atomic.Bool
					w.p = w.p.on(vfs.Inject(m, nil).After(func(_ vfs.Op, err error) {
						if errors.Is(err, errDying) {
							hit.Store(true)
						}
					}))
					m.FailSync(vfs.OpAnySync, notAbove, n, errDying)
					err := w.run(wl.script)
					if err != nil {
						require.ErrorContains(t, err, errDying.Error(), "seed %d, sync %d", seed, n)
					}
					w.abandon()
					seen(t, w)
					what := fmt.Sprintf("%s: seed %d, sync %d failed, after %v", wl.name, seed, n, w.done)
					// Before anything is reopened.
					for i := range uint64(evtest.Count(10)) {
						require.NoError(t, survives(t, m.Crash(seed+i), w.model.Clone()), what)
					}
					require.NoError(t, survives(t, m.KillImage(), w.model.Clone()), what)
					// Reopened in the page cache's state, where what the sync lost can
					// still be read, then power fails.
					live := m.KillImage()
					require.NoError(t, reopenThenPowerFails(t, live, w.model.Clone(), seed), what)
					if !hit.Load() {
						require.Greater(t, n, 5)
						return
					}
				}
			})
		})
	}
}

// notAbove matches every name but those of the directories above the log: a name
// in there that a failed sync lost is beyond what evlog can make again.
const notAbove = "[^d/]*"

// reopenThenPowerFails opens the log on what is there, settles all that it
// shows, appends, and takes the power away.
func reopenThenPowerFails(t testing.TB, m *vfs.Mem, model *evtest.Model, seed uint64) error {
	t.Helper()
	p := onFS(t, m)
	l, err := evlog.Open(p.ctx, p.dir, &evlog.Options{NoPreallocate: true, OpenHook: anyHook})
	if err != nil {
		return err
	}
	defer l.Close()
	recs, err := readAll(p.ctx, l.Reader())
	if err != nil {
		return err
	}
	if err := model.Crashed(recs); err != nil {
		return err
	}
	for i := range 3 {
		r := rec("again", fmt.Sprint(i))
		off, err := l.Append(p.ctx, r)
		if err != nil {
			return err
		}
		if err := model.Accept(off, r); err != nil {
			return err
		}
		model.Ack(off, 1)
	}
	if err := survives(t, m.SyncedImage(), model.Clone()); err != nil {
		return fmt.Errorf("reopened, then all unsynced was lost: %w", err)
	}
	return survives(t, m.Crash(seed), model)
}

// Repair is stopped at every operation, and done once more.
func TestCrash_InRepair(t *testing.T) {
	flip := func(b *builder, base uint64, pos int) evtest.Image {
		b.im[evtest.SegmentFile(base)][pos] ^= 1
		return b.im
	}
	for _, c := range []struct {
		name string
		im   evtest.Image
		min  uint64 // the next offset must not be lower
	}{
		{"closed segment", flip(build().segment(0, upTo(0, 4)...).segment(4, upTo(4, 8)...).segment(8, 8, 9).durable(10, 8), 4, 60), 10},
		{"active segment", flip(build().segment(0, upTo(0, 4)...).segment(4, upTo(4, 8)...).durable(8, 4), 4, 60), 8},
		{"active segment, first record", flip(build().segment(0, upTo(0, 4)...).segment(4, upTo(4, 8)...).durable(8, 4), 4, 9), 8},
		{"active segment, DURABLE lost too", flip(build().segment(0, upTo(0, 4)...).segment(4, upTo(4, 8)...), 4, 60), 4},
		{"log.json lost", func() evtest.Image {
			b := build().segment(0, upTo(0, 4)...).durable(4, 0)
			delete(b.im, "log.json")
			return b.im
		}(), 4},
		{"active segment lost", func() evtest.Image {
			b := build().segment(0, upTo(0, 4)...).segment(4, 4, 5).durable(6, 4)
			delete(b.im, evtest.SegmentFile(4))
			return b.im
		}(), 6},
		{"a consumer is ahead", build().segment(0, upTo(0, 4)...).file("consumers.json", []byte(`{"version":1,"log_id":"`+builtID+`","consumers":{"a":{"next_offset":9,"updated_ms":1}}}`)).im, 9},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			whole, _ := inMem(t)
			whole.put(t, c.im)
			rep, err := evlog.Repair(whole.ctx, whole.dir, &evlog.RepairOptions{Execute: true})
			require.NoError(t, err)
			require.GreaterOrEqual(t, rep.Next, c.min)
			opened := whole.open(t, nil)
			want, err := readAll(whole.ctx, opened.Reader())
			require.NoError(t, err)
			require.NoError(t, opened.Close())
			for n := int64(0); ; n++ {
				p, m := inMem(t)
				p.put(t, c.im)
				m.SetTornCut(n, 11)
				_, err := evlog.Repair(p.ctx, p.dir, &evlog.RepairOptions{Execute: true})
				met := m.WasCut()
				if met && err != nil {
					require.ErrorIs(t, err, vfs.ErrCut)
				}
				images := []*vfs.Mem{m.KillImage(), m.SyncedImage()}
				for seed := range uint64(evtest.Count(300)) {
					images = append(images, m.Crash(seed+uint64(n)*77))
				}
				for _, image := range images {
					q := onFS(t, image)
					again, err := evlog.Repair(q.ctx, q.dir, &evlog.RepairOptions{Execute: true})
					require.NoError(t, err, "cut at %d", n)
					require.GreaterOrEqual(t, again.Next, c.min, "cut at %d", n)
					l := q.open(t, &evlog.Options{Verify: evlog.VerifyAll})
					got, err := readAll(q.ctx, l.Reader())
					require.NoError(t, err)
					sameRecs(t, want, got, "cut at %d", n)
					off, err := l.Append(q.ctx, rec("k", "v"))
					require.NoError(t, err)
					require.GreaterOrEqual(t, off, c.min, "cut at %d: an offset comes back", n)
					require.NoError(t, l.Close())
					q.verified(t)
				}
				if !met {
					return
				}
			}
		})
	}
}

// A reader in another process looks while the writer is stopped at every
// operation: what it saw must not change in any crash after it.
func TestCrash_WhatConcurrentReadersSaw(t *testing.T) {
	evtest.Seeds(t, 100, func(t *testing.T, seed uint64) {
		m := vfs.NewMem()
		w := worldOn(t, m, seed, evlog.Options{NoPreallocate: seed%2 == 0, SegmentBytes: 300})
		model := w.model
		// Indexes are written in the background, beside appends: so operations
		// come from more than one goroutine.
		var mu sync.Mutex
		var failure error
		w.p = w.p.on(vfs.Inject(m, func(op vfs.Op) error {
			mu.Lock()
			defer mu.Unlock()
			if op.Kind&changesLog == 0 || failure != nil {
				return nil
			}
			im, err := evtest.ReadFS(m, w.p.dir)
			if err != nil || len(im.Bases()) == 0 {
				return nil //nolint:nilerr // being created
			}
			if _, err := im.Durable(); err != nil {
				return nil //nolint:nilerr // a reader waits
			}
			for _, r := range im.Reader().Recs {
				if err := model.Saw(r); err != nil {
					failure = fmt.Errorf("before %v: %w", op, err)
				}
			}
			if op.Seq%5 == int64(seed%5) {
				var after *vfs.Mem
				then := model.CloneWith(func() { after = m.Crash(seed + uint64(op.Seq)) })
				if err := survives(t, after, then); err != nil {
					failure = fmt.Errorf("before %v: %w", op, err)
				}
			}
			return nil
		}))
		require.NoError(t, w.run("open, append 1, append 3, enqueue 2, append 2, roll, append 1, append 2, enqueue 3, close"))
		require.NoError(t, failure, "seed %d", seed)
	})
}
