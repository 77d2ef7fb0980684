package bench

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/bench/limit"
	"github.com/evlog-go/evlog/internal/bench/turns"
)

func BenchmarkGet(b *testing.B) {
	// The last ones are more than a reader keeps open.
	for _, c := range []struct{ segments, segmentBytes int64 }{{4, 4 << 20}, {32, 4 << 20}, {2, 64 << 20}, {200, 256 << 10}} {
		for _, reader := range []string{"own", "other"} {
			b.Run(fmt.Sprintf("value=100B/segments=%dx%s/reader=%s", c.segments, sizeName(c.segmentBytes), reader), func(b *testing.B) {
				dir := b.TempDir()
				records := limit.Records(1000, 100)
				l := openLog(b, dir, &evlog.Options{Sync: evlog.SyncFlush, SegmentBytes: c.segmentBytes})
				// Half a segment less, so that the active one has something in it.
				n := int((c.segments*c.segmentBytes - c.segmentBytes/2) / limit.RecordSize(100))
				fillLog(b, l, records, n)
				turns.Take(b, 0,
					getEvlog(b, readerOf(b, l, dir, reader), n),
					getLimit(b, dir, n),
					getSQLite(b, records, n))
			})
		}
	}
}

const getsInTurn = 2000

// getSide looks up random offsets below n.
func getSide(name string, n int, get func(offset int)) *turns.Side {
	rng := rand.New(rand.NewPCG(1, 2))
	s := &turns.Side{Name: name, Ops: getsInTurn}
	s.Run = func(ops int) {
		for range ops {
			offset := rng.IntN(n)
			start := time.Now()
			get(offset)
			s.Lat = append(s.Lat, time.Since(start))
		}
	}
	s.Run(s.Ops) // warm
	s.Lat = nil
	return s
}

func getEvlog(b *testing.B, r *evlog.Reader, n int) *turns.Side {
	return getSide("evlog", n, func(offset int) {
		rec, err := r.Get(background, uint64(offset))
		if err != nil || rec.Offset != uint64(offset) {
			b.Fatal(rec.Offset, err)
		}
	})
}

func getSQLite(b *testing.B, records []evlog.Record, n int) *turns.Side {
	db := newSQLite(b)
	db.fill(records, n, 1)
	return getSide("sqlite", n, func(offset int) {
		var ts, schema int64
		var key, value []byte
		if err := db.get.QueryRow(offset+1).Scan(&ts, &schema, &key, &value); err != nil {
			b.Fatal(err)
		}
	})
}

// getLimit keeps every segment open.
func getLimit(b *testing.B, dir string, n int) *turns.Side {
	index := limit.NewIndex(b, openSegments(b, dir)...)
	return getSide("limit", n, func(offset int) { sink += len(index.Get(uint64(offset))) })
}
