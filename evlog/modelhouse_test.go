package evlog_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/evlog/table"
	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/internal/vfs"
)

// hurried is the system's clock, a thousand times as fast, so that what happens
// in the background happens between any two steps.
type hurried struct{ start time.Time }

func (c hurried) Elapsed() time.Duration { return 1000 * time.Since(c.start) }
func (c hurried) Now() time.Time         { return c.start.Add(c.Elapsed()) }
func (c hurried) Timer(d time.Duration) (<-chan time.Time, func()) {
	t := time.NewTimer(d / 1000)
	return t.C, func() { t.Stop() }
}

// chooseBackground decides what the log does by itself, and by whose rules.
func (r *random) chooseBackground() {
	rng, o := r.gen.Rng, &r.opts
	r.windows = rng.IntN(4) == 0
	if rng.IntN(2) == 0 {
		return
	}
	o.Clock = hurried{time.Now()}
	o.Compact, o.MinDirtyRatio, o.MinLag = evlog.On, 0.01+rng.Float64()/2, -1
	o.TombstoneGrace = []time.Duration{-1, 1000 * time.Hour}[rng.IntN(2)]
	if rng.IntN(2) == 0 {
		o.MaxRecords = 1 + rng.Int64N(150)
	}
	o.OnEvent = func(e evlog.Event) {
		switch e.Kind {
		case evlog.EventCompacted:
			inBackground.compacted.Add(1)
		case evlog.EventRemoved:
			inBackground.removed.Add(1)
		}
	}
}

// inBackground is how often something was done to segments in such runs.
var inBackground struct{ compacted, removed atomic.Int64 }

func (r *random) background() bool { return r.opts.Compact == evlog.On }

// place is where the log is, by the rules of this run.
func (r *random) place(m *vfs.Mem) place {
	p := onFS(r.t, m)
	if r.windows {
		p = p.on(vfs.Windows(m))
	}
	return p
}

// maxStep is more than any step adds to the next offset.
const maxStep = 200

// due tells the model what the log may remove by itself up to the next step: what
// has MaxRecords offsets above it at least.
func (r *random) due() {
	next := uint64(maxStep)
	if r.w.l != nil {
		next += r.w.l.Stats().NextOffset
	} else {
		next += r.w.model.Next()
	}
	if keep := uint64(r.opts.MaxRecords); keep > 0 && next > keep {
		r.w.model.Due(next - keep)
	}
}

// askForKeys asks for the newest record of some keys, for all of one key, and
// compares a table that has followed all the time.
func (r *random) askForKeys() {
	w := r.w
	for range 3 {
		key := r.gen.Key()
		got, err := w.l.Reader().Latest(w.p.ctx, key)
		if err != nil && !errors.Is(err, evlog.ErrNotFound) {
			r.fatal(fmt.Errorf("latest of %q: %w", key, err))
		}
		if len(key) > 0 {
			if err := w.model.CheckLatest(string(key), evtest.RecOf(got), err == nil); err != nil {
				again, againErr := w.l.Reader().Latest(w.p.ctx, key)
				r.fatal(fmt.Errorf("%w; asked again: %d, %v\n%s", err, again.Offset, againErr, onFS(r.t, w.m).image(r.t).Describe()))
			}
		}
	}
	r.historyOf(r.gen.Key())
	r.checkTable()
}

// historyOf reads the records of one key.
func (r *random) historyOf(key []byte) {
	if len(key) == 0 {
		return
	}
	w := r.w
	first, _, err := w.l.Reader().Bounds(w.p.ctx)
	r.fatal(err)
	var last evtest.Rec
	some := false
	for rec, err := range w.l.Reader().ByKey(w.p.ctx, key, first) {
		if behind(err) && r.opts.MaxRecords > 0 { // while it was at work
			return
		}
		r.fatal(err)
		got := evtest.RecOf(rec)
		if some && got.Offset <= last.Offset || string(got.Key) != string(key) {
			r.fatal(fmt.Errorf("by key %q: %v after %v", key, got, last))
		}
		r.fatal(w.model.Saw(got))
		last, some = got, true
	}
	switch {
	case r.opts.TombstoneGrace < 0: // too slow for a deletion, as a table may be
		r.fatal(w.model.CheckTable(string(key), last, some, true))
	case some || !r.background():
		r.fatal(w.model.CheckLatest(string(key), last, some))
	}
	// None at all: a segment with a newer one was closed, and the old one has gone
	// for its sake; it is beyond the end as it was when reading began.
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
		r.fatal(w.model.CheckTable(string(key), got, ok, r.opts.TombstoneGrace < 0))
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
