package main

import (
	"bytes"
	"fmt"
	"image/color"

	"gonum.org/v1/plot/vg/draw"
)

// shade is a color of the light theme, which is what is drawn, and what the dark
// theme has in its place.
type shade struct{ light, dark color.NRGBA }

var (
	ground = shade{rgb(0xffffff), rgb(0x0d1117)}
	ink    = shade{rgb(0x24292f), rgb(0xe6edf3)}
	grid   = shade{rgb(0xdde2e7), rgb(0x2b3138)}
	blue   = shade{rgb(0x0969da), rgb(0x58a6ff)}
	grey   = shade{rgb(0x57606a), rgb(0xa3acb6)}
	amber  = shade{rgb(0xb07300), rgb(0xe3a72f)}
	red    = shade{rgb(0xc9252d), rgb(0xff7b72)}

	styleEvlog   = style{color: blue.light, glyph: draw.CircleGlyph{}}
	styleLimit   = style{color: grey.light, glyph: draw.PyramidGlyph{}, dashed: true}
	styleGrowing = style{color: amber.light, glyph: draw.RingGlyph{}, dashed: true}
	styleSQLite  = style{color: red.light, glyph: draw.BoxGlyph{}}
)

func rgb(c uint32) color.NRGBA { return color.NRGBA{byte(c >> 16), byte(c >> 8), byte(c), 0xff} }

func (s style) dash() style  { s.dashed, s.glyph = true, draw.RingGlyph{}; return s }
func (s style) solid() style { s.dashed = false; return s }

func hex(c color.NRGBA) string { return fmt.Sprintf("#%02X%02X%02X", c.R, c.G, c.B) }

// themed adds the dark theme to a picture. Each color is told by how the canvas
// writes it, so that who knows nothing of style sheets shows the light theme.
func themed(svg []byte) []byte {
	var css bytes.Buffer
	css.WriteString("<style>\ntext{font-family:'Liberation Sans',Arial,Helvetica,sans-serif !important}\n")
	css.WriteString("@media (prefers-color-scheme: dark){\n")
	for _, s := range []shade{ground, ink, grid, blue, grey, amber, red} {
		fmt.Fprintf(&css, "[style*='fill:%s']{fill:%s !important}", hex(s.light), hex(s.dark))
		fmt.Fprintf(&css, "[style*='stroke:%s']{stroke:%s !important}\n", hex(s.light), hex(s.dark))
	}
	css.WriteString("}\n</style>\n")
	end := bytes.Index(svg, []byte("\">\n")) + 3 // of the opening tag
	return bytes.Join([][]byte{svg[:end], css.Bytes(), svg[end:]}, nil)
}
