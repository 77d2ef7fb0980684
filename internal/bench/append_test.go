package bench

import (
	"fmt"
	"testing"
	"time"

	"github.com/evlog-go/evlog/evlog"
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
				a := &appender{b, makeRecords(1024, 100), callers}
				sides := []*side{a.evlog("evlog", callers, file == "growing")}
				if file == "zeroed" {
					sides = append(sides, a.limit("limit", limitZeroed), a.limit("growing", 0))
				} else {
					sides = append(sides, a.limit("limit", 0))
				}
				if callers > 1 {
					sides = append(sides, a.evlog("one-caller", 1, file == "growing"))
				}
				if file == "zeroed" && callers <= 64 {
					sides = append(sides, a.sqlite())
				}
				takeTurns(b, recordSize(100), sides...)
			})
		}
	}
}

func (a *appender) evlog(name string, callers int, growing bool) *side {
	l := openLog(a.b, a.b.TempDir(), &evlog.Options{NoPreallocate: growing})
	s := &side{name: name, ops: syncsInTurn * callers}
	s.syncs = func() uint64 { return l.Stats().Syncs }
	op := func(i int) {
		if _, err := l.Append(background, a.records[i%len(a.records)]); err != nil {
			a.b.Error(err)
		}
	}
	s.run = func(ops int) { s.lat.together(callers, ops, op) }
	new(latencies).together(callers, 2*callers, op) // warm
	return s
}

// limit commits the records of all callers together, without waiting for them
// or waking them.
func (a *appender) limit(name string, zeroed int64) *side {
	l := newLimitLog(a.b, zeroed)
	s := &side{name: name, ops: syncsInTurn * a.callers}
	s.before = func() { l.room(int64(s.ops) * recordSize(100)) }
	s.run = func(ops int) {
		for i := 0; i < ops; i += a.callers {
			start := time.Now()
			at := i % len(a.records)
			l.add(a.records[at : at+a.callers]...)
			l.write()
			l.sync()
			s.lat = append(s.lat, time.Since(start))
		}
	}
	return s
}

func (a *appender) sqlite() *side {
	db := newSQLite(a.b)
	s := &side{name: "sqlite", ops: syncsInTurn / a.callers * a.callers}
	s.run = func(ops int) {
		now := time.Now().UnixMilli()
		s.lat.together(a.callers, ops, func(i int) { db.append(a.records[i%len(a.records)], now) })
	}
	return s
}

func BenchmarkAppendBatch(b *testing.B) {
	const batch = 1000
	for _, valueBytes := range []int{100, 1 << 10} {
		b.Run(fmt.Sprintf("value=%s/batch=%d", sizeName(int64(valueBytes)), batch), func(b *testing.B) {
			records := makeRecords(batch, valueBytes)
			takeTurns(b, recordSize(valueBytes), batchEvlog(b, records),
				batchLimit(b, "limit", records, 0), batchLimit(b, "zeroed", records, limitZeroed))
		})
	}
}

const batchesInTurn = 20

func batchEvlog(b *testing.B, records []evlog.Record) *side {
	l := openLog(b, b.TempDir(), &evlog.Options{SegmentBytes: 1 << 30})
	s := &side{name: "evlog", ops: batchesInTurn * len(records)}
	s.syncs = func() uint64 { return l.Stats().Syncs }
	s.run = func(ops int) {
		for range ops / len(records) {
			if _, err := l.Append(background, records...); err != nil {
				b.Fatal(err)
			}
		}
	}
	s.run(s.ops) // warm
	return s
}

func batchLimit(b *testing.B, name string, records []evlog.Record, zeroed int64) *side {
	l := newLimitLog(b, zeroed)
	s := &side{name: name, ops: batchesInTurn * len(records)}
	s.before = func() { l.room(int64(batchesInTurn) * int64(len(records)) * records[0].Size()) }
	s.run = func(ops int) {
		for range ops / len(records) {
			l.add(records...)
			l.write()
			l.sync()
		}
	}
	s.run(s.ops)
	return s
}
