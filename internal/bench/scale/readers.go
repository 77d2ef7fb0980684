//go:build linux

package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/bench/turns"
)

const (
	allReaders      = 1000 // half of them follow, half read the log once, or all follow
	readerProcesses = 4
	writerCallers   = 8
	writerAppends   = 8000 // in all
	followMany      = "follow-many"
)

func (s *session) readers() int { return max(2*readerProcesses, int(allReaders*s.share)) }

// buildReaders makes the log that is read: 100,000 records of 100 B.
func buildReaders(dir string, share float64) {
	b := newBuilder(dir)
	n := int(50_000 * share)
	b.segment(n, make([]byte, 100))
	b.close()
	b.segment(n, make([]byte, 100))
	b.end()
}

func writerAlone(s *session) {
	l := s.open()
	s.memory("after opening")
	s.appends(l)
	s.close(l)
}

// appends appends from several goroutines. The value of each record begins with the
// time before its call, by a clock that all processes share.
func (s *session) appends(l *evlog.Log) {
	before := l.Stats()
	var lat turns.Latencies
	start := time.Now()
	lat.Together(writerCallers, writerAppends, func(int) {
		value := make([]byte, 100)
		binary.LittleEndian.PutUint64(value, uint64(monotonic()))
		_, err := l.Append(background, evlog.Record{Key: []byte("new"), Value: value})
		check(err)
	})
	took, syncs := time.Since(start), l.Stats().Syncs-before.Syncs
	s.row(fmt.Sprintf("%d durable appends by %d callers, p50", writerAppends, writerCallers), rounded(lat.Percentile(50)),
		fmt.Sprintf("p99 %s, slowest %s, %.0f records/s, %d syncs",
			rounded(lat.Percentile(99)), rounded(slices.Max(lat)), writerAppends/took.Seconds(), syncs))
}

func monotonic() time.Duration {
	var ts unix.Timespec
	check(unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts))
	return time.Duration(ts.Nano())
}

func followersWithin(s *session) { s.within(false) }
func readersWithin(s *session)   { s.within(true) }

func (s *session) within(scanning bool) {
	l := s.open()
	from := l.Stats().NextOffset
	crowd := newCrowd(from)
	for i := range s.readers() {
		crowd.add(l.Reader(), i%2 == 0 || !scanning)
	}
	crowd.following.Wait()
	s.memory("with all readers waiting")
	crowd.begin()
	s.appends(l)
	crowd.finish(s)
	s.memory("with all followers waiting again")
	s.close(l)
	crowd.wg.Wait()
}

// readersBeside has the readers in processes of their own, which open the log for
// reading as many times as they have readers.
func readersBeside(s *session) {
	l := s.open()
	from := l.Stats().NextOffset
	var processes []*readerProcess
	for range readerProcesses {
		p := startReaders(s, from)
		processes = append(processes, p)
	}
	for _, p := range processes {
		p.await() // its readers wait
	}
	for _, p := range processes {
		p.tell()
	}
	s.appends(l)
	for _, p := range processes {
		p.await() // its readers have read all
	}
	s.memory("of the writer")
	for _, p := range processes {
		p.tell()
		check(p.wait())
	}
	s.close(l)
}

// readerProcess is told and tells by a byte.
type readerProcess struct {
	in   io.Writer
	out  io.Reader
	wait func() error
}

func startReaders(s *session, from uint64) *readerProcess {
	cmd := start(followMany, s.dir, s.share, strconv.FormatUint(from, 10))
	cmd.Stdout = nil
	out, err := cmd.StdoutPipe()
	check(err)
	in, err := cmd.StdinPipe()
	check(err)
	check(cmd.Start())
	return &readerProcess{in, out, cmd.Wait}
}

func (p *readerProcess) await() { _, err := io.ReadFull(p.out, make([]byte, 1)); check(err) }
func (p *readerProcess) tell()  { _, err := p.in.Write([]byte{1}); check(err) }

// followMany is such a process. What it prints goes to stderr.
func (s *session) followMany() {
	out := os.Stdout
	os.Stdout = os.Stderr
	self := &readerProcess{in: out, out: os.Stdin}
	from, err := strconv.ParseUint(s.args[0], 10, 64)
	check(err)
	n := s.readers() / readerProcesses
	crowd := newCrowd(from)
	var readers []*evlog.Reader
	for i := range n {
		r, err := evlog.OpenReader(background, s.dir, nil)
		check(err)
		readers = append(readers, r)
		crowd.add(r, i%2 == 0)
	}
	crowd.following.Wait()
	s.memory(fmt.Sprintf("of one of %d processes, its readers waiting", readerProcesses))
	self.tell()
	self.await()
	crowd.begin()
	crowd.finish(s)
	s.memory("of it, its followers waiting again")
	self.tell()
	self.await()
	for _, r := range readers {
		check(r.Close())
	}
	crowd.wg.Wait()
}

// crowd are readers: those that follow begin at once, those that read the log once
// when they are told to.
type crowd struct {
	from      uint64
	start     chan struct{}
	wg        sync.WaitGroup
	following sync.WaitGroup // followers that wait
	seen      sync.WaitGroup // followers that have seen all of the appends
	scans     sync.WaitGroup
	scanned   atomic.Int64

	mu  sync.Mutex
	lat turns.Latencies
}

func newCrowd(from uint64) *crowd { return &crowd{from: from, start: make(chan struct{})} }

func (c *crowd) add(r *evlog.Reader, follows bool) {
	if follows {
		c.following.Add(1)
		c.seen.Add(1)
		c.wg.Go(func() { c.follow(r) })
		return
	}
	c.scans.Add(1)
	c.wg.Go(func() { c.scan(r) })
}

// follow takes the time of each record, from before its append was called to here.
func (c *crowd) follow(r *evlog.Reader) {
	var lat turns.Latencies
	next := c.from - 1 // one that is there, so that it is known to follow
	for rec, err := range r.Follow(background, next) {
		if err != nil {
			check(closed(err))
			return
		}
		if rec.Offset != next {
			check(fmt.Errorf("follower got %d, not %d", rec.Offset, next))
		}
		next++
		if rec.Offset < c.from {
			c.following.Done()
			continue
		}
		lat = append(lat, monotonic()-time.Duration(binary.LittleEndian.Uint64(rec.Value)))
		if len(lat) == writerAppends {
			c.mu.Lock()
			c.lat = append(c.lat, lat...)
			c.mu.Unlock()
			c.seen.Done()
			lat = nil
		}
	}
}

func (c *crowd) scan(r *evlog.Reader) {
	defer c.scans.Done()
	<-c.start
	n := uint64(0)
	for rec, err := range r.Records(background, 0) {
		check(err)
		if rec.Offset != n {
			check(fmt.Errorf("scan got %d, not %d", rec.Offset, n))
		}
		if n++; n == c.from {
			break
		}
	}
	c.scanned.Add(int64(n))
}

func (c *crowd) begin() { close(c.start) }

// finish waits until the followers have seen everything and the others have read
// what was there.
func (c *crowd) finish(s *session) {
	start := time.Now()
	c.seen.Wait()
	s.row("a record seen after the call of its append, p50", rounded(c.lat.Percentile(50)),
		fmt.Sprintf("p99 %s, slowest %s, of %d times", rounded(c.lat.Percentile(99)), rounded(slices.Max(c.lat)), len(c.lat)))
	c.lat = nil // it would count as memory of the readers
	c.scans.Wait()
	s.row("the readers' own reading ended later by", rounded(time.Since(start)),
		fmt.Sprintf("%.1f million records in all", float64(c.scanned.Load())/1e6))
}

// closed passes over the end of a reader that was closed.
func closed(err error) error {
	if isClosed(err) {
		return nil
	}
	return err
}
