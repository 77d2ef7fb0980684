package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"

	"github.com/evlog-go/evlog/evlog"
)

// cmdEvents makes the log that the examples of --help speak of: 5000 records of
// 64 bytes with 50 keys, a second apart, 1024 in a segment: events DIR.
func cmdEvents(ts *testscript.TestScript, _ bool, args []string) {
	ctx := context.Background()
	l, err := evlog.Open(ctx, ts.MkAbs(args[0]), &evlog.Options{SegmentBytes: 64 << 10})
	ts.Check(err)
	for i := range 5000 {
		r := evlog.Record{Time: time.Unix(1_600_000_000+int64(i), 0), Key: fmt.Appendf(nil, "doc:%d", i%50)}
		r.Value = fmt.Appendf(nil, `{"edit":%d,"text":""}`, i)
		r.Value = bytes.Replace(r.Value, []byte(`""`), fmt.Appendf(nil, `"%s"`, strings.Repeat("x", 64-int(r.Size()))), 1)
		_, err := l.Enqueue(ctx, r)
		ts.Check(err)
	}
	ts.Check(l.Close())
}

// cmdExamples runs the examples of every command's --help, those of each command
// in a copy of a directory, and compares what they print and the files that they
// make with testdata/examples: examples DIR.
func cmdExamples(ts *testscript.TestScript, _ bool, args []string) {
	root := newRoot(newApp(strings.NewReader(""), &strings.Builder{}, &strings.Builder{}))
	var failed []string
	n := 0
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Hidden {
			return
		}
		dir := ts.MkAbs("run/" + manName(cmd))
		ts.Check(os.CopyFS(dir, os.DirFS(ts.MkAbs(args[0]))))
		var got strings.Builder
		for _, line := range exampleLines(cmd.Example) {
			n++
			fmt.Fprintf(&got, "$ %s\n%s", line, runExample(ts, dir, line))
		}
		if text := compareExample(ts, manName(cmd), got.String()); text != "" {
			failed = append(failed, text)
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(root)
	if n < 40 {
		ts.Fatalf("only %d examples", n)
	}
	if len(failed) > 0 {
		ts.Fatalf("%s", strings.Join(failed, "\n"))
	}
}

// exampleLines are the examples, each with the lines that go on with it, which are
// indented further.
func exampleLines(text string) []string {
	var all []string
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(strings.TrimPrefix(line, "  "), "\n")
		if strings.HasPrefix(line, " ") {
			all[len(all)-1] += "\n" + line
			continue
		}
		all = append(all, line)
	}
	return all
}

// runExample runs one line. One that follows is run until it has printed
// something, while records are appended.
func runExample(ts *testscript.TestScript, dir, line string) string {
	before := filesOf(ts, dir)
	follows := strings.Contains(line, " -f")
	if follows {
		line = "{ " + line + "; } | head -n 1"
	}
	cmd := exec.Command("sh", "-c", line)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+ts.Getenv("PATH"), "TZ="+ts.Getenv("TZ"), "GORACE="+ts.Getenv("GORACE"), "MANPAGER=cat", "EVLOG_DIR=")
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	ts.Check(cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	deadline := time.After(patience)
	for {
		select {
		case err := <-ended:
			if err != nil || strings.Contains(stderr.String(), "evlog:") {
				ts.Fatalf("%s: %v\n%s", line, err, stderr.String())
			}
			out := stdout.String()
			if strings.Contains(line, "| jq ") || strings.Contains(line, "| man ") || follows {
				if out == "" {
					ts.Fatalf("%s: prints nothing", line)
				}
				out = "(something)\n"
			}
			if out != "" && !strings.HasSuffix(out, "\n") {
				out += "(no newline)\n"
			}
			return steady(out) + steady(stderr.String()) + newFiles(before, filesOf(ts, dir))
		case <-deadline:
			_ = cmd.Process.Kill()
			ts.Fatalf("%s: does not end\n%s\n%s", line, stdout.String(), stderr.String())
		case <-time.After(50 * time.Millisecond):
			if follows {
				appendMore(ts, dir)
			}
		}
	}
}

// appendMore gives a follower so much that what stands behind it in a pipe prints
// something, though it has a buffer.
func appendMore(ts *testscript.TestScript, dir string) {
	ctx := context.Background()
	l, err := evlog.Open(ctx, filepath.Join(dir, "events"), nil)
	if errors.Is(err, evlog.ErrLocked) {
		return
	}
	ts.Check(err)
	for range 1000 {
		_, err := l.Enqueue(ctx, evlog.Record{Value: []byte(`{"more":true}`)})
		ts.Check(err)
	}
	ts.Check(l.Close())
}

func filesOf(ts *testscript.TestScript, dir string) map[string]bool {
	entries, err := os.ReadDir(dir)
	ts.Check(err)
	names := map[string]bool{}
	for _, e := range entries {
		names[e.Name()] = true
	}
	return names
}

func newFiles(before, after map[string]bool) string {
	text := ""
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if !before[name] {
			text += "(makes " + name + ")\n"
		}
	}
	return text
}

// steady is output without what differs from run to run, and not too much of
// it.
func steady(out string) string {
	for _, v := range varying {
		out = v.expr.ReplaceAllString(out, v.by)
	}
	const most, widest = 12, 160
	lines := strings.SplitAfter(out, "\n")
	for i, line := range lines {
		if len(line) > widest {
			lines[i] = line[:widest] + "...\n"
		}
	}
	if len(lines) > most+1 {
		lines = append(lines[:most], "...\n")
	}
	return strings.Join(lines, "")
}

var varying = []struct {
	expr *regexp.Regexp
	by   string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "<id>"},
	{regexp.MustCompile(`\b[0-9a-f]{32}\b`), "<uid>"},
	{regexp.MustCompile(`\d+ bytes left`), "<n> bytes left"},
	{regexp.MustCompile(`\b20(2[1-9]|[3-9]\d)-\d\d-\d\dT[0-9:.]+(Z|[+-]\d\d:\d\d)`), "<time>"},
}

// compareExample returns what differs.
func compareExample(ts *testscript.TestScript, name, got string) string {
	path := filepath.Join(packageDir, "testdata", "examples", name+".txt")
	want, err := os.ReadFile(path)
	if err == nil && string(want) == got {
		return ""
	}
	if *update {
		ts.Check(os.WriteFile(path, []byte(got), 0o666))
		return ""
	}
	return string(diff.Diff(path, want, "got", []byte(got))) + "(go test ./cmd/evlog -update accepts it)"
}

// packageDir is the directory of this package, in which the tests start.
var packageDir, _ = os.Getwd()
