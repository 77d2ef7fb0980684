package rivals

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/evlog-go/evlog/internal/bench/machine"
	"github.com/evlog-go/evlog/internal/bench/turns"
)

// all are the limit, evlog and the rivals.
func all() []rival { return append([]rival{least, self}, rivals...) }

// leftOut says which systems are not measured, and why.
var leftOut = []string{"klevdb: its module could not be fetched when this was written"}

// result is a row of the table.
type result struct {
	what, unit string
	sides      []sideResult
	rounds     int
	sizes      bool // figures are bytes, not times
}

type sideResult struct {
	name     string
	ratio    float64 // speed in parts of the limit's
	evlog    float64 // evlog's speed in parts of this one's
	figure   float64
	p50, p99 time.Duration // 0 where single operations are not timed
}

var results []result

// row measures sides, of which the first is the limit, and adds a row to the table.
func row(b *testing.B, what, unit string, sides ...*turns.Side) {
	b.Helper()
	turns.Rounds(b, sides...)
	evlog := sides[slices.IndexFunc(sides, func(s *turns.Side) bool { return s.Name == self.name })]
	r := result{what: what, unit: unit, rounds: b.N}
	for _, s := range sides {
		r.sides = append(r.sides, sideResult{
			s.Name, s.Ratio(sides[0]), evlog.Ratio(s), s.NsPerOp(), s.Lat.Percentile(50), s.Lat.Percentile(99),
		})
	}
	results = append(results, r)
	b.ReportMetric(evlog.NsPerOp(), "ns/op")
	b.ReportMetric(evlog.Ratio(sides[0]), "ratio")
}

// rowOfSizes adds a row of sizes, of which the smaller is the better.
func rowOfSizes(what, unit string, sizes map[string]float64) {
	r := result{what: what, unit: unit, rounds: 1, sizes: true}
	for name, size := range sizes {
		r.sides = append(r.sides, sideResult{
			name: name, ratio: sizes[least.name] / size, evlog: size / sizes[self.name], figure: size,
		})
	}
	results = append(results, r)
}

func TestMain(m *testing.M) {
	before := machine.Load()
	code := m.Run()
	if len(results) > 0 {
		writeTable(os.Stdout, before)
	}
	os.Exit(code)
}

func writeTable(out io.Writer, loadBefore string) {
	fmt.Fprintf(out, "\n%s\nload before %s, after %s\n", machine.Describe(), loadBefore, machine.Load())
	fmt.Fprintln(out, "ratio: speed in parts of the limit's; evlog: its speed in parts of that side's, below 1 it is behind")
	fmt.Fprintln(out, "medians of rounds in which all sides take turns; p50 and p99 are of single operations, of the limit of a whole commit")
	for _, r := range results {
		r.write(out)
	}
	fmt.Fprintln(out, "\nwhat is checked of a record that is read:")
	for _, r := range all() {
		fmt.Fprintf(out, "  %s: %s\n", r.name, r.checks)
	}
	for _, p := range programs {
		fmt.Fprintf(out, "  %s: %s\n", p.name, p.checks)
	}
	for _, what := range leftOut {
		fmt.Fprintln(out, "not measured:", what)
	}
}

// write writes the fastest first.
func (r result) write(out io.Writer) {
	fmt.Fprintf(out, "\n%s (%d rounds)\n", r.what, r.rounds)
	slices.SortStableFunc(r.sides, func(x, y sideResult) int { return cmp.Compare(y.ratio, x.ratio) })
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\tratio\tevlog\t%s\t", r.unit)
	single := r.sides[0].p50 > 0
	if single {
		fmt.Fprint(w, "p50\tp99\t")
	}
	fmt.Fprintln(w)
	for _, s := range r.sides {
		figure := rounded(s.figure)
		if r.sizes {
			figure = fmt.Sprintf("%.1f", s.figure)
		}
		fmt.Fprintf(w, "%s\t%.2f\t%.2f\t%s\t", s.name, s.ratio, s.evlog, figure)
		if single {
			fmt.Fprintf(w, "%s\t%s\t", rounded(float64(s.p50)), rounded(float64(s.p99)))
		}
		fmt.Fprintln(w)
	}
	w.Flush()
}

// rounded is a time with three digits.
func rounded(ns float64) string {
	for _, u := range []struct {
		name string
		ns   float64
	}{{"s", 1e9}, {"ms", 1e6}, {"us", 1e3}} {
		if ns >= u.ns {
			return fmt.Sprintf("%.3g %s", ns/u.ns, u.name)
		}
	}
	return fmt.Sprintf("%.3g ns", ns)
}
