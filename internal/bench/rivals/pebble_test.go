package rivals

import (
	"encoding/binary"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/evlog-go/evlog/evlog"
)

// pebbleStore is github.com/cockroachdb/pebble with its defaults at the newest
// format, the offset as the key. It has checksums in its WAL and of each block of a
// table, which is checked when it is read into the cache.
type pebbleStore struct {
	db    *pebble.DB
	write *pebble.WriteOptions
	next  atomic.Uint64
}

type quiet struct{}

func (quiet) Infof(string, ...any)      {}
func (quiet) Errorf(string, ...any)     {}
func (quiet) Fatalf(f string, a ...any) { pebble.DefaultLogger.Fatalf(f, a...) }

func openPebble(_ testing.TB, dir string, c config) (store, error) {
	db, err := pebble.Open(dir, &pebble.Options{Logger: quiet{}, FormatMajorVersion: pebble.FormatNewest})
	if err != nil {
		return nil, err
	}
	s := &pebbleStore{db: db, write: pebble.NoSync}
	if c.durable {
		s.write = pebble.Sync
	}
	it, err := db.NewIter(nil)
	if err != nil {
		return nil, err
	}
	if it.Last() {
		s.next.Store(binary.BigEndian.Uint64(it.Key()) + 1)
	}
	return s, it.Close()
}

func (s *pebbleStore) append(records []evlog.Record) error {
	n := uint64(len(records))
	first := s.next.Add(n) - n
	now := time.Now().UnixMilli()
	batch := s.db.NewBatch()
	var buf []byte
	for i := range records {
		buf = frame(buf[:0], now, &records[i])
		if err := batch.Set(offsetKey(first+uint64(i)), buf, nil); err != nil {
			return err
		}
	}
	return batch.Commit(s.write)
}

func (s *pebbleStore) flush() error { return nil }

func (s *pebbleStore) scan(each func(key, value []byte)) error {
	it, err := s.db.NewIter(nil)
	if err != nil {
		return err
	}
	for it.First(); it.Valid(); it.Next() {
		key, value, err := unframe(it.Value())
		if err != nil {
			return err
		}
		each(key, value)
	}
	return it.Close()
}

func (s *pebbleStore) get(offset uint64) (key, value []byte, err error) {
	v, closer, err := s.db.Get(offsetKey(offset))
	if err != nil {
		return nil, nil, err
	}
	key, value, err = unframe(append([]byte(nil), v...))
	if err != nil {
		return nil, nil, err
	}
	return key, value, closer.Close()
}

// drop compacts as well, or the space would come back some time later.
func (s *pebbleStore) drop(below uint64) error {
	from, to := offsetKey(0), offsetKey(below)
	if err := s.db.DeleteRange(from, to, pebble.Sync); err != nil {
		return err
	}
	return s.db.Compact(background, from, to, false)
}

func (s *pebbleStore) close() error { return s.db.Close() }
