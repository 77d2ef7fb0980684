package main

import (
	"io"
	"os"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"
)

// screen is what a terminal shows after output: lines, without what was written
// over or erased. Of escape sequences it knows the one that erases a line.
func screen(output string) string {
	var lines []string
	line, at := []rune{}, 0
	output = strings.ReplaceAll(output, "\r\n", "\n")
	for output != "" {
		if rest, ok := strings.CutPrefix(output, "\x1b[2K"); ok {
			line, output = line[:0], rest
			continue
		}
		c := []rune(output)[0]
		output = output[len(string(c)):]
		switch c {
		case '\n':
			lines, line, at = append(lines, string(line)), line[:0], 0
		case '\r':
			at = 0
		default:
			for len(line) <= at {
				line = append(line, ' ')
			}
			line[at] = c
			at++
		}
	}
	for i, l := range append(lines, string(line)) {
		lines = append(lines[:i], strings.TrimRight(l, " "))
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}

// cmdScreen compares what the terminal shows at the end with a file: screen FILE.
func cmdScreen(ts *testscript.TestScript, _ bool, args []string) {
	got := screen(ts.ReadFile("ttyout"))
	if want := strings.TrimSpace(ts.ReadFile(args[0])); strings.TrimSpace(got) != want { // what is typed is echoed
		ts.Fatalf("the terminal shows\n%s\n, not\n%s\n\n%q", got, want, ts.ReadFile("ttyout"))
	}
}

func TestScreen(t *testing.T) {
	require.Equal(t, "ab\n\nxyz", screen("ab\n\nuvw\rxyz"))
	require.Equal(t, "xyw", screen("uvw\rxy"))
	require.Equal(t, "x", screen("uvw\x1b[2K\rx"))
	require.Equal(t, "a\nb", screen("a\r\nb \n"))
	require.Equal(t, "█b", screen("██\r\r█b"))
	require.Empty(t, screen("uvw\r   \r"))
}

// A notice stands on a line of its own, above the bar, which comes back below it
// and goes at the end.
func TestProgress_Notice(t *testing.T) {
	r, w, err := os.Pipe() // takes the place of the terminal
	require.NoError(t, err)
	a := newApp(strings.NewReader(""), io.Discard, w)
	p := &progress{w: w, what: "work", isBytes: true}
	a.bar.Store(p)
	p.set(0, bigBytes)
	p.set(bigBytes/4, bigBytes)
	a.notice("half of it is done")
	p.set(bigBytes/2, bigBytes)
	p.set(bigBytes, 2*bigBytes) // there is more to do than was thought
	p.end()
	p.set(2*bigBytes, 2*bigBytes) // from another goroutine, too late
	a.notice("all of it is done")
	require.NoError(t, w.Close())
	output, err := io.ReadAll(r)
	require.NoError(t, err)
	require.Contains(t, string(output), "work  25%")
	require.Contains(t, string(output), "work  50%")
	require.NotContains(t, string(output), "100%")
	require.Equal(t, "% half of it is done\n% all of it is done", screen(string(output)))
}

// Little work shows no bar, whatever the terminal.
func TestProgress_Little(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	for _, p := range []*progress{{w: w, isBytes: true}, {w: w}} {
		most := int64(bigCount - 1)
		if p.isBytes {
			most = bigBytes - 1
		}
		p.set(0, most)
		p.set(most/2, most)
		p.set(most, most)
		p.end()
	}
	(&progress{}).set(1, 1<<40)
	(&progress{}).end()
	require.NoError(t, w.Close())
	output, err := io.ReadAll(r)
	require.NoError(t, err)
	require.Empty(t, output)
}
