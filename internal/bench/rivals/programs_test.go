package rivals

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/evlog-go/evlog/internal/bench/turns"
)

// program is a log in another language. A small program of ours, in a process of
// its own, does whole turns when it is told by a line (see rust/src/main.rs and
// jvm/src/main/java/rivals/Main.java), so that only the turn's first and last
// microseconds are for talking to it.
type program struct {
	name    string
	command []string
	// built is a file that is there if the program can be started.
	built   string
	batches bool // it can append many records in one call
	syncs   bool // it can be told to sync
	checks  string
}

// programs are those that have been built; the others are left out.
var programs []program

func init() {
	rust := filepath.Join("rust", "target", "release", "rivals")
	classes := filepath.Join("jvm", "target", "classes")
	jvm := []string{
		"java", "@" + filepath.Join("jvm", "java.args"), "-cp",
		classes + string(os.PathListSeparator) + filepath.Join("jvm", "target", "dependency", "*"), "rivals.Main",
	}
	main := filepath.Join(classes, "rivals", "Main.class")
	for _, p := range []program{
		{name: "kafko", command: []string{rust, "kafko"}, built: rust, batches: true, syncs: true, checks: "each record"},
		{name: "streambed", command: []string{rust, "streambed"}, built: rust, checks: "each record"},
		{name: "chronicle", command: append(jvm, "chronicle"), built: main, batches: true, syncs: true, checks: "nothing"},
		{name: "kafka", command: append(jvm, "kafka"), built: main, batches: true, syncs: true, checks: "each batch"},
	} {
		if _, err := os.Stat(p.built); err != nil {
			leftOut = append(leftOut, p.name+": its program is not built, see make bench-rivals-programs")
			continue
		}
		programs = append(programs, p)
	}
}

// child is a program that runs.
type child struct {
	b     testing.TB
	name  string
	lines *bufio.Scanner
	in    func(line string) error
}

// start runs the program until the end of the benchmark.
func (p program) start(b testing.TB) *child {
	cmd := exec.Command(p.command[0], p.command[1:]...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	must(b, err)
	out, err := cmd.StdoutPipe()
	must(b, err)
	must(b, cmd.Start())
	b.Cleanup(func() { must(b, errors.Join(in.Close(), cmd.Wait())) })
	return &child{b, p.name, bufio.NewScanner(out), func(line string) error {
		_, err := fmt.Fprintln(in, line)
		return err
	}}
}

// do has the program do something, and waits for its answer.
func (c *child) do(format string, args ...any) (answer int) {
	line := fmt.Sprintf(format, args...)
	must(c.b, c.in(line))
	c.lines.Scan()
	if _, err := fmt.Sscanf(c.lines.Text(), "ok %d", &answer); err != nil {
		c.b.Fatalf("%s: %s: %q %v", c.name, line, c.lines.Text(), c.lines.Err())
	}
	return answer
}

func (c *child) append(count, batch, valueBytes int, sync bool) {
	synced := 0
	if sync {
		synced = 1
	}
	c.do("append %d %d %d %d", count, batch, valueBytes, synced)
}

// ops is how many records there are in a turn that does not sync.
func (p program) ops(batch int) int {
	if batch == 1 && p.name != "chronicle" {
		return 20_000
	}
	return 200_000
}

// appending appends to a log that is new in each turn.
func (p program) appending(b testing.TB, ops, batch, valueBytes int, sync bool) *turns.Side {
	c := p.start(b)
	var dir string
	s := &turns.Side{Name: p.name, Ops: ops}
	s.Before = func() {
		dir = b.TempDir()
		c.do("open %s", dir)
		c.append(1000, batch, valueBytes, sync) // warm
	}
	s.Run = func(ops int) { c.append(ops, batch, valueBytes, sync) }
	s.After = func() {
		c.do("close")
		must(b, os.RemoveAll(dir))
	}
	// For the compiler of the JVM.
	for range 3 {
		s.Before()
		s.Run(ops)
		s.After()
	}
	return s
}

func (p program) scanning(b testing.TB, records, valueBytes int) *turns.Side {
	// For each record kafko reads all of the segment behind it.
	if p.name == "kafko" {
		records = 2000
	}
	c := p.start(b)
	dir := b.TempDir()
	c.do("open %s", dir)
	batch := 1
	if p.batches {
		batch = 1000
	}
	c.append(records, batch, valueBytes, false)
	c.do("close")
	c.do("open %s", dir)
	b.Cleanup(func() { c.do("close") })
	s := &turns.Side{Name: p.name, Ops: records, Run: func(ops int) { sink += c.do("scan %d", ops) }}
	for range 3 {
		s.Run(records)
	}
	return s
}

// TestPrograms tests that they keep what they are given.
func TestPrograms(t *testing.T) {
	if len(programs) == 0 {
		t.Skip("none is built")
	}
	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) {
			c, dir := p.start(t), t.TempDir()
			c.do("open %s", dir)
			n := 3000
			c.append(n, 1, 100, false)
			if p.batches {
				c.append(2000, 1000, 100, false)
				n += 2000
			}
			if p.syncs {
				c.append(1000, 100, 100, true)
				n += 1000
			}
			c.do("close")
			c.do("open %s", dir)
			if bytes := c.do("scan %d", n); bytes != n*116 {
				t.Errorf("%d bytes in %d records", bytes, n)
			}
			c.do("close")
			if size := allocated(t, dir); size < int64(n)*116 {
				t.Errorf("%d bytes on disk for %d records", size, n)
			}
		})
	}
}
