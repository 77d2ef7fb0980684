package bench

import (
	"fmt"
	"testing"
	"time"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/bench/limit"
	"github.com/evlog-go/evlog/internal/bench/turns"
)

// appender is what the sides of BenchmarkAppend are made from.
type appender struct {
	b       *testing.B
	records []evlog.Record
	callers int
}

// syncsInTurn is about how many fsyncs a turn has.
const syncsInTurn = 200

func BenchmarkAppend(b *testing.B) {
	for _, callers := range []int{1, 8, 64, 256} {
		for _, file := range []string{"zeroed", "growing"} {
			b.Run(fmt.Sprintf("value=100B/callers=%d/file=%s", callers, file), func(b *testing.B) {
				a := &appender{b, limit.Records(1024, 100), callers}
				sides := []*turns.Side{a.evlog("evlog", callers, file == "growing"), a.limit("limit", zeroed(file))}
				if file == "zeroed" {
					sides = append(sides, a.limit("growing", 0))
				}
				if callers > 1 {
					sides = append(sides, limit.Woken(b, "woken", a.records, callers, syncsInTurn, zeroed(file)))
					sides = append(sides, a.evlog("one-caller", 1, file == "growing"))
				}
				if file == "zeroed" {
					sides = append(sides, a.sqlite())
				}
				turns.Take(b, limit.RecordSize(100), sides...)
			})
		}
	}
}

func zeroed(file string) int64 {
	if file == "zeroed" {
		return limit.Zeroed
	}
	return 0
}

func (a *appender) evlog(name string, callers int, growing bool) *turns.Side {
	l := openLog(a.b, a.b.TempDir(), &evlog.Options{NoPreallocate: growing})
	s := &turns.Side{Name: name, Ops: syncsInTurn * callers}
	s.Syncs = func() uint64 { return l.Stats().Syncs }
	op := func(i int) {
		if _, err := l.Append(background, a.records[i%len(a.records)]); err != nil {
			a.b.Error(err)
		}
	}
	s.Run = func(ops int) { s.Lat.Together(callers, ops, op) }
	new(turns.Latencies).Together(callers, 2*callers, op) // warm
	return s
}

func (a *appender) limit(name string, zeroed int64) *turns.Side {
	return limit.Append(a.b, name, a.records, a.callers, syncsInTurn, zeroed)
}

func (a *appender) sqlite() *turns.Side {
	db := newSQLite(a.b).grown(a.records)
	s := &turns.Side{Name: "sqlite", Ops: max(1, syncsInTurn/a.callers) * a.callers}
	s.Run = func(ops int) {
		now := time.Now().UnixMilli()
		s.Lat.Together(a.callers, ops, func(i int) { db.append(a.records[i%len(a.records)], now) })
	}
	return s
}

func BenchmarkAppendBatch(b *testing.B) {
	const batch = 1000
	for _, valueBytes := range []int{100, 1 << 10} {
		b.Run(fmt.Sprintf("value=%s/batch=%d", sizeName(int64(valueBytes)), batch), func(b *testing.B) {
			records := limit.Records(batch, valueBytes)
			turns.Take(b, limit.RecordSize(valueBytes), batchEvlog(b, records),
				batchLimit(b, "limit", records, 0), batchLimit(b, "zeroed", records, limit.Zeroed),
				batchSQLite(b, records))
		})
	}
}

const batchesInTurn = 20

func batchEvlog(b *testing.B, records []evlog.Record) *turns.Side {
	l := openLog(b, b.TempDir(), &evlog.Options{SegmentBytes: 1 << 30})
	s := &turns.Side{Name: "evlog", Ops: batchesInTurn * len(records)}
	s.Syncs = func() uint64 { return l.Stats().Syncs }
	s.Run = func(ops int) {
		for range ops / len(records) {
			if _, err := l.Append(background, records...); err != nil {
				b.Fatal(err)
			}
		}
	}
	s.Run(s.Ops) // warm
	return s
}

func batchLimit(b *testing.B, name string, records []evlog.Record, zeroed int64) *turns.Side {
	l := limit.New(b, b.TempDir(), zeroed)
	s := &turns.Side{Name: name, Ops: batchesInTurn * len(records)}
	s.Before = func() { l.Room(int64(batchesInTurn) * int64(len(records)) * records[0].Size()) }
	s.Run = func(ops int) {
		for range ops / len(records) {
			l.Add(records...)
			l.Write()
			l.Sync()
		}
	}
	s.Run(s.Ops)
	return s
}

// batchSQLite commits fewer batches in a turn, since each takes many times as long.
func batchSQLite(b *testing.B, records []evlog.Record) *turns.Side {
	db := newSQLite(b).grown(records)
	s := &turns.Side{Name: "sqlite", Ops: batchesInTurn / 4 * len(records)}
	s.Run = func(ops int) {
		for range ops / len(records) {
			db.fill(records, len(records), time.Now().UnixMilli())
		}
	}
	return s
}
