//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/bench/limit"
)

const followRecord = "follow-record"

func isClosed(err error) bool { return errors.Is(err, evlog.ErrClosed) }

// recordBytes is the size of the record with all that it takes in the log.
func (s *session) recordBytes() int64 {
	return int64(float64(evlog.MaxRecordBytes)*s.share) - 1
}

// openRecords opens a log that takes such a record.
func (s *session) openRecords() *evlog.Log {
	l, err := evlog.Open(background, filepath.Join(s.dir, "log"), &evlog.Options{MaxRecordBytes: evlog.MaxRecordBytes})
	check(err)
	return l
}

var largeKey = []byte("large")

func (s *session) largeRecord(fill byte) evlog.Record {
	value := bytes.Repeat([]byte{fill}, int(s.recordBytes()-evlog.RecordOverhead)-len(largeKey))
	return evlog.Record{Key: largeKey, Value: value}
}

// recordAppend has a small record on either side of the large one.
func recordAppend(s *session) {
	l := s.openRecords()
	small := evlog.Record{Key: []byte("small"), Value: []byte("value")}
	_, err := l.Append(background, small)
	check(err)
	r := s.largeRecord('a')
	s.memory("of the caller, who has the value")
	s.timed("durable append", func() string {
		offset, err := l.Append(background, r)
		check(err)
		return fmt.Sprintf("%d bytes at offset %d", r.Size(), offset)
	})
	s.memory("after it")
	_, err = l.Append(background, small)
	check(err)
	s.timed("close", func() string { check(l.Close()); return "" })
}

func (s *session) isLarge(rec evlog.Record) {
	if rec.Size() != s.recordBytes() || rec.Value[len(rec.Value)-1] != 'a' {
		check(fmt.Errorf("not the record that was appended: %v", rec))
	}
}

func recordRead(s *session) {
	var r *evlog.Reader
	s.timed("open for reading", func() string {
		var err error
		r, err = evlog.OpenReader(background, filepath.Join(s.dir, "log"), nil)
		check(err)
		return ""
	})
	s.memory("after opening")
	s.timed("Records, all three", func() string {
		n := 0
		for rec, err := range r.Records(background, 0) {
			check(err)
			if rec.Offset == 1 {
				s.isLarge(rec)
			}
			n++
		}
		return fmt.Sprintf("%d records", n)
	})
	s.memory("after it")
	s.timed("Get, which copies", func() string {
		rec, err := r.Get(background, 1)
		check(err)
		s.isLarge(rec)
		return ""
	})
	s.timed("Get of the record behind it", func() string {
		rec, err := r.Get(background, 2)
		check(err)
		return string(rec.Value)
	})
	s.timed("Latest of its key", func() string {
		rec, err := r.Latest(background, largeKey)
		check(err)
		s.isLarge(rec)
		return ""
	})
	s.memory("after all that")
	check(r.Close())
}

// recordFollow follows in another process while one more is appended.
func recordFollow(s *session) {
	l := s.openRecords()
	cmd := start(followRecord, s.dir, s.share, fmt.Sprint(l.Stats().NextOffset))
	cmd.Stdout = nil
	out, err := cmd.StdoutPipe()
	check(err)
	check(cmd.Start())
	p := &readerProcess{out: out}
	p.await()
	r := s.largeRecord('a')
	start := monotonic()
	_, err = l.Append(background, r)
	check(err)
	acknowledged := monotonic()
	p.await()
	s.row("durable append", rounded(acknowledged-start), "")
	s.row("until another process has seen it", rounded(monotonic()-acknowledged), "")
	check(cmd.Wait())
	check(l.Close())
}

func (s *session) followRecord() {
	r, err := evlog.OpenReader(background, filepath.Join(s.dir, "log"), nil)
	check(err)
	var from uint64
	_, err = fmt.Sscan(s.args[0], &from)
	check(err)
	for rec, err := range r.Follow(background, from-1) {
		check(err)
		fmt.Print("x")
		if rec.Offset == from {
			s.isLarge(rec)
			break
		}
	}
	check(r.Close())
}

func recordVerify(s *session) {
	s.timed("Verify", func() string {
		rep, err := evlog.Verify(background, filepath.Join(s.dir, "log"), nil)
		check(err)
		if !rep.OK() {
			check(errors.New("damaged"))
		}
		return ""
	})
	s.memory("after it")
}

// recordCompact compacts twice: the first time a small record goes and the newer one
// of the large records is copied, the second time that goes too.
func recordCompact(s *session) {
	l := s.openRecords()
	compact := func(what string) {
		check(l.Roll(background))
		s.timed("compaction "+what, func() string {
			rep, err := l.Compact(background, &evlog.CompactOptions{MinLag: -1, BytesPerSecond: -1})
			check(err)
			if rep.Superseded == 0 {
				check(errors.New("nothing was dropped"))
			}
			return fmt.Sprintf("%d records with a newer one of their key are gone", rep.Superseded)
		})
		s.memory("after it")
	}
	compact("that drops one and keeps one")
	_, err := l.Append(background, evlog.Record{Key: largeKey, Value: []byte("small now")},
		limit.Records(1, 100)[0])
	check(err)
	compact("that drops the other one")
	check(l.Close())
}
