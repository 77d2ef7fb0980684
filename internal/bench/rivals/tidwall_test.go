package rivals

import (
	"sync"
	"testing"
	"time"

	"github.com/tidwall/wal"

	"github.com/evlog-go/evlog/evlog"
)

// tidwallStore is github.com/tidwall/wal as its README has it; NoCopy and a
// cache of segments for reading, as its Options advise. It writes no checksum, and
// syncs no directory when it begins a segment.
type tidwallStore struct {
	mu    sync.Mutex // an index has to be the next one
	log   *wal.Log
	last  uint64
	batch wal.Batch
	buf   []byte
}

func openTidwall(_ testing.TB, dir string, c config) (store, error) {
	log, err := wal.Open(dir, &wal.Options{
		NoSync: !c.durable, SegmentSize: int(c.segmentBytes), SegmentCacheSize: 8, NoCopy: true, AllowEmpty: true,
	})
	if err != nil {
		return nil, err
	}
	last, err := log.LastIndex()
	return &tidwallStore{log: log, last: last}, err
}

func (s *tidwallStore) append(records []evlog.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now().UnixMilli()
	s.batch.Clear()
	for i := range records {
		s.buf = frame(s.buf[:0], now, &records[i])
		s.batch.Write(s.last+1+uint64(i), s.buf)
	}
	if err := s.log.WriteBatch(&s.batch); err != nil {
		return err
	}
	s.last += uint64(len(records))
	return nil
}

func (s *tidwallStore) flush() error { return nil }

func (s *tidwallStore) scan(each func(key, value []byte)) error {
	first, err := s.log.FirstIndex()
	for i := first; err == nil && i <= s.last; i++ {
		var key, value []byte
		if key, value, err = s.get(i - 1); err == nil {
			each(key, value)
		}
	}
	return err
}

func (s *tidwallStore) get(offset uint64) (key, value []byte, err error) {
	b, err := s.log.Read(offset + 1)
	if err != nil {
		return nil, nil, err
	}
	return unframe(b)
}

func (s *tidwallStore) drop(below uint64) error { return s.log.TruncateFront(below + 1) }

func (s *tidwallStore) close() error { return s.log.Close() }

func (s *tidwallStore) follow(next uint64, seen func()) (stop func(), err error) {
	return poll(s, s.log.LastIndex, next, seen), nil
}
