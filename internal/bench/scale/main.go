//go:build linux

// Command scale measures what only a log of unusual size shows: what opening,
// seeking, following and removing cost, and what they need of memory and of file
// descriptors. Nothing of it runs in go test.
//
//	make scale                    # all, some minutes; 8 GB of disk
//	make scale SCALE=segments     # one scenario
//	go run ./internal/bench/scale -share 0.01 all
//
// The scenarios:
//
//	large     50 GB in segments of 64 MiB. Most of it are records of 1 MiB of zeros, of
//	          which only the headers are on disk: the rest are holes. The last 64
//	          segments, 4 GiB, are records of 100 B, and real
//	segments  100,000 segments of eight records of 100 B, all real
//	readers   1,000 readers beside a writer: all follow, or 500 follow and 500 read the
//	          log once at the same time
//	record    a record of 1 GiB less one byte
//
// Each step is a process of its own, so that its memory is its own. All times are of
// one run, with warm directories and, as far as memory has room, a warm page cache;
// what is waited for is said in the line.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/evlog-go/evlog/internal/bench/machine"
)

// scenario is a log and what is done with it, step by step.
type scenario struct {
	name  string
	build func(dir string, share float64) // nil: its steps begin with nothing
	steps []step
}

// step is done by a process of its own.
type step struct {
	name string
	run  func(s *session)
}

var scenarios = []scenario{
	{"large", buildLarge, wholeLog},
	{"segments", buildSegments, wholeLog},
	{"readers", buildReaders, []step{
		{"writer alone", writerAlone},
		{"1,000 followers in the writer's process", followersWithin},
		{"500 followers and 500 scans in the writer's process", readersWithin},
		{"500 followers and 500 scans in four other processes", readersBeside},
	}},
	{"record", nil, []step{
		{"append", recordAppend},
		{"read", recordRead},
		{"follow", recordFollow},
		{"verify", recordVerify},
		{"compact", recordCompact},
	}},
}

func main() {
	dir := flag.String("dir", "", "where to make the logs; default the temporary directory")
	share := flag.Float64("share", 1, "part of the full size, to try it out")
	keep := flag.Bool("keep", false, "leave the logs there")
	child := flag.String("child", "", "for the program itself: the step to do")
	flag.Parse()
	if *child != "" {
		(&session{dir: *dir, share: *share, args: flag.Args()}).do(*child)
		return
	}
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: scale [-dir DIR] [-share PART] [-keep] all|large|segments|readers|record")
		os.Exit(2)
	}
	fmt.Printf("%s\nload %s, share %g\n", machine.Describe(), machine.Load(), *share)
	found := false
	for _, sc := range scenarios {
		if flag.Arg(0) == "all" || flag.Arg(0) == sc.name {
			found = true
			sc.run(*dir, *share, *keep)
		}
	}
	if !found {
		fmt.Fprintln(os.Stderr, "scale: no such scenario:", flag.Arg(0))
		os.Exit(2)
	}
}

func (sc scenario) run(parent string, share float64, keep bool) {
	dir, err := os.MkdirTemp(parent, "evlog-scale-")
	check(err)
	if !keep {
		defer os.RemoveAll(dir)
	}
	fmt.Printf("\n== %s\n", sc.name)
	if sc.build != nil {
		sc.build(dir, share)
	}
	for _, st := range sc.steps {
		fmt.Printf("-- %s\n", st.name)
		err := start(sc.name+"/"+st.name, dir, share).Run()
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL && st.name == crashing {
			continue
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "scale: step %s: %v\n", st.name, err)
			if !keep {
				os.RemoveAll(dir)
			}
			os.Exit(1)
		}
	}
}

// start is the command that does a step in a process of its own.
func start(name, dir string, share float64, args ...string) *exec.Cmd {
	self, err := os.Executable()
	check(err)
	args = append([]string{"-child", name, "-dir", dir, "-share", strconv.FormatFloat(share, 'g', -1, 64)}, args...)
	cmd := exec.Command(self, args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd
}

// do finds the step and does it.
func (s *session) do(name string) {
	if name == followMany {
		s.followMany()
		return
	}
	if name == followRecord {
		s.followRecord()
		return
	}
	for _, sc := range scenarios {
		for _, st := range sc.steps {
			if sc.name+"/"+st.name == name {
				st.run(s)
				return
			}
		}
	}
	check(fmt.Errorf("no step %s", name))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "scale:", filepath.Base(os.Args[0]), err)
		os.Exit(1)
	}
}
