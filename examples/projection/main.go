// Projection keeps a table in SQLite that follows from a log: the files of a
// repository, projected from the history of changes. The process that applies
// the changes is killed at random, again and again, and the table is right all
// the same, with every change applied once.
//
//	go run ./examples/projection
//	go run ./examples/projection -seed 7
//
// The changes are the recorded history of the bbolt repository, 3,045 additions,
// modifications and deletions of paths. In the end the table must be the list of
// files of its last commit.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/testdata/events"
)

const (
	stream = "git_bbolt_paths"
	// kills is how many processes are killed before one may finish.
	kills = 7

	// dirVar tells the child, the process that gets killed, where log and
	// database are.
	dirVar = "EVLOG_PROJECTION_DIR"
)

func main() {
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano())%1_000_000, "when the processes are killed")
	flag.Parse()
	ctx := context.Background()
	var err error
	if dir := os.Getenv(dirVar); dir != "" {
		err = project(ctx, dir, os.Stdin, os.Stdout)
	} else {
		err = run(ctx, *seed, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "projection:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, seed uint64, out io.Writer) (err error) {
	began := time.Now()
	dir, err := os.MkdirTemp("", "evlog-projection-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s := &story{out: out, dir: dir}
	if s.changes, err = events.Load(stream); err != nil {
		return err
	}
	if err := s.writeLog(ctx); err != nil {
		return err
	}
	if err := s.killProjectors(ctx, seed); err != nil {
		return err
	}
	if err := s.compare(ctx); err != nil {
		return err
	}
	s.say("done", "%s", time.Since(began).Round(10*time.Millisecond))
	return nil
}

// story is what the steps hand on to each other.
type story struct {
	out     io.Writer
	dir     string
	changes []events.Event
	handled int // records that handlers were called for, in all processes
}

func (s *story) say(topic, format string, args ...any) {
	fmt.Fprintf(s.out, "%-8s %s\n", topic, fmt.Sprintf(format, args...))
}

// writeLog appends the history, in the order in which it happened.
func (s *story) writeLog(ctx context.Context) error {
	log, err := evlog.Open(ctx, filepath.Join(s.dir, "log"), nil)
	if err != nil {
		return err
	}
	records := make([]evlog.Record, len(s.changes))
	for i, c := range s.changes {
		records[i] = evlog.Record{Time: c.Time, Key: c.Key, Value: c.Value}
	}
	_, err = log.Append(ctx, records...)
	s.say("log", "%d changes of paths, %s to %s", len(records),
		records[0].Time.Format(time.DateOnly), records[len(records)-1].Time.Format(time.DateOnly))
	return errors.Join(err, log.Close())
}

// killProjectors starts one process after the other and kills all but the last,
// after a random number of records.
func (s *story) killProjectors(ctx context.Context, seed uint64) error {
	s.say("seed", "%d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	before := 0
	for range kills {
		n, err := s.runProjector(ctx, 1+rng.IntN(len(s.changes)/(kills+2)), time.Duration(rng.IntN(2000))*time.Microsecond)
		if err != nil {
			return err
		}
		p, err := look(ctx, s.dir, s.changes)
		if err != nil {
			return err
		}
		if p.next < before || p.next == len(s.changes) {
			return fmt.Errorf("the cursor went from %d to %d", before, p.next)
		}
		before = p.next
		s.say("killed", "when it had come to record %d or a little further; committed are %d, each once, and the table is exactly theirs", n, p.next)
	}
	_, err := s.runProjector(ctx, 0, 0)
	return err
}

// window is how many records a process may be ahead of what was heard of it.
const window = 32

// runProjector runs a process. It is killed so long after it has said that it
// handles the n-th record of its own; 0 lets it finish. last is the record that
// it was heard of last before. It waits for a word after each window of records,
// so that it cannot finish before it is killed, however slow the machine is.
func (s *story) runProjector(ctx context.Context, n int, wait time.Duration) (last int, err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), dirVar+"="+s.dir)
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	goOn, err := cmd.StdinPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	heard := 0
	for lines := bufio.NewScanner(pipe); lines.Scan(); {
		offset := 0
		if _, err := fmt.Sscan(lines.Text(), &offset); err != nil {
			break // the kill cut it off
		}
		s.handled++
		heard++
		if n == 0 || heard <= n {
			last = offset
		}
		if heard%window == 0 {
			_, _ = goOn.Write([]byte{'\n'}) // it may be dead already
		}
		if heard == n {
			time.Sleep(wait)
			if err := cmd.Process.Kill(); err != nil {
				return last, err
			}
		}
	}
	err = cmd.Wait()
	if n == 0 {
		return last, err
	}
	if err == nil {
		return last, errors.New("a process that was to be killed has finished")
	}
	return last, nil // err says that it was killed
}

// compare compares the table with what the repository really had in the end.
func (s *story) compare(ctx context.Context) error {
	p, err := look(ctx, s.dir, s.changes)
	if err != nil {
		return err
	}
	if p.next != len(s.changes) || p.applied != len(s.changes) {
		return fmt.Errorf("the cursor stands at %d and %d changes were applied, not %d", p.next, p.applied, len(s.changes))
	}
	s.say("applied", "%d changes, each once, by %d processes, whose handlers were called %d times", p.applied, kills+1, s.handled)
	want, err := events.FinalTree()
	if err != nil {
		return err
	}
	if err := sameTree(p.files, want); err != nil {
		return err
	}
	s.say("table", "%d files, exactly those of the last commit", len(p.files))
	return nil
}
