package rivals

import (
	"fmt"
	"os"
	"testing"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/bench/limit"
	"github.com/evlog-go/evlog/internal/bench/turns"
)

// syncsInTurn is about how many fsyncs a turn has: few, so that what the disk does
// for others does not meet every turn.
const syncsInTurn = 50

// BenchmarkAppend: each caller appends a record and waits until it is durable.
// Systems without a group commit of their own do so bare, and as NAME+group inside
// one written by hand.
func BenchmarkAppend(b *testing.B) {
	for _, callers := range []int{1, 8, 64, 256} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			a := &appender{b, limit.Records(1024, 100), callers}
			sides := []*turns.Side{a.limit("limit", 0), a.limit("limit-zeroed", limit.Zeroed), a.shared(self, false)}
			for _, r := range rivals {
				switch {
				case callers == 1 || r.groups:
					sides = append(sides, a.shared(r, false))
				default:
					sides = append(sides, a.bare(r), a.shared(r, true))
				}
			}
			row(b, fmt.Sprintf("durable append, 100 B, callers: %d", callers), "a record", sides...)
		})
	}
}

// appender is what the sides of BenchmarkAppend are made from.
type appender struct {
	b       *testing.B
	records []evlog.Record
	callers int
}

func (a *appender) limit(name string, zeroed int64) *turns.Side {
	return limit.Append(a.b, name, a.records, a.callers, syncsInTurn, zeroed)
}

// shared is a system whose syncs the callers share, by itself or by hand.
func (a *appender) shared(r rival, byHand bool) *turns.Side {
	name, st := r.name, r.mustOpen(a.b, config{durable: true})
	if byHand {
		name, st = r.name+"+group", &group{store: st}
	}
	ops := syncsInTurn * a.callers
	switch r.name {
	case "nats", "badger": // they sync nearly as often as there are records
		ops = max(syncsInTurn, a.callers)
	}
	return a.side(name, st, ops)
}

// bare is a system that syncs for each caller.
func (a *appender) bare(r rival) *turns.Side {
	return a.side(r.name, r.mustOpen(a.b, config{durable: true}), max(syncsInTurn, a.callers))
}

func (a *appender) side(name string, st store, ops int) *turns.Side {
	s := &turns.Side{Name: name, Ops: ops}
	op := func(i int) {
		at := i % len(a.records)
		if err := st.append(a.records[at : at+1]); err != nil {
			a.b.Error(err)
		}
	}
	s.Run = func(ops int) { s.Lat.Together(a.callers, ops, op) }
	// A log that has just begun is not how it goes on.
	fill(a.b, st, a.records, 10*len(a.records))
	new(turns.Latencies).Together(a.callers, 2*a.callers, op)
	return s
}

// BenchmarkAppendBatch: one caller, 1,000 records in a write that is durable.
func BenchmarkAppendBatch(b *testing.B) {
	const batch, batches = 1000, 20
	for _, valueBytes := range []int{100, 1 << 10} {
		b.Run(fmt.Sprintf("value=%dB", valueBytes), func(b *testing.B) {
			records := limit.Records(batch, valueBytes)
			var sides []*turns.Side
			for _, r := range all() {
				st := r.mustOpen(b, config{durable: true, segmentBytes: 1 << 30})
				s := &turns.Side{Name: r.name, Ops: batch * batches}
				if r.name == "nats" {
					s.Ops = batch // it syncs each message
				}
				s.Run = func(ops int) {
					for range ops / batch {
						must(b, st.append(records))
					}
				}
				s.Run(batch) // warm
				sides = append(sides, s)
			}
			for _, p := range programs {
				if p.syncs {
					sides = append(sides, p.appending(b, batch*batches, batch, valueBytes, true))
				}
			}
			row(b, fmt.Sprintf("durable batches of %d, %d B", batch, valueBytes), "a record", sides...)
		})
	}
}

// BenchmarkEnqueue: writes that are not synced, to a log that is new in each turn.
func BenchmarkEnqueue(b *testing.B) {
	for _, c := range []struct{ valueBytes, batch int }{{100, 1}, {100, 100}, {100, 1000}, {256, 1000}} {
		b.Run(fmt.Sprintf("value=%dB/batch=%d", c.valueBytes, c.batch), func(b *testing.B) {
			records := limit.Records(1000, c.valueBytes)
			var sides []*turns.Side
			for _, r := range all() {
				if r.alwaysDurable {
					continue
				}
				ops := 200_000
				switch r.name {
				case "bbolt", "badger", "nats", "sqlite-cgo", "pebble":
					if ops = 20_000; c.batch == 1 {
						ops = 5_000
					}
				}
				var st store
				var dir string
				s := &turns.Side{Name: r.name, Ops: ops}
				s.Before = func() {
					dir = b.TempDir()
					var err error
					st, err = r.open(b, dir, config{segmentBytes: 1 << 30})
					must(b, err)
					fill(b, st, records, 1000) // warm
				}
				s.Run = func(ops int) {
					for i := 0; i < ops; i += c.batch {
						at := i % len(records)
						if err := st.append(records[at : at+c.batch]); err != nil {
							b.Fatal(err)
						}
					}
					if r.name == "nats" {
						must(b, st.flush()) // until then they are but in the client
					}
				}
				s.After = func() {
					must(b, st.close())
					must(b, os.RemoveAll(dir))
				}
				sides = append(sides, s)
			}
			for _, p := range programs {
				if c.batch == 1 || p.batches {
					sides = append(sides, p.appending(b, p.ops(c.batch), c.batch, c.valueBytes, false))
				}
			}
			what := fmt.Sprintf("enqueue in batches of %d, %d B, no fsync", c.batch, c.valueBytes)
			if c.batch == 1 {
				what = fmt.Sprintf("enqueue one by one, %d B, no fsync", c.valueBytes)
			}
			row(b, what, "a record", sides...)
		})
	}
}
