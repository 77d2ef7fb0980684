package bench

import (
	"math"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
)

// side is one of those who take turns in a benchmark.
type side struct {
	// name is "evlog" for the side that the benchmark is about, "limit" for the
	// one that ratio is against.
	name string
	// ops is the number of operations in a turn.
	ops int
	// before and after are called around each turn and not timed; nil is nothing.
	before, after func()
	// run does a turn.
	run func(ops int)
	// syncs is the number of fsyncs so far; nil where it is not known.
	syncs func() uint64
	// lat has the times of single operations, where run notes them.
	lat latencies
	// byLatency: a turn counts with the median of its operations' times, because
	// run waits in between.
	byLatency bool

	perOp                 []float64 // ns for an operation, one for each turn
	done                  int       // operations in all turns
	mallocs, bytes, fsync uint64    // in all turns
}

// takeTurns runs rounds of one turn for each side, and reports. The first side
// is evlog. recordBytes is what an operation moves; 0 reports no throughput.
func takeTurns(b *testing.B, recordBytes int64, sides ...*side) {
	b.Helper()
	b.ReportAllocs()
	for round := 0; b.Loop(); round++ {
		for i := range sides {
			sides[(round+i)%len(sides)].turn()
		}
	}
	evlog := sides[0]
	evlog.report(b, recordBytes)
	for _, s := range sides[1:] {
		evlog.reportBeside(b, s)
	}
}

func (s *side) turn() {
	if s.before != nil {
		s.before()
	}
	runtime.GC()
	var m0, m1 runtime.MemStats
	var syncs uint64
	if s.syncs != nil {
		syncs = s.syncs()
	}
	noted := len(s.lat)
	s.lat = slices.Grow(s.lat, s.ops)
	runtime.ReadMemStats(&m0)
	start := time.Now()
	s.run(s.ops)
	took := time.Since(start)
	runtime.ReadMemStats(&m1)
	if s.syncs != nil {
		s.fsync += s.syncs() - syncs
	}
	s.done += s.ops
	s.mallocs += m1.Mallocs - m0.Mallocs
	s.bytes += m1.TotalAlloc - m0.TotalAlloc
	perOp := float64(took) / float64(s.ops)
	if s.byLatency {
		perOp = float64(s.lat[noted:].percentile(50))
	}
	s.perOp = append(s.perOp, perOp)
	if s.after != nil {
		s.after()
	}
}

// report reports the side itself. Metrics of the framework are replaced by ones
// for a single operation.
func (s *side) report(b *testing.B, recordBytes int64) {
	ns := median(s.perOp)
	b.ReportMetric(ns, "ns/op")
	b.ReportMetric(ceil(float64(s.bytes)/float64(s.done)), "B/op")
	b.ReportMetric(ceil(float64(s.mallocs)/float64(s.done)), "allocs/op")
	if recordBytes > 0 {
		b.ReportMetric(1e9/ns, "records/s")
		b.ReportMetric(float64(recordBytes)/ns*1e3, "MB/s")
	}
	if s.syncs != nil {
		b.ReportMetric(float64(s.fsync)/float64(s.done), "fsyncs/op")
	}
	if len(s.lat) > 0 {
		b.ReportMetric(micros(s.lat.percentile(50)), "p50-us")
		b.ReportMetric(micros(s.lat.percentile(99)), "p99-us")
	}
}

// reportBeside reports how fast s is beside another side. Each round counts with
// its own ratio.
func (s *side) reportBeside(b *testing.B, other *side) {
	ratios := make([]float64, len(s.perOp))
	for i := range ratios {
		ratios[i] = other.perOp[i] / s.perOp[i]
	}
	unit := "ratio"
	if other.name != "limit" {
		unit += "-" + other.name
	}
	if r := median(ratios); !math.IsInf(r, 0) && !math.IsNaN(r) {
		b.ReportMetric(r, unit)
	}
	b.ReportMetric(median(other.perOp), other.name+"-ns/op")
	if p50 := s.lat.percentile(50); p50 > 0 && other.name == "limit" && len(other.lat) > 0 {
		b.ReportMetric(float64(other.lat.percentile(50))/float64(p50), "ratio-p50")
	}
	if len(other.lat) > 0 {
		b.ReportMetric(micros(other.lat.percentile(50)), other.name+"-p50-us")
		b.ReportMetric(micros(other.lat.percentile(99)), other.name+"-p99-us")
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

// latencies are the times of single operations.
type latencies []time.Duration

func (l latencies) percentile(p int) time.Duration {
	if len(l) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(l))
	return sorted[(len(sorted)-1)*p/100]
}

func micros(d time.Duration) float64 { return float64(d) / 1e3 }

// together has callers goroutines call op at the same time, n times in all, and
// notes how long each call took.
func (l *latencies) together(callers, n int, op func(i int)) {
	at := len(*l)
	*l = append(*l, make(latencies, n)...)
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
