package rivals

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/bench/limit"
	"github.com/evlog-go/evlog/internal/format"
)

// least is the limit as one of the sides: files that grow, written by hand.
var least = rival{name: "limit", open: openLimit, checks: "each record"}

// limitStore reads what it has opened, or writes what is new; appends are not for
// concurrent callers.
type limitStore struct {
	b       testing.TB
	dir     string
	c       config
	log     *limit.Log // nil until the first append
	files   []*os.File // ascending; opened by flush
	index   *limit.Index
	buf     []byte
	lastPos int64 // of the last record
	told    chan struct{}
}

func openLimit(b testing.TB, dir string, c config) (store, error) {
	s := &limitStore{b: b, dir: dir, c: c, buf: make([]byte, limit.Buffer)}
	if s.c.segmentBytes == 0 {
		s.c.segmentBytes = 64 << 20
	}
	return s, s.list()
}

// list opens the files.
func (s *limitStore) list() error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	for _, e := range entries { // ascending
		if _, ok := format.ParseSegmentName(e.Name()); !ok {
			continue
		}
		f, err := os.Open(filepath.Join(s.dir, e.Name()))
		if err != nil {
			return err
		}
		s.files = append(s.files, f)
	}
	return nil
}

func (s *limitStore) append(records []evlog.Record) error {
	if s.log == nil {
		s.log = limit.New(s.b, s.dir, 0)
	}
	size := int64(0)
	for i := range records {
		size += records[i].Size()
	}
	if s.log.Pos+int64(len(s.log.Buf))+size > s.c.segmentBytes {
		s.log.Roll()
	}
	s.log.Add(records...)
	s.lastPos = s.log.Pos + int64(len(s.log.Buf)) - records[len(records)-1].Size()
	switch {
	case s.c.durable:
		s.log.Write()
		s.log.Sync()
	case len(s.log.Buf) >= limit.Buffer:
		s.log.Write()
	}
	if s.told != nil {
		s.told <- struct{}{}
	}
	return nil
}

func (s *limitStore) flush() error {
	s.log.Write()
	if s.files == nil {
		return s.list()
	}
	return nil
}

func (s *limitStore) scan(each func(key, value []byte)) error {
	for _, f := range s.files {
		limit.Scan(s.b, f, s.buf, func(_ uint64, _ int64, key, value []byte) { each(key, value) })
	}
	return nil
}

func (s *limitStore) get(offset uint64) (key, value []byte, err error) {
	if s.index == nil {
		s.index = limit.NewIndex(s.b, s.files...)
	}
	rec := s.index.Get(offset)
	end := limit.HeaderSize + int(binary.LittleEndian.Uint16(rec[26:]))
	return rec[limit.HeaderSize:end], rec[end:], nil
}

// last reads the last record, whose size is known.
func (s *limitStore) last(size int64) error {
	f := s.files[len(s.files)-1]
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if _, err := f.ReadAt(s.buf[:size], info.Size()-size); err != nil {
		return err
	}
	limit.Parse(s.b, s.buf[:size], 0)
	return nil
}

// drop unlinks the files that end below offset, and syncs the directory after each.
func (s *limitStore) drop(below uint64) error {
	dir, err := os.Open(s.dir)
	if err != nil {
		return err
	}
	gone := 0
	for ; gone+1 < len(s.files); gone++ {
		if next, _ := format.ParseSegmentName(filepath.Base(s.files[gone+1].Name())); next > below {
			break
		}
		if err := os.Remove(s.files[gone].Name()); err != nil {
			return err
		}
		if err := dir.Sync(); err != nil {
			return err
		}
		// Open files keep their blocks.
		if err := s.files[gone].Close(); err != nil {
			return err
		}
	}
	s.files = slices.Delete(s.files, 0, gone)
	s.index = nil
	return dir.Close()
}

func (s *limitStore) close() error {
	if s.log != nil {
		s.log.Write()
		// Or it would keep its blocks until the end of the benchmark, which closes it.
		if err := s.log.F.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			return err
		}
	}
	for _, f := range s.files {
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nil
}

// follow is told by a channel, and reads the record from the file.
func (s *limitStore) follow(_ uint64, seen func()) (stop func(), err error) {
	s.told = make(chan struct{}, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, limit.RecordSize(100))
		for range s.told {
			if _, err := s.log.F.ReadAt(buf, s.lastPos); err != nil {
				s.b.Error(err)
				return
			}
			limit.Parse(s.b, buf, 0)
			seen()
		}
	}()
	return func() { close(s.told); s.told = nil; <-done }, nil
}
