package rivals

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/evlog-go/evlog/internal/bench/limit"
	"github.com/evlog-go/evlog/internal/bench/turns"
)

// sink keeps the compiler from leaving reads out.
var sink int

// filled opens a store with n records, after a clean close. Not durable: it
// was filled in a minute instead of an hour.
func filled(b testing.TB, r rival, valueBytes, n int) store {
	dir := b.TempDir()
	st, err := r.open(b, dir, config{})
	must(b, err)
	fill(b, st, limit.Records(1000, valueBytes), n)
	must(b, st.close())
	st, err = r.open(b, dir, config{})
	must(b, err)
	b.Cleanup(func() { must(b, st.close()) })
	return st
}

// BenchmarkScan: all records in order, from the page cache. What is checked of
// them differs: see the table.
func BenchmarkScan(b *testing.B) {
	for _, c := range []struct{ valueBytes, records int }{{100, 200_000}, {1 << 10, 30_000}} {
		b.Run(fmt.Sprintf("value=%dB", c.valueBytes), func(b *testing.B) {
			var sides []*turns.Side
			for _, r := range all() {
				st := filled(b, r, c.valueBytes, c.records)
				s := &turns.Side{Name: r.name, Ops: c.records}
				s.Run = func(ops int) {
					n := 0
					must(b, st.scan(func(key, value []byte) { n++; sink += len(key) + len(value) }))
					if n != ops {
						b.Fatalf("%s: %d records", r.name, n)
					}
				}
				sides = append(sides, s)
			}
			for _, p := range programs {
				sides = append(sides, p.scanning(b, c.records, c.valueBytes))
			}
			row(b, fmt.Sprintf("scan, %d B", c.valueBytes), "a record", sides...)
		})
	}
}

// BenchmarkGet: random offsets, warm. A turn counts with the median of its look-ups.
func BenchmarkGet(b *testing.B) {
	const n, gets = 200_000, 2000
	var sides []*turns.Side
	for _, r := range all() {
		st := filled(b, r, 100, n)
		rng := rand.New(rand.NewPCG(1, 2))
		s := &turns.Side{Name: r.name, Ops: gets, ByLatency: true}
		s.Run = func(ops int) {
			for range ops {
				offset := rng.Uint64N(n)
				start := time.Now()
				key, value, err := st.get(offset)
				if err != nil {
					b.Fatal(r.name, err)
				}
				s.Lat = append(s.Lat, time.Since(start))
				sink += len(key) + len(value)
			}
		}
		s.Run(gets) // warm
		s.Lat = nil
		sides = append(sides, s)
	}
	row(b, "get by offset, 100 B", "a look-up", sides...)
}
