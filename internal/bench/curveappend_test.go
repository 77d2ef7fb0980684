package bench

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/bench/limit"
	"github.com/evlog-go/evlog/internal/bench/turns"
)

// curveTurnBytes is about how much a side writes in a turn at most: what fits into
// the zeros of the limit.
const curveTurnBytes = limit.Zeroed

// BenchmarkCurveCallers appends durable records of 100 B, one at a time, from many
// goroutines.
func BenchmarkCurveCallers(b *testing.B) {
	curve(b, "callers", "callers", []int64{1, 2, 4, 8, 16, 32, 64, 128, 256}, func(b *testing.B, x int64) []*turns.Side {
		a := &appender{b, limit.Records(1024, 100), int(x)}
		sqlite := a.sqlite()
		sqlite.Ops = max(sqlite.Ops, 4*a.callers)
		return []*turns.Side{
			a.evlog("evlog", a.callers, false), a.limit("limit-zeroed", limit.Zeroed), a.limit("limit", 0), sqlite,
		}
	})
}

// BenchmarkCurveValue appends durable records, one at a time and from one goroutine.
func BenchmarkCurveValue(b *testing.B) {
	xs := []int64{16, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20}
	curve(b, "value", "value_bytes", xs, func(b *testing.B, x int64) []*turns.Side {
		return batchCurve(b, limit.Records(64, int(x)), 1, 200)
	})
}

// BenchmarkCurveBatch appends durable batches of records of 100 B from one goroutine.
func BenchmarkCurveBatch(b *testing.B) {
	xs := []int64{1, 3, 10, 30, 100, 300, 1000, 3000, 10_000}
	curve(b, "batch", "batch", xs, func(b *testing.B, x int64) []*turns.Side {
		return batchCurve(b, limit.Records(int(x), 100), int(x), 100)
	})
}

// batchCurve appends batches, which are taken from records in turn, by one caller,
// n in a turn or fewer. The times of operations are those of whole batches.
func batchCurve(b *testing.B, records []evlog.Record, batch, n int) []*turns.Side {
	n = min(n, curveTurnBytes/(batch*int(records[0].Size()))) / 2 * 2
	l := openLog(b, b.TempDir(), nil)
	db := newSQLite(b).grown(records)
	side := func(name string, one func(records []evlog.Record)) *turns.Side {
		s := &turns.Side{Name: name, Ops: n * batch}
		s.Run = func(int) {
			s.Lat.Together(1, n, func(i int) {
				at := i * batch % len(records)
				one(records[at : at+batch])
			})
		}
		s.Run(s.Ops) // warm
		s.Lat = nil
		return s
	}
	byHand := func(name string, zeroed int64) *turns.Side {
		l := limit.New(b, b.TempDir(), zeroed)
		s := side(name, func(records []evlog.Record) {
			l.Add(records...)
			l.Write()
			l.Sync()
		})
		s.Before = func() { l.Room(int64(s.Ops) * records[0].Size()) }
		return s
	}
	return []*turns.Side{
		side("evlog", func(records []evlog.Record) {
			_, err := l.Append(background, records...)
			require.NoError(b, err)
		}),
		byHand("limit-zeroed", limit.Zeroed),
		byHand("limit", 0),
		side("sqlite", func(records []evlog.Record) { db.fill(records, len(records), time.Now().UnixMilli()) }),
	}
}
