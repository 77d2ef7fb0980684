package main

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// table is what was measured of the sides of a curve.
type table struct {
	xs    []float64 // ascending
	sides map[string][]point
}

// point has what the turns of a side have shown at one x.
type point struct {
	x     float64
	turns []turn
}

type turn struct{ ns, p50, p99 float64 }

// readTable reads what curve_test.go of package bench has written: comments, a line
// of names, and rows of x, side, round, ns, p50_ns, p99_ns.
func readTable(path string) (*table, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	t := &table{sides: map[string][]point{}}
	lines := bufio.NewScanner(f)
	named := false
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		if strings.HasPrefix(line, "#") {
			continue
		}
		if !named {
			named = true
			continue
		}
		if err := t.add(line); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, n, err)
		}
	}
	return t, lines.Err()
}

func (t *table) add(line string) error {
	cells := strings.Split(line, "\t")
	if len(cells) != 6 {
		return fmt.Errorf("%d cells, want 6", len(cells))
	}
	var numbers [6]float64
	for i, cell := range cells {
		if i == 1 {
			continue
		}
		var err error
		if numbers[i], err = strconv.ParseFloat(cell, 64); err != nil {
			return err
		}
	}
	x, side := numbers[0], cells[1]
	if i, ok := slices.BinarySearch(t.xs, x); !ok {
		t.xs = slices.Insert(t.xs, i, x)
	}
	points := t.sides[side]
	i := slices.IndexFunc(points, func(p point) bool { return p.x == x })
	if i < 0 {
		i = len(points)
		points = append(points, point{x: x})
	}
	points[i].turns = append(points[i].turns, turn{numbers[3], numbers[4], numbers[5]})
	t.sides[side] = points
	return nil
}

// quartiles are those of a figure of the turns.
func (p point) quartiles(figure func(x float64, t turn) float64) (low, median, high float64) {
	f := make([]float64, len(p.turns))
	for i, t := range p.turns {
		f[i] = figure(p.x, t)
	}
	slices.Sort(f)
	at := func(q float64) float64 { // between two neighbours, as far as q says
		i := q * float64(len(f)-1)
		low, high := f[int(i)], f[min(int(i)+1, len(f)-1)]
		return low + (i-float64(int(i)))*(high-low)
	}
	return at(0.25), at(0.5), at(0.75)
}
