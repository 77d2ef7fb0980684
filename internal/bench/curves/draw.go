package main

import (
	"bytes"
	"fmt"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

const (
	width       = vg.Length(620)
	height      = vg.Length(330)
	legendWidth = vg.Length(128)
	margin      = vg.Length(10)
)

// draw draws medians of rounds, and from the first to the third quartile a bar.
func (c *chart) draw(t *table) ([]byte, error) {
	p := newPlot(c)
	p.X.Tick.Marker = ticksAt(t.xs, c.xTick)
	legend := newLegend()
	low, high := math.Inf(1), 0.0
	for _, s := range c.sides {
		points, ok := t.sides[s.name]
		if !ok {
			return nil, fmt.Errorf("side %s is not in table %s", s.name, c.table)
		}
		var m medians
		for _, at := range points {
			l, median, h := at.quartiles(c.figure)
			m.add(at.x, l, median, h)
			low, high = min(low, l), max(high, h)
		}
		if err := m.draw(p, &legend, s); err != nil {
			return nil, err
		}
	}
	p.X.Min, p.X.Max = t.xs[0], t.xs[len(t.xs)-1]
	p.Y.Min, p.Y.Max = low/1.3, high*1.3
	p.Y.Tick.Marker = decades{}
	return c.compose(p, &legend)
}

// compose puts the legend beside the plot.
func (c *chart) compose(p *plot.Plot, legend *plot.Legend) ([]byte, error) {
	canvas := vgsvg.New(width, height)
	all := draw.New(canvas)
	all.SetColor(ground.light)
	all.Fill(all.Rectangle.Path())
	inner := draw.Crop(all, margin, -margin, margin, -margin)
	p.Draw(draw.Crop(inner, 0, -legendWidth, 0, 0))
	legend.Draw(draw.Crop(inner, inner.Size().X-legendWidth+margin, 0, 0, -3*margin))
	var out bytes.Buffer
	if _, err := canvas.WriteTo(&out); err != nil {
		return nil, err
	}
	return themed(out.Bytes()), nil
}

// medians are the points of a line with their bars.
type medians struct {
	plotter.XYs
	plotter.YErrors
}

func (m *medians) add(x, low, median, high float64) {
	m.XYs = append(m.XYs, plotter.XY{X: x, Y: median})
	m.YErrors = append(m.YErrors, struct{ Low, High float64 }{median - low, high - median})
}

func (m *medians) draw(p *plot.Plot, legend *plot.Legend, s side) error {
	line, points, err := plotter.NewLinePoints(m.XYs)
	if err != nil {
		return err
	}
	line.Color, line.Width = s.style.color, 1.8
	if s.style.dashed {
		line.Dashes = []vg.Length{5, 3}
	}
	points.Color, points.Shape, points.Radius = s.style.color, s.style.glyph, 3
	bars, err := plotter.NewYErrorBars(m)
	if err != nil {
		return err
	}
	bars.Color, bars.CapWidth = s.style.color, 3
	p.Add(bars, line, points)
	legend.Add(s.label, line, points)
	return nil
}

func newPlot(c *chart) *plot.Plot {
	p := plot.New()
	p.Title.Text = c.title
	text(&p.Title.TextStyle, 13)
	p.Title.TextStyle.Font.Weight = 2 // bold
	p.Title.Padding = margin
	p.BackgroundColor = nil
	p.X.Label.Text, p.Y.Label.Text = c.x, c.y
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Scale = plot.LogScale{}
		a.Color, a.Tick.Color = ink.light, ink.light
		a.Padding = 0
		text(&a.Label.TextStyle, 11)
		text(&a.Tick.Label, 10)
	}
	lines := plotter.NewGrid()
	lines.Horizontal.Color, lines.Vertical.Color = grid.light, grid.light
	lines.Vertical.Dashes, lines.Horizontal.Dashes = nil, nil
	p.Add(lines)
	return p
}

func newLegend() plot.Legend {
	l := plot.NewLegend()
	l.Top, l.Left = true, true
	l.Padding = 3
	text(&l.TextStyle, 10.5)
	return l
}

func text(s *draw.TextStyle, size vg.Length) {
	s.Color = ink.light
	s.Font.Variant = "Sans"
	s.Font.Size = font.Length(size)
}

// ticksAt has a label at each of xs.
func ticksAt(xs []float64, label func(float64) string) plot.ConstantTicks {
	var ticks plot.ConstantTicks
	for _, x := range xs {
		ticks = append(ticks, plot.Tick{Value: x, Label: label(x)})
	}
	return ticks
}

// decades are ticks at powers of ten, and where there are few also at twice and five
// times these.
type decades struct{}

func (decades) Ticks(low, high float64) (ticks []plot.Tick) {
	few := math.Log10(high/low) < 2.2
	for d := math.Pow(10, math.Floor(math.Log10(low))); d <= high; d *= 10 {
		for m := 1.0; m < 10; m++ {
			v := d * m
			if v < low || v > high {
				continue
			}
			label := ""
			if m == 1 || few && (m == 2 || m == 5) {
				label = count(math.Round(v*1e6) / 1e6)
			}
			ticks = append(ticks, plot.Tick{Value: v, Label: label})
		}
	}
	return ticks
}
