package main

import (
	"strings"
	"unicode/utf8"

	"github.com/rivo/uniseg"
)

// A table is as wide as its first rows need, so that results of any length can
// be printed. A later cell that is wider moves the rest of its row.
const (
	measuredRows  = 1000
	measuredBytes = 1 << 20
)

// tableResult prints aligned columns, plain or as Markdown.
type tableResult struct {
	s        *sqlSession
	markdown bool
	names    []string
	kinds    []columnKind
	widths   []int
	limits   []int // wider cells are cut; 0 is no limit
	held     [][]string
	bytes    int // in held
	begun    bool
	buf      []byte
}

// columnKind says what was in a column in the rows that are measured.
type columnKind int

const (
	nothing columnKind = iota // or NULL
	numbers                   // and NULL: they stand at the right
	anything
)

func (k columnKind) with(value any) columnKind {
	switch value.(type) {
	case nil:
		return k
	case int64, float64:
		return max(k, numbers)
	}
	return anything
}

// newTableResult begins a table. Those behind the first have an empty line before
// them.
func newTableResult(s *sqlSession, names []string, first bool) *tableResult {
	r := &tableResult{
		s: s, markdown: s.format == "markdown",
		names: make([]string, len(names)), kinds: make([]columnKind, len(names)), limits: make([]int, len(names)),
	}
	for i, name := range names {
		r.names[i] = r.escaped(printable(name))
	}
	if !first {
		r.buf = append(r.buf, '\n')
	}
	return r
}

func (r *tableResult) row(values []any) error {
	cells := make([]string, len(values))
	for i, v := range values {
		cells[i] = r.escaped(string(cell(nil, v)))
		if !r.begun {
			r.bytes += len(cells[i])
			r.kinds[i] = r.kinds[i].with(v)
		}
	}
	if r.begun {
		return r.line(cells)
	}
	r.held = append(r.held, cells)
	if len(r.held) < measuredRows && r.bytes < measuredBytes {
		return nil
	}
	return r.begin()
}

func (r *tableResult) end(bool) error {
	if r.begun {
		return nil
	}
	return r.begin()
}

// escaped keeps a cell from ending its column. Backslashes before a | are doubled, or
// the last one would be taken to escape the one that escapes the |.
func (r *tableResult) escaped(cell string) string {
	if !r.markdown || !strings.Contains(cell, "|") {
		return cell
	}
	var b strings.Builder
	backslashes := 0
	for i := range len(cell) {
		switch cell[i] {
		case '\\':
			backslashes++
		case '|':
			b.WriteString(strings.Repeat(`\`, backslashes+1))
			fallthrough
		default:
			backslashes = 0
		}
		b.WriteByte(cell[i])
	}
	return b.String()
}

// begin fixes the widths, and prints the head and the rows that were held.
func (r *tableResult) begin() error {
	r.begun = true
	r.measure()
	if r.markdown || r.s.header {
		if err := r.head(); err != nil {
			return err
		}
	}
	for _, cells := range r.held {
		if err := r.line(cells); err != nil {
			return err
		}
	}
	r.held = nil
	return nil
}

func (r *tableResult) measure() {
	r.widths = make([]int, len(r.names))
	least := 1
	if r.markdown {
		least = 3 // of the dashes
	}
	for i, name := range r.names {
		r.widths[i] = least
		if r.markdown || r.s.header {
			r.widths[i] = max(least, textWidth(name))
		}
		for _, cells := range r.held {
			r.widths[i] = max(r.widths[i], textWidth(cells[i]))
		}
	}
	if room := r.s.width(); room > 0 && !r.markdown {
		limit := widestThatFits(r.widths, room-2*(len(r.widths)-1))
		for i := range r.widths {
			r.widths[i] = min(r.widths[i], limit)
			r.limits[i] = limit
		}
	}
}

// widestThatFits is how wide columns may be so that all of them fit into room.
func widestThatFits(widths []int, room int) int {
	const least = 8 // of less nobody can read anything
	limit := least
	for {
		sum, wider := 0, false
		for _, w := range widths {
			sum += min(w, limit+1)
			wider = wider || w > limit
		}
		if sum > room || !wider {
			return limit
		}
		limit++
	}
}

func (r *tableResult) head() error {
	if err := r.line(r.names); err != nil {
		return err
	}
	dashes := make([]string, len(r.names))
	for i, w := range r.widths {
		dashes[i] = strings.Repeat("-", w)
		if r.markdown && r.kinds[i] == numbers {
			dashes[i] = dashes[i][1:] + ":"
		}
	}
	return r.line(dashes)
}

func (r *tableResult) line(cells []string) error {
	between, b := "  ", r.buf
	if r.markdown {
		between = " | "
		b = append(b, "| "...)
	}
	for i, c := range cells {
		if i > 0 {
			b = append(b, between...)
		}
		width := textWidth(c)
		if r.limits[i] > 0 && width > r.limits[i] {
			c = cut(c, r.limits[i])
			width = textWidth(c)
			r.s.tellCut()
		}
		padding := max(0, r.widths[i]-width)
		last := i == len(cells)-1 && !r.markdown
		if r.kinds[i] == numbers {
			b = appendSpaces(b, padding)
		}
		b = append(b, c...)
		if r.kinds[i] != numbers && !last {
			b = appendSpaces(b, padding)
		}
	}
	if r.markdown {
		b = append(b, " |"...)
	}
	_, err := r.s.a.out.Write(append(b, '\n'))
	r.buf = reuse(b)
	return err
}

func appendSpaces(b []byte, n int) []byte {
	for range n {
		b = append(b, ' ')
	}
	return b
}

// textWidth is how many columns of a terminal a printable text takes.
func textWidth(s string) int {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return uniseg.StringWidth(s)
		}
	}
	return len(s)
}

// cut shortens a text to a width, and marks that with its last column.
func cut(s string, width int) string {
	end, used, state := 0, 0, -1
	for rest := s; rest != ""; {
		var cluster string
		var w int
		cluster, rest, w, state = uniseg.FirstGraphemeClusterInString(rest, state)
		if used+w > width-1 {
			break
		}
		used += w
		end += len(cluster)
	}
	return s[:end] + "…"
}
