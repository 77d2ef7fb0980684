package evlog_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/internal/vfs"
)

// Many callers and followers at once, under every policy; then power fails at
// some operation. Whatever somebody was told or shown is there. (I1, I2, I3)
func TestCrash_ConcurrentCallers(t *testing.T) {
	evtest.Seeds(t, 2000, func(t *testing.T, seed uint64) {
		rng := evtest.Rand(seed)
		opts := evlog.Options{
			SegmentBytes: 200 + rng.Int64N(100_000), IndexBytes: 1 + rng.Int64N(500),
			BufferBytes: 1 + rng.Int64N(4000), Sync: evlog.SyncPolicy(1 + rng.IntN(3)),
			SyncInterval: time.Millisecond, NoPreallocate: rng.IntN(2) == 0,
		}
		w := newWorld(t, seed, opts)
		w.opts.Clock = nil
		require.NoError(t, w.run("open"))
		var what string
		if rng.IntN(3) > 0 {
			n := rng.Int64N(400)
			w.m.SetTornCut(n, rng.IntN(600))
			what = fmt.Sprintf("seed %d, cut at operation %d, %+v", seed, n, opts)
		} else {
			n := 1 + rng.IntN(100)
			w.m.FailSync(vfs.OpAnySync, notAbove, n, errDying)
			what = fmt.Sprintf("seed %d, sync %d fails, %+v", seed, n, opts)
		}
		work(t, w, seed)
		w.abandon()
		seen(t, w)
		require.NoError(t, reopenThenPowerFails(t, w.m.KillImage(), w.model.Clone(), seed), what)
		images := []*vfs.Mem{w.m.KillImage(), w.m.SyncedImage()}
		for i := range uint64(4) {
			images = append(images, w.m.Crash(seed+i))
		}
		for _, m := range images {
			again := m.KillImage()
			if err := survives(t, m, w.model.Clone()); err != nil {
				keep(t, again, fmt.Sprintf("concurrent-%d", seed))
				require.NoError(t, err, what)
			}
		}
	})
}

var errDying = errors.New("the disk is dying")

// work lets callers append, and followers read, until the log fails.
func work(t *testing.T, w *world, seed uint64) {
	t.Helper()
	ctx, cancel := context.WithCancel(w.p.ctx)
	defer cancel()
	var callers, followers sync.WaitGroup
	for i, r := range []*evlog.Reader{w.l.Reader(), w.p.reader(t, nil)} {
		followers.Go(func() {
			for rec, err := range r.Follow(ctx, 0) {
				if err != nil {
					return // the log is poisoned, or the test over
				}
				if err := w.model.Saw(evtest.RecOf(rec)); err != nil {
					t.Errorf("seed %d, follower %d: %v", seed, i, err)
					return
				}
			}
		})
	}
	for c := range 5 {
		callers.Go(func() {
			g := evtest.NewGen(seed*10 + uint64(c))
			for i := range 60 {
				if err := w.call(g, c, i); err != nil {
					if !errors.Is(err, vfs.ErrCut) && !errors.Is(err, errDying) {
						t.Errorf("seed %d: %v", seed, err)
					}
					return
				}
			}
		})
	}
	callers.Wait()
	cancel()
	followers.Wait()
}

// call is one call of one of several callers.
func (w *world) call(g *evtest.Gen, c, i int) error {
	batch := g.Batch(4)
	for j := range batch {
		batch[j].Value = append(fmt.Appendf(nil, "%d/%d/%d ", c, i, j), batch[j].Value...)
	}
	w.model.Intend(batch...)
	var first uint64
	var err error
	switch g.Rng.IntN(8) {
	case 0:
		return w.l.Flush(w.p.ctx)
	case 1:
		if c == 0 {
			return w.l.Roll(w.p.ctx)
		}
		fallthrough
	case 2, 3:
		if first, err = w.l.Enqueue(w.p.ctx, batch...); err != nil {
			return err
		}
		return w.model.Accept(first, batch...)
	}
	if first, err = w.l.Append(w.p.ctx, batch...); err != nil {
		return err
	}
	if err := w.model.Accept(first, batch...); err != nil {
		return err
	}
	w.model.Ack(first, len(batch))
	return nil
}
