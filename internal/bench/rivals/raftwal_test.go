package rivals

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/metadb"

	"github.com/evlog-go/evlog/evlog"
)

// raftStore is github.com/hashicorp/raft-wal with its defaults: files that are
// allocated ahead, one write and one fsync for StoreLogs. It has a checksum of each
// commit, which recovery checks for the last one; reads check nothing.
type raftStore struct {
	mu   sync.Mutex // an index has to be the next one
	log  *wal.WAL
	meta *metadb.BoltMetaDB // WAL.Close leaves it open
	last uint64
}

func openRaftWAL(_ testing.TB, dir string, c config) (store, error) {
	size := int(c.segmentBytes)
	if size == 0 {
		size = wal.DefaultSegmentSize
	}
	meta := &metadb.BoltMetaDB{}
	log, err := wal.Open(dir, wal.WithSegmentSize(size), wal.WithMetaStore(meta), wal.WithLogger(hclog.NewNullLogger()))
	if err != nil {
		return nil, err
	}
	last, err := log.LastIndex()
	return &raftStore{log: log, meta: meta, last: last}, err
}

func (s *raftStore) append(records []evlog.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now().UnixMilli()
	logs := make([]raft.Log, len(records))
	pointers := make([]*raft.Log, len(records))
	var buf []byte
	for i := range records {
		at := len(buf)
		buf = frame(buf, now, &records[i])
		logs[i] = raft.Log{Index: s.last + 1 + uint64(i), Data: buf[at:len(buf):len(buf)]}
		pointers[i] = &logs[i]
	}
	if err := s.log.StoreLogs(pointers); err != nil {
		return err
	}
	s.last += uint64(len(records))
	return nil
}

func (s *raftStore) flush() error { return nil }

func (s *raftStore) scan(each func(key, value []byte)) error {
	first, err := s.log.FirstIndex()
	for i := first; err == nil && i <= s.last; i++ {
		var key, value []byte
		if key, value, err = s.get(i - 1); err == nil {
			each(key, value)
		}
	}
	return err
}

func (s *raftStore) get(offset uint64) (key, value []byte, err error) {
	var l raft.Log
	if err := s.log.GetLog(offset+1, &l); err != nil {
		return nil, nil, err
	}
	return unframe(l.Data)
}

func (s *raftStore) drop(below uint64) error {
	first, err := s.log.FirstIndex()
	if err != nil {
		return err
	}
	return s.log.DeleteRange(first, below)
}

func (s *raftStore) close() error { return errors.Join(s.log.Close(), s.meta.Close()) }

func (s *raftStore) follow(next uint64, seen func()) (stop func(), err error) {
	return poll(s, s.log.LastIndex, next, seen), nil
}
