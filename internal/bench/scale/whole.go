//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/bench/limit"
	"github.com/evlog-go/evlog/internal/format"
)

const crashing = "a writer that is killed"

// wholeLog is what is done with a log of unusual size, in this order: a step finds
// what the one before has left.
var wholeLog = []step{
	{"writer, after a clean close", writer},
	{"reader in another process", otherReader},
	{crashing, killed},
	{"writer, after the crash", afterCrash},
	{"all of it is read", wholeScan},
	{"it is verified", verifyAll},
	{"retention", retain},
	{"the indexes are gone", withoutIndexes},
}

func (s *session) open() (l *evlog.Log) {
	s.timed("open for writing", func() string {
		var err error
		l, err = evlog.Open(background, s.dir, nil)
		check(err)
		return fmt.Sprintf("next offset %d", l.Stats().NextOffset)
	})
	return l
}

func (s *session) close(l *evlog.Log) {
	s.timed("close", func() string { check(l.Close()); return "" })
}

// withoutIndexes removes all indexes, and makes some of them anew.
func withoutIndexes(s *session) {
	names, err := filepath.Glob(filepath.Join(s.dir, "*"+format.IndexSuffix))
	check(err)
	for _, name := range names {
		check(os.Remove(name))
	}
	l := s.open()
	s.memory("after opening")
	first, next, err := l.Reader().Bounds(background)
	check(err)
	middle := (first + next) / 2
	s.timed("get by offset, in the middle", func() string { s.get(l.Reader(), middle); return "scans a segment" })
	s.timed("get by offset, again", func() string { s.get(l.Reader(), middle+1); return "" })
	s.timed("Reindex", func() string {
		const some = 1000
		ctx, cancel := context.WithCancel(background)
		defer cancel()
		n, err := l.Reindex(ctx, func(done, _ int) {
			if done == some {
				cancel()
			}
		})
		if !errors.Is(err, context.Canceled) {
			check(err)
		}
		return fmt.Sprintf("of %d segments", n)
	})
	s.memory("after it")
	s.close(l)
}

func verifyAll(s *session) {
	s.timed("Verify", func() string {
		rep, err := evlog.Verify(background, s.dir, nil)
		check(err)
		if len(rep.Problems) > 0 {
			check(fmt.Errorf("%v", rep.Problems))
		}
		return ""
	})
	s.memory("after it")
}

func writer(s *session) {
	l := s.open()
	s.memory("after opening")
	s.lookUps(l.Reader(), l.Stats().NextOffset)
	records := newer(100)
	s.each("durable append", 1000, func(i int) {
		_, err := l.Append(background, records[i%len(records)])
		check(err)
	})
	s.memory("after all that")
	s.close(l)
}

func otherReader(s *session) {
	var r *evlog.Reader
	s.timed("open for reading", func() string {
		var err error
		r, err = evlog.OpenReader(background, s.dir, nil)
		check(err)
		return ""
	})
	s.memory("after opening")
	_, next, err := r.Bounds(background)
	check(err)
	s.lookUps(r, next)
	s.memory("after all that")
	check(r.Close())
}

// lookUps seeks by offset, by time and by key, and from the end.
func (s *session) lookUps(r *evlog.Reader, next uint64) {
	s.timed("get by offset, the first one", func() string { s.get(r, next/2); return "" })
	rng := rand.New(rand.NewPCG(1, 2))
	s.each("get by offset, at random", 1000, func(int) { s.get(r, rng.Uint64N(next)) })
	for _, note := range []string{"first time", "again"} {
		s.timed("seek by time, in the middle", func() string { s.at(r, next/2); return note })
	}
	for _, note := range []string{"first time", "again"} {
		s.timed("seek by time, near the end", func() string { s.at(r, next-2000); return note })
	}
	s.timed("the last 1,000 records", func() string {
		from, err := r.OffsetOfLast(background, 1000)
		check(err)
		n := 0
		for _, err := range r.Records(background, from) {
			check(err)
			n++
		}
		return fmt.Sprintf("%d records", n)
	})
	for _, offset := range []uint64{next - 2000, next / 2, 0} {
		for _, note := range []string{"first time", "again"} {
			s.timed(fmt.Sprintf("latest record of a key, at offset %d", offset), func() string {
				rec, err := r.Latest(background, key(offset))
				check(err)
				if rec.Offset != offset {
					check(fmt.Errorf("key of %d is at %d", offset, rec.Offset))
				}
				return note
			})
		}
	}
}

// newer makes records with keys that the log does not have.
func newer(n int) []evlog.Record {
	records := limit.Records(n, 100)
	for i := range records {
		records[i].Key = fmt.Appendf(nil, "new-%012d", i)
	}
	return records
}

func (s *session) get(r *evlog.Reader, offset uint64) {
	rec, err := r.Get(background, offset)
	check(err)
	if rec.Offset != offset {
		check(fmt.Errorf("got %d, not %d", rec.Offset, offset))
	}
}

func (s *session) at(r *evlog.Reader, offset uint64) {
	got, err := r.OffsetAt(background, timeOf(offset))
	check(err)
	if got != offset {
		check(fmt.Errorf("time of %d is at %d", offset, got))
	}
}

func killed(s *session) {
	l := s.open()
	_, err := l.Append(background, newer(1000)...)
	check(err)
	check(syscall.Kill(syscall.Getpid(), syscall.SIGKILL))
	select {}
}

func afterCrash(s *session) {
	l := s.open()
	s.memory("after opening")
	s.close(l)
}

func wholeScan(s *session) {
	r, err := evlog.OpenReader(background, s.dir, nil)
	check(err)
	s.timed("Records, from the first to the last", func() string {
		n, bytes := 0, int64(0)
		for rec, err := range r.Records(background, 0) {
			check(err)
			n++
			bytes += rec.Size()
		}
		return fmt.Sprintf("%d records, %.2f GB", n, float64(bytes)/1e9)
	})
	s.memory("after it")
	check(r.Close())
}

func retain(s *session) {
	l := s.open()
	segments, err := l.Reader().Bases(background)
	check(err)
	s.timed("Retain, the older half of the segments", func() string {
		rep, err := l.Retain(background, &evlog.RetainOptions{Below: segments[len(segments)/2]})
		check(err)
		return fmt.Sprintf("first offset left %d", rep.First)
	})
	s.memory("after it")
	s.close(l)
}
