//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/evlog-go/evlog/internal/bench/turns"
)

var background = context.Background()

// session is the process that does a step.
type session struct {
	dir   string
	share float64
	args  []string
}

// timed does something and prints how long it took.
func (s *session) timed(what string, do func() (note string)) {
	start := time.Now()
	note := do()
	s.row(what, rounded(time.Since(start)), note)
}

// each does something n times and prints percentiles.
func (s *session) each(what string, n int, do func(i int)) {
	var lat turns.Latencies
	lat.Together(1, n, do)
	s.row(fmt.Sprintf("%s, %d times, p50", what, n), rounded(lat.Percentile(50)), "p99 "+rounded(lat.Percentile(99)))
}

func (s *session) row(what, figure, note string) { fmt.Printf("%-52s %10s  %s\n", what, figure, note) }

// memory prints what the process needs, with what it has open.
func (s *session) memory(what string) {
	runtime.GC()
	runtime.GC() // what the first one has only put aside
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	s.row("memory "+what, fmt.Sprintf("%.1f MB", float64(m.HeapAlloc)/1e6),
		fmt.Sprintf("live heap; resident %s, at most %s; %d descriptors, %d goroutines",
			status("VmRSS"), status("VmHWM"), descriptors(), runtime.NumGoroutine()))
}

// status is a line of /proc/self/status, in MB.
func status(name string) string {
	b, _ := os.ReadFile("/proc/self/status") // nothing where there is none
	for line := range strings.Lines(string(b)) {
		var kB int64
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			if _, err := fmt.Sscan(rest, &kB); err == nil {
				return fmt.Sprintf("%.1f MB", float64(kB)*1024/1e6)
			}
		}
	}
	return "unknown"
}

func descriptors() int {
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return -1
	}
	return len(names) - 1 // without the one of this list
}

// rounded is a time with three digits.
func rounded(d time.Duration) string {
	switch {
	case d >= time.Second:
		return fmt.Sprintf("%.3g s", d.Seconds())
	case d >= time.Millisecond:
		return fmt.Sprintf("%.3g ms", d.Seconds()*1e3)
	}
	return fmt.Sprintf("%.3g us", d.Seconds()*1e6)
}
