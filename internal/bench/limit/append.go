package limit

import (
	"testing"
	"time"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/bench/turns"
)

// Append is the side that commits the records of all callers together, without
// waiting for them or waking them: syncs times in a turn. The latency is that of a
// whole commit.
func Append(b testing.TB, name string, records []evlog.Record, callers, syncs int, zeroed int64) *turns.Side {
	l := New(b, b.TempDir(), zeroed)
	s := &turns.Side{Name: name, Ops: syncs * callers}
	s.Before = func() {
		size := int64(0)
		for i := range s.Ops {
			size += records[i%len(records)].Size()
		}
		l.Room(size)
	}
	s.Run = func(ops int) {
		for i := 0; i < ops; i += callers {
			start := time.Now()
			at := i % len(records)
			l.Add(records[at : at+callers]...)
			l.Write()
			l.Sync()
			s.Lat = append(s.Lat, time.Since(start))
		}
	}
	return s
}
