package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const figures = "../../../docs/performance"

// TestCurves_AreDrawnFromTheTables tests that nobody measured anew without drawing.
func TestCurves_AreDrawnFromTheTables(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, drawAll(figures, dir))
	for _, c := range charts {
		want, err := os.ReadFile(filepath.Join(dir, c.name+".svg"))
		require.NoError(t, err)
		got, err := os.ReadFile(filepath.Join(figures, c.name+".svg"))
		require.NoError(t, err)
		require.True(t, string(want) == string(got), "%s.svg is not what its table says: make curves-draw", c.name)
		require.Less(t, len(got), 60_000, c.name)
	}
}

// TestCurves_HaveTwoThemes tests that each color that is drawn has another one in
// the dark.
func TestCurves_HaveTwoThemes(t *testing.T) {
	for _, c := range charts {
		svg, err := os.ReadFile(filepath.Join(figures, c.name+".svg"))
		require.NoError(t, err)
		css, drawn, ok := strings.Cut(string(svg), "</style>")
		require.True(t, ok)
		for _, what := range []string{"fill:#", "stroke:#"} {
			for _, rest := range strings.Split(drawn, what)[1:] {
				require.Contains(t, css, "[style*='"+what+rest[:6]+"']", c.name)
			}
		}
	}
}

func TestTable_Quartiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.tsv")
	require.NoError(t, os.WriteFile(path, []byte("# some machine\nx\tside\tround\tns\tp50_ns\tp99_ns\n"+
		"2\ta\t0\t40\t1\t9\n1\ta\t0\t7\t1\t9\n2\ta\t1\t10\t1\t9\n2\ta\t2\t20\t1\t9\n2\ta\t3\t30\t1\t9\n2\tb\t0\t3\t1\t9\n"), 0o600))
	table, err := readTable(path)
	require.NoError(t, err)
	require.Equal(t, []float64{1, 2}, table.xs)
	p := table.sides["a"][0]
	require.Equal(t, 2.0, p.x)
	low, median, high := p.quartiles(func(x float64, u turn) float64 { return x * u.ns })
	require.InDeltaSlice(t, []float64{35, 50, 65}, []float64{low, median, high}, 1e-9)

	require.NoError(t, os.WriteFile(path, []byte("x\tside\n1\ta\t0\n"), 0o600))
	_, err = readTable(path)
	require.ErrorContains(t, err, "a.tsv:2: 3 cells")
}
