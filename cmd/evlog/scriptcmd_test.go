package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/format"
)

// cmdStatus runs a command that must end with this exit status, and never with
// a stack trace: status CODE COMMAND ARG...
func cmdStatus(ts *testscript.TestScript, neg bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want || neg {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
	if stderr := ts.ReadFile("stderr"); strings.Contains(stderr, "goroutine ") {
		ts.Fatalf("stack trace on stderr")
	}
}

// changeFile replaces a file's content.
func changeFile(ts *testscript.TestScript, name string, change func([]byte) []byte) {
	path := ts.MkAbs(name)
	b, err := os.ReadFile(path)
	ts.Check(err)
	ts.Check(os.WriteFile(path, change(b), 0o600))
}

// position reads a position; a negative one counts from the end.
func position(ts *testscript.TestScript, s string, size int) int {
	n, err := strconv.Atoi(s)
	ts.Check(err)
	if n < 0 {
		n += size
	}
	return n
}

// cmdFlip flips a bit of one byte: flip FILE POSITION.
func cmdFlip(ts *testscript.TestScript, _ bool, args []string) {
	changeFile(ts, args[0], func(b []byte) []byte {
		b[position(ts, args[1], len(b))] ^= 4
		return b
	})
}

// cmdTruncate cuts a file: truncate FILE SIZE.
func cmdTruncate(ts *testscript.TestScript, _ bool, args []string) {
	changeFile(ts, args[0], func(b []byte) []byte { return b[:position(ts, args[1], len(b))] })
}

// cmdZeros appends zeros: zeros FILE N.
func cmdZeros(ts *testscript.TestScript, _ bool, args []string) {
	changeFile(ts, args[0], func(b []byte) []byte {
		return append(b, make([]byte, position(ts, args[1], 0))...)
	})
}

// cmdDurable writes DIR/DURABLE as an earlier sync left it:
// durable DIR NEXT BASE POSITION.
func cmdDurable(ts *testscript.TestScript, _ bool, args []string) {
	d := format.Durable{
		NextOffset: uint64(position(ts, args[1], 0)),
		Base:       uint64(position(ts, args[2], 0)),
		Position:   int64(position(ts, args[3], 0)),
	}
	var b [format.DurableSize]byte
	d.Encode(&b)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]+"/"+format.DurableName), b[:], 0o600))
}

// cmdMakeLog makes a log whose records have the given values, each appended
// alone, with times that rise by a second: mklog DIR SEGMENTBYTES INDEXBYTES VALUE...
func cmdMakeLog(ts *testscript.TestScript, _ bool, args []string) {
	ctx := context.Background()
	l, err := evlog.Open(ctx, ts.MkAbs(args[0]), &evlog.Options{
		SegmentBytes: int64(position(ts, args[1], 0)),
		IndexBytes:   int64(position(ts, args[2], 0)),
	})
	ts.Check(err)
	for i, value := range args[3:] {
		_, err := l.Append(ctx, evlog.Record{Time: time.Unix(1_600_000_000+int64(i), 0), Value: []byte(value)})
		ts.Check(err)
	}
	ts.Check(l.Close())
}

// cmdOpenAll opens the log for writing, reading everything, and closes it. With
// a ! the log must be refused as corrupt: [!] openall DIR
func cmdOpenAll(ts *testscript.TestScript, neg bool, args []string) {
	l, err := evlog.Open(context.Background(), ts.MkAbs(args[0]), &evlog.Options{Verify: evlog.VerifyAll})
	if neg {
		if !errors.Is(err, evlog.ErrCorrupt) {
			ts.Fatalf("want corruption, got %v", err)
		}
		return
	}
	ts.Check(err)
	ts.Check(l.Close())
}

// cmdHold has another process, this one, hold the log to the script's end, with
// records that are written and not synced if that is said: hold DIR [unsynced].
func cmdHold(ts *testscript.TestScript, _ bool, args []string) {
	ctx := context.Background()
	opts := &evlog.Options{}
	if len(args) > 1 {
		opts.Sync = evlog.SyncFlush
	}
	l, err := evlog.Open(ctx, ts.MkAbs(args[0]), opts)
	ts.Check(err)
	if len(args) > 1 {
		_, err := l.Enqueue(ctx, evlog.Record{Value: make([]byte, 1<<20)})
		ts.Check(err)
		for n := uint64(0); n == 0; time.Sleep(time.Millisecond) {
			n, err = l.Reader().BeyondDurable(ctx)
			ts.Check(err)
		}
	}
	ts.Setenv("PID", strconv.Itoa(os.Getpid()))
	ts.Defer(func() { ts.Check(l.Close()) })
}

// cmdHook has the log demand an open hook: hook DIR NAME.
func cmdHook(ts *testscript.TestScript, _ bool, args []string) {
	ctx := context.Background()
	l, err := evlog.Open(ctx, ts.MkAbs(args[0]), &evlog.Options{OpenHook: evlog.Hook{
		Name: args[1], Run: func(context.Context, evlog.HookState) error { return nil },
	}})
	ts.Check(err)
	ts.Check(l.RequireHook(ctx, ""))
	ts.Check(l.Close())
}

// cmdLines makes a file of numbered lines: lines FILE N.
func cmdLines(ts *testscript.TestScript, _ bool, args []string) {
	var b bytes.Buffer
	for i := range position(ts, args[1], 0) {
		b.WriteString("line " + strconv.Itoa(i) + "\n")
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), b.Bytes(), 0o600))
}

// process is an evlog that runs beside the script. Its output goes to NAME.out
// and NAME.err.
type process struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	ended chan error
}

type (
	processes    map[string]*process
	processesKey struct{}
)

func processNamed(ts *testscript.TestScript, name string) *process {
	p := ts.Value(processesKey{}).(processes)[name]
	if p == nil {
		ts.Fatalf("no process %s", name)
	}
	return p
}

// cmdStart starts evlog beside the script: start NAME ARG...
func cmdStart(ts *testscript.TestScript, _ bool, args []string) {
	self, err := os.Executable()
	ts.Check(err)
	name := args[0]
	cmd := exec.Command(self)
	cmd.Args = append([]string{"evlog"}, args[1:]...)
	cmd.Dir = ts.MkAbs(".")
	cmd.Env = append(os.Environ(), "TZ="+ts.Getenv("TZ"), "GORACE="+ts.Getenv("GORACE"))
	stdout, err := os.Create(ts.MkAbs(name + ".out"))
	ts.Check(err)
	defer stdout.Close()
	stderr, err := os.Create(ts.MkAbs(name + ".err"))
	ts.Check(err)
	defer stderr.Close()
	cmd.Stdout, cmd.Stderr = stdout, stderr
	stdin, err := cmd.StdinPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	p := &process{cmd: cmd, stdin: stdin, ended: make(chan error, 1)}
	go func() { p.ended <- cmd.Wait() }()
	ts.Value(processesKey{}).(processes)[name] = p
	ts.Defer(func() { _ = cmd.Process.Kill() })
}

// cmdFeed writes a line to a process: feed NAME LINE.
func cmdFeed(ts *testscript.TestScript, _ bool, args []string) {
	_, err := io.WriteString(processNamed(ts, args[0]).stdin, args[1]+"\n")
	ts.Check(err)
}

// cmdEOF ends a process's input: eof NAME.
func cmdEOF(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(processNamed(ts, args[0]).stdin.Close())
}

// patience is how long a process may take; it is only used up by failures.
const patience = 20 * time.Second

// cmdAwait waits until a file is there and matches: await FILE REGEXP.
func cmdAwait(ts *testscript.TestScript, _ bool, args []string) {
	re := regexp.MustCompile("(?m)" + args[1])
	deadline := time.Now().Add(patience)
	for {
		b, err := os.ReadFile(ts.MkAbs(args[0]))
		if !errors.Is(err, os.ErrNotExist) {
			ts.Check(err)
		}
		if err == nil && re.Match(b) {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("%s never matched %s:\n%s", args[0], args[1], b)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// cmdInterrupt sends Ctrl-C: interrupt NAME.
func cmdInterrupt(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(processNamed(ts, args[0]).cmd.Process.Signal(os.Interrupt))
}

// cmdEnded waits until a process ends with this status: ended NAME CODE.
func cmdEnded(ts *testscript.TestScript, _ bool, args []string) {
	p := processNamed(ts, args[0])
	want, err := strconv.Atoi(args[1])
	ts.Check(err)
	select {
	case <-p.ended:
	case <-time.After(patience):
		ts.Fatalf("%s does not end", args[0])
	}
	if got := p.cmd.ProcessState.ExitCode(); got != want {
		b, _ := os.ReadFile(ts.MkAbs(args[0] + ".err"))
		ts.Fatalf("exit status %d, want %d\n%s", got, want, b)
	}
}
