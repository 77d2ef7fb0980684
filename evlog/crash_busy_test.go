package evlog_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

// Opening makes the names that it finds durable beside everything else. However late
// that ends, and if it fails, whatever somebody was told or shown by then survives a
// power failure before any operation, and nobody is told or shown anything earlier.
// Then the log is opened on what a crash has left, and again. (I1, I2, I3, I5)
func TestCrash_BesideTheSyncOfOpening(t *testing.T) {
	evtest.Seeds(t, 1500, func(t *testing.T, seed uint64) {
		rng := evtest.Rand(seed)
		w := newWorld(t, seed, evlog.Options{
			SegmentBytes: 200 + rng.Int64N(3000), IndexBytes: 1 + rng.Int64N(500),
			Sync: evlog.SyncPolicy(1 + rng.IntN(3)), SyncInterval: time.Millisecond,
			NoPreallocate: rng.IntN(2) == 0, BufferBytes: 1 + rng.Int64N(4000),
		})
		w.opts.Clock = nil
		if rng.IntN(8) == 0 {
			w.opts.SegmentBytes = 1 << 20 // so much that zeros are written ahead
		}
		require.NoError(t, w.run("open, append 3, delete 1, enqueue 3, roll, append 2, flush, append 2, close"))
		copied := rng.IntN(4) == 0
		if copied {
			// What stands in a log whose names are nowhere but in the page cache is shown to
			// nobody yet.
			unsynced(t, w.p)
			w.model = shownToNobody(t, w.p)
		}
		for range 1 + rng.IntN(3) {
			o := &busyLog{w: w, seed: seed, rng: rng, calls: 6, copied: copied && w.model.Next() == 0}
			o.chooseLateSync()
			o.run(t)
			if t.Failed() {
				return
			}
			lost := o.copied && w.model.Next() == 0 // if power fails
			m, killed := w.m.KillImage(), true
			if rng.IntN(2) == 0 && !lost {
				m, killed = w.m.Crash(rng.Uint64()), false
			}
			w.m, w.p = m, onFS(t, m)
			out := w.p.image(t).Writer()
			require.NoError(t, out.Err, o)
			switch {
			case lost:
				w.model = shownToNobody(t, w.p)
			case killed: // the tail is shown to nobody before it was written again
				require.NoError(t, w.model.Check(out.Recs), o)
				w.model.Forget(out.Next, 1<<10)
			default:
				require.NoError(t, w.model.Crashed(out.Recs), o)
			}
		}
	})
}

// shownToNobody is the model of a log that a power failure may take.
func shownToNobody(t *testing.T, p place) *evtest.Model {
	model := evtest.NewModel()
	for _, r := range p.image(t).Writer().Recs {
		require.NoError(t, model.Accept(r.Offset, evtest.RecordOf(r)))
	}
	return model
}

// Zeros are written and synced ahead of the records, beside everything else. Power
// fails before operations, the disk is full, or dies, where zeros are written and
// synced, and elsewhere: what somebody was told or shown is there. (I1, I2, I3, I5)
func TestCrash_BesideZeros(t *testing.T) {
	evtest.Seeds(t, 300, func(t *testing.T, seed uint64) {
		rng := evtest.Rand(seed)
		w := newWorld(t, seed, evlog.Options{
			SegmentBytes: 64<<10 + rng.Int64N(200<<10), BufferBytes: 1 + rng.Int64N(8000),
			Sync: evlog.SyncPolicy(1 + rng.IntN(3)), SyncInterval: time.Millisecond,
		})
		w.opts.Clock = nil
		require.NoError(t, w.run("open, append 3, roll, append 2, close"))
		for range 1 + rng.IntN(2) {
			o := &busyLog{w: w, seed: seed, rng: rng, calls: 25}
			o.settled.Store(true)
			o.chooseTrouble()
			o.run(t)
			if t.Failed() {
				return
			}
			m := w.m.Crash(rng.Uint64())
			m.SetCapacity(-1)
			w.m, w.p = m, onFS(t, m)
			out := w.p.image(t).Writer()
			require.NoError(t, out.Err, o)
			require.NoError(t, w.model.Crashed(out.Recs), o)
		}
	})
}

// busyLog is a log from its opening on, with several things that are done at once.
type busyLog struct {
	w      *world
	seed   uint64
	rng    *rand.Rand
	calls  int  // of each caller, at most
	copied bool // nothing of what is there is durable

	late    bool       // the first directory sync is
	after   int64      // it goes on after so many changes
	fails   vfs.OpKind // which of the two syncs of opening; 0: neither
	cause   error      // of what fails
	trouble func(op vfs.Op) error
	name    string // of the trouble
	settled atomic.Bool
	did     string
}

func (o *busyLog) String() string {
	return fmt.Sprintf("seed %d: copied %v, late by %d changes: %v, fails: %v %s %v, beside: %s, %+v",
		o.seed, o.copied, o.after, o.late, o.fails, o.name, o.cause, o.did, o.w.opts)
}

// chooseLateSync decides how late the sync of opening is, and how it ends.
func (o *busyLog) chooseLateSync() {
	o.late, o.after = true, o.rng.Int64N(25)
	switch o.rng.IntN(6) {
	case 0: // it loses what it was to make durable
		if o.copied {
			break // nothing shows later that the names are lost
		}
		o.fails, o.cause = vfs.OpDirSync, errDying
		o.w.m.FailSync(vfs.OpDirSync, notAbove, 1, errDying)
	case 1:
		o.fails, o.cause = vfs.OpDirSync, syscall.ENOSPC
	case 2:
		o.fails, o.cause = vfs.OpSyncParent, syscall.EIO
	}
}

// chooseTrouble decides what is wrong with zeros, or with the disk.
func (o *busyLog) chooseTrouble() {
	m, left := o.w.m, atomic.Int64{}
	left.Store(o.rng.Int64N(6))
	ahead := func(op vfs.Op) bool { // nobody else writes so much
		return op.Kind == vfs.OpWrite && op.Len >= 32<<10 && strings.HasSuffix(op.Name, ".log")
	}
	switch o.rng.IntN(7) {
	case 0:
		o.name = "none"
	case 1:
		o.name, o.cause = "no space is allocated", syscall.ENOSPC
		o.trouble = func(op vfs.Op) error {
			if op.Kind == vfs.OpAllocate && left.Add(-1) < 0 {
				return syscall.ENOSPC
			}
			return nil
		}
	case 2, 3:
		o.name, o.cause = "zeros are written in part", []error{syscall.ENOSPC, syscall.EIO}[o.rng.IntN(2)]
		n := o.rng.IntN(60 << 10)
		o.trouble = func(op vfs.Op) error {
			if ahead(op) && left.Add(-1) < 0 {
				return &vfs.ShortWrite{N: n, Err: o.cause}
			}
			return nil
		}
	case 4:
		o.name, o.cause = "a sync beside zeros fails", errDying
		o.trouble = func(op vfs.Op) error {
			switch {
			case ahead(op) && left.Add(-1) == -1:
				m.FailSync(vfs.OpSyncData, "*.log", 1, errDying)
			case op.Kind == vfs.OpSyncData && strings.HasSuffix(op.Name, ".log"):
				time.Sleep(100 * time.Microsecond) // it may take records along that others have written
			}
			return nil
		}
	case 5:
		o.name, o.cause = "a sync fails", errDying
		m.FailSync(vfs.OpSyncData|vfs.OpSync, "*.log", 1+o.rng.IntN(40), errDying)
	case 6:
		o.name, o.cause = "the disk is full", syscall.ENOSPC
		m.SetCapacity(m.Used() + 70<<10 + o.rng.Int64N(200<<10))
	}
}

func (o *busyLog) run(t *testing.T) {
	w, rng, m := o.w, o.rng, o.w.m
	fsys, let := o.fsys(t)
	defer let()
	opts := w.opts
	l, err := evlog.Open(vfs.NewContext(w.p.ctx, fsys), w.p.dir, &opts)
	if err != nil {
		o.told(t, "open", err)
		return
	}
	o.beside(t, l)
	let()
	if rng.IntN(3) > 0 {
		o.told(t, "close", l.Close())
	} else {
		image := m.KillImage() // what is done from here on is not
		_ = l.Close()
		o.w.m = image
	}
	if !o.copied || o.settled.Load() {
		seen(t, w)
	}
}

// fsys is the file system, and what lets the late sync go on.
func (o *busyLog) fsys(t *testing.T) (vfs.FS, func()) {
	m := o.w.m
	free := make(chan struct{})
	let := sync.OnceFunc(func() { close(free) })
	// Where all wait for it there are no more changes.
	time.AfterFunc(time.Duration(o.rng.IntN(3000))*time.Microsecond, let)
	var dirSync, parent atomic.Bool
	var changes atomic.Int64
	every := 1 + o.rng.Int64N(2*int64(o.calls))
	return vfs.Inject(m, func(op vfs.Op) error {
		if op.Kind&changesLog == 0 {
			return nil
		}
		n := changes.Add(1)
		if n >= o.after {
			let()
		}
		if n%every == 0 {
			o.powerFails(t, op, o.seed*1009+uint64(n))
		}
		if o.trouble != nil {
			return o.trouble(op)
		}
		switch {
		case !o.late:
		case op.Kind == vfs.OpDirSync && dirSync.CompareAndSwap(false, true):
			<-free
		case op.Kind == vfs.OpSyncParent && parent.CompareAndSwap(false, true):
		default:
			return nil
		}
		if o.fails == op.Kind && o.cause != errDying {
			return o.cause
		}
		return nil
	}).After(func(op vfs.Op, err error) {
		if op.Kind == vfs.OpSyncParent && err == nil {
			o.settled.Store(true)
		}
		if errors.Is(err, errDying) {
			time.Sleep(time.Millisecond) // others sync meanwhile, and find nothing left to be written
		}
	}), let
}

// powerFails looks at what a power failure would leave now.
func (o *busyLog) powerFails(t *testing.T, op vfs.Op, seed uint64) {
	var left *vfs.Mem
	model := o.w.model.CloneWith(func() { left = o.w.m.Crash(seed) })
	if o.copied && model.Next() == 0 {
		return // nobody was told or shown anything
	}
	left.SetCapacity(-1) // or what follows damage could not be saved
	if err := survives(t, left, model); err != nil {
		t.Errorf("power fails before %v: %v\n%v", op, err, o)
	}
}

// told judges the end of a call: a success only after the names were durable, and an
// error only where there is reason for one.
func (o *busyLog) told(t *testing.T, what string, err error) bool {
	var behind *evlog.OffsetError
	switch {
	case err == nil && (!o.settled.Load() || o.fails != 0):
		t.Errorf("%s: told before the names were durable\n%v", what, o)
	case err == nil:
		return true
	case errors.Is(err, evlog.ErrClosed), errors.Is(err, context.Canceled), errors.As(err, &behind):
	case o.cause != nil && errors.Is(err, o.cause):
	default:
		t.Errorf("%s: %v\n%v", what, err, o)
	}
	return false
}

// beside does several things at once.
func (o *busyLog) beside(t *testing.T, l *evlog.Log) {
	w := o.w
	ctx, cancel := context.WithCancel(w.p.ctx)
	defer cancel()
	var all, readers sync.WaitGroup
	saw := func(what string, rec evlog.Record, err error) bool {
		if !o.told(t, what, err) {
			return false
		}
		if err := w.model.Saw(evtest.RecOf(rec)); err != nil {
			t.Errorf("%s: %v\n%v", what, err, o)
		}
		return true
	}
	readers.Go(func() {
		for rec, err := range l.Reader().Follow(ctx, 0) {
			if !saw("follow", rec, err) {
				return
			}
		}
	})
	readers.Go(func() {
		if rec, err := l.Reader().Get(ctx, 1); !errors.Is(err, evlog.ErrNotFound) {
			saw("get", rec, err)
		}
	})
	if !o.copied { // in another process: what it sees was durable before
		r := w.p.reader(t, nil)
		readers.Go(func() {
			for rec, err := range r.Follow(ctx, 0) {
				if err != nil {
					return
				}
				if err := w.model.Saw(evtest.RecOf(rec)); err != nil {
					t.Errorf("another process: %v\n%v", err, o)
				}
			}
		})
	}
	names, keep := o.rng.IntN(8), o.rng.Uint64N(6)
	next := l.Stats().NextOffset
	o.did = []string{"nothing", "roll", "retain", "compact", "reindex", "gate", "close", "roll to"}[names]
	for c := range 2 + o.rng.IntN(3) {
		seed := o.rng.Uint64()
		all.Go(func() {
			g := evtest.NewGen(seed)
			for i := range 1 + g.Rng.IntN(o.calls) {
				if !o.call(t, l, g, c, i) {
					return
				}
			}
		})
	}
	if o.did == "compact" { // before anybody sees what it does
		w.model.Compacting(true)
		w.model.Unfinished(true)
	}
	all.Go(func() {
		switch o.did {
		case "roll":
			o.told(t, o.did, l.Roll(ctx))
		case "roll to":
			if err := l.RollTo(ctx, l.Stats().NextOffset+100); !errors.Is(err, evlog.ErrBadOptions) { // it is empty
				o.told(t, o.did, err)
			}
		case "retain":
			below := next - min(next, keep)
			w.model.Due(below)
			_, err := l.Retain(ctx, &evlog.RetainOptions{Below: below})
			if err != nil || o.settled.Load() {
				o.told(t, o.did, err)
			}
		case "compact":
			_, err := l.Compact(ctx, purging())
			if err != nil || o.settled.Load() {
				o.told(t, o.did, err)
			}
		case "reindex":
			if n, err := l.Reindex(ctx, nil); err != nil || n > 0 {
				o.told(t, o.did, err)
			}
		case "gate":
			if g, err := l.Gate(ctx, "test"); o.told(t, o.did, err) {
				end, err := g.End(ctx)
				o.told(t, o.did, err)
				w.model.Ack(0, int(end))
				g.Release()
			}
		case "close":
			o.told(t, o.did, l.Close())
		}
	})
	all.Wait()
	cancel()
	readers.Wait()
}

// call is one call of one of several callers; false is the last one.
func (o *busyLog) call(t *testing.T, l *evlog.Log, g *evtest.Gen, c, i int) bool {
	w := o.w
	batch := g.Batch(3)
	for j := range batch {
		batch[j].Value = append(fmt.Appendf(nil, "%d/%d/%d/%d ", l.Stats().NextOffset, c, i, j), batch[j].Value...)
	}
	if g.Rng.IntN(4) == 0 { // also with nothing new
		next := l.Stats().NextOffset
		if !o.told(t, "flush", l.Flush(w.p.ctx)) {
			return false
		}
		w.model.Ack(0, int(next))
		return true
	}
	w.model.Intend(batch...)
	wait, first, err := g.Rng.IntN(3) > 0, uint64(0), error(nil)
	if wait {
		first, err = l.Append(w.p.ctx, batch...)
	} else {
		first, err = l.Enqueue(w.p.ctx, batch...)
	}
	if err != nil || wait {
		if !o.told(t, "append", err) {
			return false
		}
	}
	if err := w.model.Accept(first, batch...); err != nil {
		t.Errorf("%v\n%v", err, o)
	}
	if wait {
		w.model.Ack(first, len(batch))
	}
	return true
}
