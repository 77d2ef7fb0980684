package evlog_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/evlog/evlogtest"
	"github.com/evlog-go/evlog/evlog/table"
	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/internal/vfs"
)

// Random steps against the model: appends of every kind, flushes, rolls,
// reopening, being killed, power failures, readers that come and go and keep
// their cursors, deleted indexes, a full disk, compactions and removals, hours that
// pass, a wall clock that is set, and every kind of question after each step.
func TestModel_RandomSteps(t *testing.T) {
	evtest.Seeds(t, 2000, func(t *testing.T, seed uint64) { t.Run("", func(t *testing.T) { randomSteps(t, seed) }) })
	removals.Lock()
	defer removals.Unlock()
	t.Logf("where the log did so by itself: %d compactions, %d segments removed; unlinked because of: %v; tombstones that went after a grace: %d",
		inBackground.compacted.Load(), inBackground.removed.Load(), removals.by, expired.Load())
}

func randomSteps(t *testing.T, seed uint64) {
	r := &random{t: t, seed: seed, gen: evtest.NewGen(seed)}
	rng := r.gen.Rng
	r.opts = evlog.Options{
		SegmentBytes:  1 + rng.Int64N(3000),
		IndexBytes:    1 + rng.Int64N(500),
		BufferBytes:   1 + rng.Int64N(5000),
		Sync:          evlog.SyncPolicy(1 + rng.IntN(3)),
		SyncInterval:  time.Millisecond,
		NoPreallocate: rng.IntN(2) == 0,
	}
	r.chooseHousekeeping()
	w := newWorld(t, seed, r.opts)
	w.gen = r.gen
	r.w, r.clock, r.jumps = w, w.clock, &jumps{clock: w.clock}
	w.m.SetNow(w.clock.Now)
	w.model.SetClock(w.clock.Now, r.jumps.waits)
	drive(t, w.clock, r.speed())
	defer r.closeTable()
	w.model.SetGrace(r.opts.TombstoneGrace)
	if r.background() {
		w.model.CompactingAlways(r.opts.TombstoneGrace < 0)
	}
	w.p = r.place(w.m)
	r.open()
	for range 60 {
		r.beginStep()
		r.step()
		r.fatal(r.keeps.failure())
		r.noteClosed()
		r.checkTable()
		r.questions(w.l.Reader(), 1)
		if t.Failed() {
			return
		}
	}
	r.fatal(w.run("flush"))
	r.questions(w.l.Reader(), everyOne)
	r.fatal(w.run("read, close"))
	r.jumps.look()
	r.fatal(r.keeps.failure())
	w.p.verified(t)
	recs := w.p.image(t).Writer().Recs
	r.fatal(w.model.Check(recs))
	if r.exact() {
		sameRecs(t, w.model.Settled(), recs, "seed %d", seed)
	}
}

type random struct {
	t       *testing.T
	seed    uint64
	gen     *evtest.Gen
	opts    evlog.Options
	w       *world
	cursors []*cursor

	clock *evlogtest.Clock
	jumps *jumps
	keeps *retention
	unit  time.Duration        // in which ages and graces are chosen
	sure  map[uint64]time.Time // tombstones: when their grace had begun for sure

	closed   map[uint64]time.Time // records: when they were in a closed segment already
	clockSet bool                 // the wall clock was set

	windows bool
	table   *table.Table // of tableOf
	tableOf *evlog.Log
}

// open opens the log.
func (r *random) open() {
	r.w.model.Begin() // whose grace is over by now keeps that
	r.jumps.opens()
	r.fatal(r.w.run("open"))
}

// exact reports whether the model knows of each record whether it is there.
func (r *random) exact() bool { return !r.background() && !r.w.model.IsUnfinished() }

// cursor is a reader somewhere in the log. It holds an offset and nothing
// else. (I6)
type cursor struct {
	r    *evlog.Reader
	next uint64
}

func (r *random) fatal(err error) {
	r.t.Helper()
	if err != nil {
		require.NoError(r.t, err, "seed %d, after %q", r.seed, r.w.done)
	}
}

func (r *random) step() {
	rng, w := r.gen.Rng, r.w
	switch rng.IntN(33) {
	case 0, 1, 2, 3:
		r.fatal(w.run(fmt.Sprintf("append %d", 1+rng.IntN(4))))
	case 4, 5, 6:
		r.fatal(w.run(fmt.Sprintf("enqueue %d", 1+rng.IntN(4))))
	case 7:
		r.fatal(w.run(fmt.Sprintf("exact %d", rng.IntN(50))))
	case 8:
		r.fatal(w.run("flush"))
	case 9:
		r.fatal(w.run("roll"))
	case 10:
		r.fatal(w.run("close"))
		r.jumps.look()
		if rng.IntN(3) == 0 {
			r.clock.Advance(r.aWhile())
		}
		r.open()
	case 11:
		r.unindex()
		if rng.IntN(2) == 0 {
			r.fatal(w.run("reindex"))
		}
	case 12:
		r.crash(w.m.KillImage(), "kill")
	case 13:
		r.crash(w.m.Crash(rng.Uint64()), "power failure")
	case 14:
		r.fatal(w.run("read"))
	case 15:
		r.cursors = append(r.cursors, &cursor{r: w.p.reader(r.t, nil)})
	case 16, 17:
		r.advance()
	case 18:
		r.ask()
	case 19:
		r.fullDisk()
	case 20:
		// A removal of which nobody knows whether it is durable may leave a hole.
		if !r.background() || r.storedLimits() == (limits{}) {
			r.dyingDisk()
		}
	case 21:
		r.fatal(w.run(fmt.Sprintf("delete %d", 1+rng.IntN(4))))
	case 22:
		r.compact(fmt.Sprintf("compact %d", rng.IntN(9)))
	case 23:
		r.fatal(w.run("roll"))
		r.waitForTable() // without a grace it would never hear of what is deleted
		r.compact(fmt.Sprintf("purge %d", rng.IntN(9)))
	case 24, 25, 26:
		r.retain()
	case 27, 28, 29:
		r.advanceClock()
	case 30:
		r.setClock()
	case 31:
		r.commit()
	case 32: // what was cleaned, and after its grace
		r.fatal(w.run("roll"))
		r.waitForTable()
		r.compact("compact")
		r.clock.Advance(max(0, r.opts.TombstoneGrace) + time.Minute)
		r.compact("compact")
	}
}

// dyingDisk lets a sync fail. The log is poisoned, and its process goes: what
// is in the page cache then is what the next one finds. (I5)
func (r *random) dyingDisk() {
	w, rng := r.w, r.gen.Rng
	w.done = append(w.done, "dying disk")
	w.m.FailSync(vfs.OpAnySync, notAbove, 1+rng.IntN(4), errDying)
	steps := []string{"append 2", "enqueue 1", "flush", "roll", "append 1", "exact 3", "reindex", "compact", "roll, purge 2"}
	for range 8 {
		if err := w.run(steps[rng.IntN(len(steps))]); err != nil {
			if !errors.Is(err, errDying) {
				r.fatal(err)
			}
			break
		}
	}
	if r.background() {
		_ = w.l.Close() // who merges segments hears of the failure before the end
	}
	if rng.IntN(3) == 0 {
		r.crash(w.m.Crash(rng.Uint64()), "power failure")
	} else {
		r.crash(w.m.KillImage(), "kill")
	}
}

// crash goes on with what a crash left. Readers of before are gone, what they
// saw is not.
func (r *random) crash(m *vfs.Mem, what string) {
	w := r.w
	w.done = append(w.done, what)
	// Everything that stands in DURABLE may have been seen by somebody.
	seen(r.t, &world{m: m, p: onFS(r.t, m), model: w.model, done: w.done})
	r.keeps.leave()
	w.abandon()
	clear(r.sure)
	for _, c := range r.cursors {
		_ = c.r.Close()
	}
	w.m = m
	m.SetCapacity(-1)
	w.p = r.place(m)
	im := w.p.image(r.t)
	recs := im.Writer()
	r.fatal(recs.Err)
	r.fatal(w.model.Crashed(recs.Recs))
	r.open()
	if next := w.l.Stats().NextOffset; next < w.model.Next() {
		r.fatal(fmt.Errorf("next is %d, %d was settled", next, w.model.Next()-1))
	}
	if bases := im.Bases(); len(bases) > 0 && !r.background() {
		// Opening has made durable what retention has removed. A first record that
		// compaction has removed is another matter.
		w.model.GoneIfDue(bases[0])
	}
	for _, c := range r.cursors {
		c.r = w.p.reader(r.t, nil)
	}
}

// advance lets a cursor read on a little.
func (r *random) advance() {
	if len(r.cursors) == 0 {
		return
	}
	c := r.cursors[r.gen.Rng.IntN(len(r.cursors))]
	n := r.gen.Rng.IntN(20)
	for rec, err := range c.r.Records(r.w.p.ctx, c.next) {
		if first, behind := r.behind(err, c.next); behind {
			c.next = first
			break
		}
		r.fatal(err)
		r.fatal(r.span([]evtest.Rec{evtest.RecOf(rec)}, c.next, rec.Offset+1))
		c.next = rec.Offset + 1
		if n--; n < 0 {
			break
		}
	}
}

// ask compares every kind of question with brute force.
func (r *random) ask() {
	r.fatal(r.w.run("flush"))
	reader := r.w.l.Reader()
	if r.gen.Rng.IntN(2) == 0 {
		reader = r.w.p.reader(r.t, nil)
		defer reader.Close()
	}
	r.questions(reader, 5)
	settled := r.w.model.Settled()
	if len(settled) > 0 && r.exact() {
		checkSome(r.t, r.w.p.ctx, reader, settled, r.gen.Rng, fmt.Sprintf("seed %d, after %q", r.seed, r.w.done))
	}
}

// checkSome asks a few questions of each kind.
func checkSome(t *testing.T, ctx context.Context, r *evlog.Reader, want []evtest.Rec, rng interface {
	IntN(int) int
	Uint64N(uint64) uint64
}, what string,
) {
	t.Helper()
	first, _, err := r.Bounds(ctx)
	require.NoError(t, err, what)
	for range 5 {
		pick := want[rng.IntN(len(want))]
		off := max(first, pick.Offset-min(pick.Offset, rng.Uint64N(3)))
		got, err := collect(r.Records(ctx, off))
		require.NoError(t, err, what)
		sameRecs(t, from(want, off), got, "from %d: %s", off, what)
		got, err = collect(r.Backward(ctx, off))
		require.NoError(t, err, what)
		sameRecs(t, reversed(want[:len(want)-len(from(want, off))]), got, "backward from %d: %s", off, what)
		ms := pick.TimeMS + int64(rng.IntN(3)) - 1
		at, err := r.OffsetAt(ctx, time.UnixMilli(ms))
		if wantAt, ok := evtest.At(want, ms); ok {
			require.NoError(t, err, what)
			require.Equal(t, wantAt, at, "at %d ms: %s", ms, what)
		} else {
			require.ErrorIs(t, err, evlog.ErrNotFound, what)
		}
		if len(pick.Key) > 0 {
			with := slices.DeleteFunc(slices.Clone(want), func(o evtest.Rec) bool { return string(o.Key) != string(pick.Key) })
			got, err := collect(r.ByKey(ctx, pick.Key, first))
			require.NoError(t, err, what)
			sameRecs(t, with, got, "key %q: %s", pick.Key, what)
			latest, err := r.Latest(ctx, pick.Key)
			require.NoError(t, err, what)
			sameRecs(t, with[len(with)-1:], []evtest.Rec{evtest.RecOf(latest)}, "latest of %q: %s", pick.Key, what)
		}
		n := 1 + rng.IntN(len(want))
		last, err := r.OffsetOfLast(ctx, n)
		require.NoError(t, err, what)
		require.Equal(t, want[len(want)-n].Offset, last, "last %d: %s", n, what)
	}
}

// fullDisk lets an append meet the end of the disk, with and without enqueued
// records around it, and frees space again.
func (r *random) fullDisk() {
	w, rng := r.w, r.gen.Rng
	w.done = append(w.done, "full disk")
	if rng.IntN(2) == 0 {
		r.fatal(w.step("flush"))
	}
	w.m.SetCapacity(w.m.Used() + rng.Int64N(400))
	for range 1 + rng.IntN(4) {
		batch := r.gen.Records(1 + rng.IntN(3))
		w.model.Intend(batch...)
		var first uint64
		var err error
		enqueued := rng.IntN(2) == 0
		if enqueued {
			first, err = w.l.Enqueue(w.p.ctx, batch...)
		} else {
			first, err = w.l.Append(w.p.ctx, batch...)
		}
		if err != nil {
			if errors.Is(err, evlog.ErrPoisoned) || !errorIsENOSPC(err) {
				r.fatal(err)
			}
			continue
		}
		r.fatal(w.model.Accept(first, batch...))
		if !enqueued {
			w.model.Ack(first, len(batch))
		}
	}
	if rng.IntN(3) == 0 {
		r.fatal(w.step("read"))
	}
	if rng.IntN(4) == 0 { // while it is full
		r.crash(w.m.Crash(rng.Uint64()), "power failure on a full disk")
		return
	}
	w.m.SetCapacity(-1)
	r.fatal(w.step("flush"))
}
