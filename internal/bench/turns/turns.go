// Package turns has the sides of a benchmark take turns, so that a quiet or a busy
// moment of the machine meets all of them.
package turns

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
)

// Side is one of those who take turns in a benchmark.
type Side struct {
	// Name is "evlog" for the side that the benchmark is about, "limit" for the
	// one that ratio is against.
	Name string
	// Ops is the number of operations in a turn.
	Ops int
	// Before and After are called around each turn and not timed; nil is nothing.
	Before, After func()
	// Run does a turn.
	Run func(ops int)
	// Syncs is the number of fsyncs so far; nil where it is not known.
	Syncs func() uint64
	// Lat has the times of single operations, where Run notes them.
	Lat Latencies
	// ByLatency: a turn counts with the median of its operations' times, because
	// Run waits in between.
	ByLatency bool
	// Turns are what the turns have shown so far.
	Turns []Turn

	done                  int    // operations in all turns
	mallocs, bytes, fsync uint64 // in all turns
}

// Turn is what one turn has shown.
type Turn struct {
	PerOp    float64       // ns for an operation
	P50, P99 time.Duration // of single operations, where Run notes them
}

// Take runs rounds of one turn for each side, and reports. The first side
// is evlog. recordBytes is what an operation moves; 0 reports no throughput.
func Take(b *testing.B, recordBytes int64, sides ...*Side) {
	b.Helper()
	b.ReportAllocs()
	Rounds(b, sides...)
	evlog := sides[0]
	evlog.report(b, recordBytes)
	for _, s := range sides[1:] {
		evlog.reportBeside(b, s)
	}
}

// Rounds runs rounds of one turn for each side, and reports nothing.
func Rounds(b *testing.B, sides ...*Side) {
	for round := 0; b.Loop(); round++ {
		for i := range sides {
			sides[(round+i)%len(sides)].turn()
		}
	}
}

// NsPerOp is what the side takes for an operation: the median of its turns.
func (s *Side) NsPerOp() float64 {
	perOp := make([]float64, len(s.Turns))
	for i, t := range s.Turns {
		perOp[i] = t.PerOp
	}
	return median(perOp)
}

// Ratio is the speed of s in parts of the other side's. Each round counts with its
// own ratio.
func (s *Side) Ratio(other *Side) float64 {
	ratios := make([]float64, len(s.Turns))
	for i := range ratios {
		ratios[i] = other.Turns[i].PerOp / s.Turns[i].PerOp
	}
	return median(ratios)
}

func (s *Side) turn() {
	if s.Before != nil {
		s.Before()
	}
	runtime.GC()
	var m0, m1 runtime.MemStats
	var syncs uint64
	if s.Syncs != nil {
		syncs = s.Syncs()
	}
	noted := len(s.Lat)
	s.Lat = slices.Grow(s.Lat, s.Ops)
	runtime.ReadMemStats(&m0)
	start := time.Now()
	s.Run(s.Ops)
	took := time.Since(start)
	runtime.ReadMemStats(&m1)
	if s.Syncs != nil {
		s.fsync += s.Syncs() - syncs
	}
	s.done += s.Ops
	s.mallocs += m1.Mallocs - m0.Mallocs
	s.bytes += m1.TotalAlloc - m0.TotalAlloc
	lat := s.Lat[noted:]
	turn := Turn{float64(took) / float64(s.Ops), lat.Percentile(50), lat.Percentile(99)}
	if s.ByLatency {
		turn.PerOp = float64(turn.P50)
	}
	s.Turns = append(s.Turns, turn)
	if s.After != nil {
		s.After()
	}
}

// report reports the side itself. Metrics of the framework are replaced by ones
// for a single operation.
func (s *Side) report(b *testing.B, recordBytes int64) {
	ns := s.NsPerOp()
	b.ReportMetric(ns, "ns/op")
	b.ReportMetric(ceil(float64(s.bytes)/float64(s.done)), "B/op")
	b.ReportMetric(ceil(float64(s.mallocs)/float64(s.done)), "allocs/op")
	if recordBytes > 0 {
		b.ReportMetric(1e9/ns, "records/s")
		b.ReportMetric(float64(recordBytes)/ns*1e3, "MB/s")
	}
	if s.Syncs != nil {
		b.ReportMetric(float64(s.fsync)/float64(s.done), "fsyncs/op")
	}
	if len(s.Lat) > 0 {
		b.ReportMetric(Micros(s.Lat.Percentile(50)), "p50-us")
		b.ReportMetric(Micros(s.Lat.Percentile(99)), "p99-us")
	}
}

// reportBeside reports how fast s is beside another side.
func (s *Side) reportBeside(b *testing.B, other *Side) {
	unit := "ratio"
	if other.Name != "limit" {
		unit += "-" + other.Name
	}
	if r := s.Ratio(other); !math.IsInf(r, 0) && !math.IsNaN(r) {
		b.ReportMetric(r, unit)
	}
	b.ReportMetric(other.NsPerOp(), other.Name+"-ns/op")
	if len(other.Lat) > 0 {
		for _, p := range []int{50, 99} {
			if own := s.Lat.Percentile(p); own > 0 && other.Name == "limit" {
				b.ReportMetric(float64(other.Lat.Percentile(p))/float64(own), fmt.Sprintf("ratio-p%d", p))
			}
		}
		b.ReportMetric(Micros(other.Lat.Percentile(50)), other.Name+"-p50-us")
		b.ReportMetric(Micros(other.Lat.Percentile(99)), other.Name+"-p99-us")
	}
}

// ceil rounds up what is more than a stray allocation of the runtime: the
// framework prints whole numbers and rounds down.
func ceil(x float64) float64 { return math.Ceil(x - 0.05) }

func median(x []float64) float64 {
	x = slices.Sorted(slices.Values(x))
	n := len(x)
	if n == 0 {
		return math.NaN()
	}
	return (x[(n-1)/2] + x[n/2]) / 2
}

// Latencies are the times of single operations.
type Latencies []time.Duration

// Percentile is that of the times: of 0 to 100 hundredths of them it is not below.
func (l Latencies) Percentile(p int) time.Duration {
	if len(l) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(l))
	return sorted[(len(sorted)-1)*p/100]
}

// Micros is a time in microseconds.
func Micros(d time.Duration) float64 { return float64(d) / 1e3 }

// Together has callers goroutines call op at the same time, n times in all, and
// notes how long each call took.
func (l *Latencies) Together(callers, n int, op func(i int)) {
	at := len(*l)
	*l = append(*l, make(Latencies, n)...)
	lat := (*l)[at:]
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := c; i < n; i += callers {
				start := time.Now()
				op(i)
				lat[i] = time.Since(start)
			}
		})
	}
	wg.Wait()
}
