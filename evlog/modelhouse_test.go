package evlog_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/evlog/table"
	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/internal/vfs"
)

// chooseHousekeeping decides what the log does by itself, how fast time passes, and
// by whose rules.
func (r *random) chooseHousekeeping() {
	rng, o := r.gen.Rng, &r.opts
	r.windows = rng.IntN(4) == 0
	r.unit, r.sure, r.closed = time.Minute, map[uint64]time.Time{}, map[uint64]time.Time{}
	o.NoRetention = true
	if rng.IntN(2) == 0 {
		o.NoRetention = false
		o.Compact, o.MinDirtyRatio, o.MinLag = evlog.On, 0.01+rng.Float64()/2, -1
		r.unit = time.Second
	}
	o.TombstoneGrace = []time.Duration{-1, time.Duration(1+rng.IntN(60)) * r.unit, 1000 * time.Hour}[rng.IntN(3)]
	if rng.IntN(3) == 0 {
		o.MaxRecords = 1 + rng.Int64N(150)
	}
	if rng.IntN(3) == 0 {
		o.MaxAge = time.Duration(1+rng.IntN(300)) * r.unit
	}
	if rng.IntN(4) == 0 {
		o.MaxBytes = 4000 + rng.Int64N(60_000)
		o.NoPreallocate = true // or the files shrink at each roll
	}
	if rng.IntN(4) == 0 {
		o.HoldFor = []string{"a"}
		if rng.IntN(2) == 0 {
			o.HoldBytes = 4000 + rng.Int64N(60_000)
			o.NoPreallocate = true
		} else {
			o.HoldAge = time.Duration(1+rng.IntN(600)) * r.unit
		}
	}
	o.OnEvent = func(e evlog.Event) {
		switch {
		case !r.background():
		case e.Kind == evlog.EventCompacted:
			inBackground.compacted.Add(1)
		case e.Kind == evlog.EventRemoved:
			inBackground.removed.Add(1)
		}
	}
}

// speed is how much faster than the system's the clock is: what happens in the
// background happens between any two steps.
func (r *random) speed() int {
	if r.background() {
		return 1000
	}
	return 1
}

// aWhile is a time to pass: next to nothing, or about as long as an age or a grace.
func (r *random) aWhile() time.Duration {
	rng := r.gen.Rng
	some := []time.Duration{r.unit, r.opts.MaxAge, r.opts.MaxAge / 4, r.opts.HoldAge, r.opts.TombstoneGrace, 20 * r.unit}
	return max(0, time.Duration(rng.Float64()*1.3*float64(some[rng.IntN(len(some))])))
}

// beginStep: what happens from now on was not done before. The times of records
// mostly follow the clock.
func (r *random) beginStep() {
	r.w.model.Begin()
	if r.gen.Rng.IntN(10) > 0 {
		r.gen.SetClock(r.clock.Now().UnixMilli())
	}
}

// advanceClock lets time pass.
func (r *random) advanceClock() {
	d := r.aWhile()
	r.w.done = append(r.w.done, fmt.Sprintf("advance %v", d))
	r.clock.Advance(d)
}

// setClock sets the wall clock, ahead or back, by two hours at least, or to a time
// that nobody believes.
func (r *random) setClock() {
	rng := r.gen.Rng
	by := 2*time.Hour + time.Duration(rng.Int64N(int64(max(r.opts.MaxAge, r.opts.TombstoneGrace%(1000*time.Hour), 40*r.unit))*2))
	to := r.clock.Now().Add(by)
	switch {
	case r.clock.Now().Before(plausibleSince):
		to = time.UnixMilli(1_700_000_000_000).Add(r.clock.Elapsed())
	case rng.IntN(2) == 0:
		to = r.clock.Now().Add(-by)
	case rng.IntN(20) == 0:
		to = time.Unix(rng.Int64N(1_000_000), 0)
	}
	r.moveClock(to)
}

func (r *random) moveClock(to time.Time) {
	w := r.w
	w.done = append(w.done, fmt.Sprintf("clock %+v", to.Sub(r.clock.Now())))
	before := r.clock.Now()
	then := r.moment()
	r.keeps.set(&then)
	w.model.ClockMoves(func() {
		r.jumps.ever = r.jumps.ever || to.After(before)
		r.clock.SetWall(to)
	})
	clear(r.sure)
	r.clockSet = true
	if r.background() { // no look of the log's own, which nobody sees, comes between this and the next
		r.retainBy(evlog.RetainOptions{MaxAge: -1, MaxBytes: -1, MaxRecords: -1})
	}
	r.keeps.set(nil)
}

// compact compacts, and checks that tombstones whose grace is over are gone.
func (r *random) compact(step string) {
	w := r.w
	bases := onFS(r.t, w.m).image(r.t).Bases()
	active := bases[len(bases)-1]
	r.jumps.look()
	now := r.clock.Now()
	r.fatal(w.run(step))
	rep := w.compacted
	r.fatal(r.mergedSizes(rep))
	purge := strings.HasPrefix(step, "purge")
	if !purge && r.opts.TombstoneGrace > 0 {
		r.checkClockWait(rep.ClockWait, r.opts.TombstoneGrace, "compact")
	}
	if r.background() {
		if purge && rep.Refused == nil {
			w.model.Purged()
		}
		return
	}
	// By the rules of Windows what was cleaned cannot always be noted.
	if r.windows || windowsRules || rep.Refused != nil || now.Before(plausibleSince) || w.model.IsUnfinished() {
		return
	}
	there := map[uint64]bool{}
	for _, rec := range w.model.Settled() {
		if len(rec.Key) == 0 || len(rec.Value) > 0 || rec.Offset >= active {
			continue
		}
		there[rec.Offset] = true
		since, known := r.sure[rec.Offset]
		if known && rep.ClockWait == 0 && (purge || now.Sub(since) >= r.opts.TombstoneGrace) {
			r.fatal(fmt.Errorf("%v is a tombstone whose grace has begun before %v, and stays at %v", rec, since.UnixMilli(), now.UnixMilli()))
		}
		if !known {
			r.sure[rec.Offset] = r.clock.Now()
		}
	}
	for off := range r.sure {
		if !there[off] {
			delete(r.sure, off)
			if !purge && r.opts.TombstoneGrace > 0 {
				expired.Add(1)
			}
		}
	}
}

// expired is how many tombstones went after a grace.
var expired atomic.Int64

// unindex removes indexes; what they alone knew is lost.
func (r *random) unindex() {
	r.fatal(r.w.run("unindex"))
	clear(r.sure)
	if r.background() { // what is planned by their sizes is done
		r.retainBy(evlog.RetainOptions{MaxAge: -1, MaxBytes: -1, MaxRecords: -1})
	}
}

// inBackground is how often something was done to segments in such runs.
var inBackground struct{ compacted, removed atomic.Int64 }

func (r *random) background() bool { return r.opts.Compact == evlog.On }

// place is where the log is, by the rules of this run.
func (r *random) place(m *vfs.Mem) place {
	r.keeps = r.watch(m)
	fsys := vfs.FS(m)
	if r.windows || windowsRules {
		fsys = vfs.Windows(m)
	}
	p := onFS(r.t, m)
	return place{ctx: vfs.NewContext(p.ctx, vfs.Inject(fsys, r.keeps.before)), dir: p.dir, fsys: fsys}
}

// slow reports whether a reader may be too slow to hear of a deletion.
func (r *random) slow() bool {
	return r.opts.TombstoneGrace < 1000*time.Hour && r.background() || r.opts.TombstoneGrace < 0
}

// checkTable compares the view that follows the log with the model.
func (r *random) checkTable() {
	w := r.w
	if r.tableOf != w.l {
		r.closeTable()
		v, err := table.Open(w.p.ctx, w.l.Reader(), nil)
		r.fatal(err)
		r.table, r.tableOf = v, w.l
	}
	r.waitForTable()
	for _, key := range r.gen.AllKeys() {
		e, ok := r.table.Get(string(key))
		got := evtest.Rec{Offset: e.Offset, TimeMS: e.Time.UnixMilli(), Schema: e.Schema, Key: key, Value: e.Value}
		r.fatal(w.model.CheckTable(string(key), got, ok, r.slow()))
	}
}

func (r *random) waitForTable() {
	if r.tableOf == r.w.l {
		r.fatal(r.table.Wait(r.w.p.ctx, r.w.l.Stats().DurableNext))
	}
}

func (r *random) closeTable() {
	if r.table != nil {
		_ = r.table.Close()
		r.table, r.tableOf = nil, nil
	}
}
