package evlog_test

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/evlog/evlogtest"
	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/internal/vfs"
)

// world is a log under test together with the model of it. Steps are words, so
// that a failure can print what was done.
type world struct {
	p     place
	m     *vfs.Mem
	clock *evlogtest.Clock
	opts  evlog.Options
	l     *evlog.Log
	model *evtest.Model
	gen   *evtest.Gen
	done  []string

	compacted *evlog.CompactReport // of the last compaction
}

func newWorld(t testing.TB, seed uint64, opts evlog.Options) *world {
	return worldOn(t, vfs.NewMem(), seed, opts)
}

func worldOn(t testing.TB, m *vfs.Mem, seed uint64, opts evlog.Options) *world {
	t.Helper()
	w := &world{p: onFS(t, m), m: m, model: evtest.NewModel(), gen: evtest.NewGen(seed)}
	w.clock = evlogtest.NewClock(time.UnixMilli(1_700_000_000_000))
	w.gen.Max = 700 // a record may be larger than a sector
	w.opts = opts
	w.opts.Clock = w.clock
	t.Cleanup(func() {
		if w.l != nil {
			_ = w.l.Close()
		}
	})
	return w
}

// run does the steps up to the first error, which is what a cut brings.
func (w *world) run(script string) error {
	for step := range strings.SplitSeq(script, ",") {
		step = strings.TrimSpace(step)
		w.done = append(w.done, step)
		w.model.Begin()
		if err := w.step(step); err != nil {
			return fmt.Errorf("%s: %w", step, err)
		}
	}
	return nil
}

func (w *world) step(step string) error {
	verb, arg, _ := strings.Cut(step, " ")
	n, _ := strconv.Atoi(arg)
	switch verb {
	case "open":
		return w.open()
	case "append":
		return w.append(n)
	case "delete":
		return w.appendThese(w.gen.Deletes(n))
	case "enqueue":
		batch := w.gen.Records(n)
		first, err := w.l.Enqueue(w.p.ctx, batch...)
		if err != nil {
			return err
		}
		return w.model.Accept(first, batch...)
	case "exact": // a hole of n offsets in front
		r := w.gen.Record()
		w.model.Intend(r)
		r.Offset = w.l.Stats().NextOffset + uint64(n)
		if err := w.l.AppendExact(w.p.ctx, r); err != nil {
			return err
		}
		if err := w.model.Accept(r.Offset, r); err != nil {
			return err
		}
		w.model.Ack(r.Offset, 1)
	case "flush":
		if err := w.l.Flush(w.p.ctx); err != nil {
			return err
		}
		w.model.AckAll()
	case "roll":
		if err := w.l.Roll(w.p.ctx); err != nil {
			return err
		}
		w.model.AckAll()
	case "skip": // a hole of n offsets, and a roll
		next := w.l.Stats().NextOffset + uint64(n)
		if err := w.l.RollTo(w.p.ctx, next); err != nil {
			return err
		}
		w.model.AckAll()
		w.model.Reserve(next)
	case "close":
		err := w.l.Close()
		w.l = nil
		if err == nil {
			w.model.AckAll()
		}
		return err
	case "reindex":
		_, err := w.l.Reindex(w.p.ctx, nil)
		if errors.Is(err, fs.ErrPermission) {
			return nil // somebody has one open, by the rules of Windows: it stays as it is
		}
		return err
	case "unindex":
		return w.unindex()
	case "compact": // keys in memory at a time, 0 for all; tombstones in their grace stay
		return w.compact(n, false)
	case "purge": // the same with no grace
		return w.compact(n, true)
	case "retain": // all closed segments but those with the last n offsets
		return w.retain(uint64(n))
	case "idle":
		w.clock.Advance(time.Duration(n) * time.Millisecond)
	case "read":
		return w.read()
	case "hook":
		return w.l.RequireHook(w.p.ctx, "")
	default:
		panic("no such step: " + step)
	}
	return nil
}

// open opens the log; what can be read then is settled.
func (w *world) open() error {
	opts := w.opts
	l, err := evlog.Open(w.p.ctx, w.p.dir, &opts)
	if err != nil {
		return err
	}
	w.l = l
	return w.read()
}

func (w *world) append(n int) error { return w.appendThese(w.gen.Records(n)) }

func (w *world) appendThese(batch []evlog.Record) error {
	w.model.Intend(batch...)
	first, err := w.l.Append(w.p.ctx, batch...)
	if err != nil {
		return err
	}
	if err := w.model.Accept(first, batch...); err != nil {
		return err
	}
	w.model.Ack(first, len(batch))
	return nil
}

// compact compacts with room for n keys, and settles what is left.
func (w *world) compact(n int, purge bool) error {
	opts := &evlog.CompactOptions{MemoryBytes: int64(n) * 32, MinLag: -1, BytesPerSecond: -1}
	if purge {
		opts.Grace = -1
	}
	w.model.Compacting(purge || w.opts.TombstoneGrace < 0)
	// What an interrupted merge left cannot be cleared while somebody reads it, by
	// the rules of Windows.
	rep, err := w.l.Compact(w.p.ctx, opts)
	w.compacted = rep
	left := err != nil || inUse(rep, err)
	w.model.Unfinished(left)
	if err != nil && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	if err := w.read(); err != nil {
		return err
	}
	if left || w.opts.Compact == evlog.On {
		return nil
	}
	recs, err := readAll(w.p.ctx, w.l.Reader())
	if err != nil {
		return err
	}
	return w.model.Compacted(recs)
}

// retain removes what lies below the last n offsets.
func (w *world) retain(n uint64) error {
	next := w.l.Stats().DurableNext
	below := next - min(next, n)
	w.model.Due(below)
	rep, err := w.l.Retain(w.p.ctx, &evlog.RetainOptions{Below: below})
	if rep == nil {
		return err
	}
	for _, s := range rep.Removed {
		// What is done beside it may be done by halves when the power fails.
		if w.opts.Compact == evlog.On {
			break
		}
		if err := w.model.Gone(s.End); err != nil {
			return err
		}
	}
	if errors.Is(err, fs.ErrPermission) {
		return nil // open elsewhere, by the rules of Windows: later
	}
	return err
}

// read reads everything and settles it. Where the log compacts and retains by
// itself it may have been too slow, for retention or for a tombstone without a
// grace: what is wrong stays wrong.
func (w *world) read() error {
	var recs []evtest.Rec
	var err error
	for range 5 {
		if recs, err = readAll(w.p.ctx, w.l.Reader()); err == nil {
			err = w.model.Check(recs)
		}
		if err == nil || w.opts.Compact != evlog.On {
			break
		}
	}
	if err != nil {
		return err
	}
	for _, r := range recs {
		if err := w.model.Saw(r); err != nil {
			return err
		}
	}
	return nil
}

// unindex deletes every index, as a user may at any time. (I7)
func (w *world) unindex() error {
	d, err := w.p.fsys.OpenDir(w.p.dir)
	if err != nil {
		return err
	}
	defer d.Close()
	names, err := d.Names()
	if err != nil {
		return err
	}
	for _, name := range names {
		if !strings.HasSuffix(name, ".idx") {
			continue
		}
		err := d.Remove(name)
		if errors.Is(err, fs.ErrPermission) {
			continue // somebody has it open, by the rules of Windows
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// abandon closes the log of a world that was cut: nothing it does counts.
func (w *world) abandon() {
	if w.l != nil {
		_ = w.l.Close()
		w.l = nil
	}
}

// survives checks what a crash left: the second implementation reads it
// against the model, then evlog opens it, twice, with an append in between.
func survives(t testing.TB, m *vfs.Mem, model *evtest.Model) error {
	t.Helper()
	p := onFS(t, m)
	im, err := evtest.ReadFS(m, p.dir)
	if err != nil {
		im = evtest.Image{} // the directory itself is gone
	}
	out := im.Writer()
	if out.Err != nil {
		return fmt.Errorf("a crash must never look like damage: %w\n%s", out.Err, im.Describe())
	}
	if err := model.Check(out.Recs); err != nil { // I1, I3
		return fmt.Errorf("%w\n%s", err, im.Describe())
	}
	if out.Next < model.Next() {
		return fmt.Errorf("next is %d, though %d was acknowledged or seen\n%s", out.Next, model.Next()-1, im.Describe())
	}
	if err := readerAgrees(p, im); err != nil {
		return fmt.Errorf("%w\n%s", err, im.Describe())
	}
	if err := reopens(t, p, everyRecord(im), out); err != nil {
		return fmt.Errorf("%w\nit was\n%s", err, im.Describe())
	}
	return nil
}

// readerAgrees compares a reader without a writer with the second
// implementation.
func readerAgrees(p place, im evtest.Image) error {
	if len(im.Bases()) == 0 {
		return nil
	}
	if _, err := im.Durable(); err != nil {
		return nil // it would wait 100 ms; TestReader_DamagedDurable has it
	}
	want := im.Reader()
	r, err := evlog.OpenReader(p.ctx, p.dir, nil)
	if err != nil {
		return fmt.Errorf("reader: %w", err)
	}
	defer r.Close()
	got, err := readAll(p.ctx, r)
	if (err != nil) != (want.Err != nil) {
		return fmt.Errorf("reader: %v, second implementation: %v", err, want.Err)
	}
	if diff := diffRecs(want.Recs, got); diff != "" {
		return fmt.Errorf("reader: %s", diff)
	}
	if err != nil {
		return nil // it ends at damage, as it should
	}
	return answers(p, r, everyRecord(im), evtest.Rand(want.Next+uint64(len(im))))
}

// everyRecord is what stands anywhere in an image, by offset.
func everyRecord(im evtest.Image) map[uint64]evtest.Rec {
	wrote := map[uint64]evtest.Rec{}
	for _, s := range im.Segments() {
		for _, r := range s.Recs {
			wrote[r.Offset] = r
		}
	}
	return wrote
}

func reopens(t testing.TB, p place, wrote map[uint64]evtest.Rec, out evtest.Outcome) error {
	t.Helper()
	want := out.Recs
	next := out.Next
	for round := range 2 {
		opts := &evlog.Options{NoPreallocate: true, OpenHook: anyHook}
		if round == 1 {
			opts.Verify = evlog.VerifyAll
		}
		l, err := evlog.Open(p.ctx, p.dir, opts)
		if err != nil {
			return fmt.Errorf("open %d: %w", round, err)
		}
		got, err := readAll(p.ctx, l.Reader())
		if err == nil {
			if diff := diffRecs(want, got); diff != "" {
				err = errors.New(diff)
			} else if s := l.Stats(); s.NextOffset != next {
				err = fmt.Errorf("next is %d, want %d", s.NextOffset, next)
			} else {
				err = answers(p, l.Reader(), wrote, evtest.Rand(next+uint64(len(got))))
			}
		}
		if err == nil && round == 0 {
			r := rec("after", "the crash")
			var off uint64
			if off, err = l.Append(p.ctx, r); err == nil && off != next {
				err = fmt.Errorf("appended at %d, want %d", off, next)
			}
			want = append(want, recsAt(off, r)...)
			wrote[off] = want[len(want)-1]
			next = off + 1
		}
		if err := errors.Join(err, l.Close()); err != nil {
			return fmt.Errorf("open %d: %w", round, err)
		}
	}
	rep, err := evlog.Verify(p.ctx, p.dir, nil)
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	if !rep.OK() {
		return fmt.Errorf("verify: %+v", rep.Problems)
	}
	return nil
}

// anyHook is the open hook of the workloads that store one.
var anyHook = evlog.Hook{Name: "any", Run: func(ctxT, evlog.HookState) error { return nil }}
