package bench

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/internal/bench/machine"
	"github.com/evlog-go/evlog/internal/bench/turns"
)

// curvesEnv names the directory that the curves are written to. Without it they
// are not measured: they take far longer than the other benchmarks.
const curvesEnv = "EVLOG_CURVES"

// curve measures sides at each x, and writes what each turn has shown to
// NAME.tsv, which package curves draws. Where -bench picks some of the xs,
// nothing is written.
func curve(b *testing.B, name, axis string, xs []int64, sides func(b *testing.B, x int64) []*turns.Side) {
	dir := os.Getenv(curvesEnv)
	if dir == "" {
		b.Skip(curvesEnv + " does not say where to write")
	}
	before := machine.Load()
	measured := make([][]*turns.Side, 0, len(xs))
	for _, x := range xs {
		b.Run(fmt.Sprintf("%s=%d", axis, x), func(b *testing.B) {
			s := sides(b, x)
			turns.Take(b, 0, s...)
			measured = append(measured, s)
		})
	}
	if len(measured) < len(xs) {
		return
	}
	f, err := os.Create(filepath.Join(dir, name+".tsv"))
	require.NoError(b, err)
	w := bufio.NewWriter(f)
	fmt.Fprintf(w, "# %s\n# load before %s, after %s\n",
		strings.ReplaceAll(machine.Describe(), "\n", "\n# "), before, machine.Load())
	fmt.Fprintf(w, "%s\tside\tround\tns\tp50_ns\tp99_ns\n", axis)
	for i, x := range xs {
		for _, s := range measured[i] {
			for round, t := range s.Turns {
				fmt.Fprintf(w, "%d\t%s\t%d\t%.1f\t%d\t%d\n", x, s.Name, round, t.PerOp, t.P50, t.P99)
			}
		}
	}
	require.NoError(b, w.Flush())
	require.NoError(b, f.Close())
}

// named gives a side the name that it has in a curve.
func named(name string, s *turns.Side) *turns.Side {
	s.Name = name
	return s
}
