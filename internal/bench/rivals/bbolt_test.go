package rivals

import (
	"encoding/binary"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/evlog-go/evlog/evlog"
)

// boltStore is go.etcd.io/bbolt with the offset as the key in one bucket that is
// filled in order (FillPercent 1, as its documentation advises for that), the
// freelist as a map, and written, since opening scans the file otherwise. One
// transaction for an append: DB.Batch, which waits for 10 ms or 1,000 calls, is left
// to the hand-written group commit. It has a checksum of its meta page and none of
// records. Deleting leaves the file as large as it was.
type boltStore struct {
	db   *bbolt.DB
	next atomic.Uint64
}

var boltBucket = []byte("log")

func openBolt(_ testing.TB, dir string, c config) (store, error) {
	db, err := bbolt.Open(filepath.Join(dir, "log.db"), 0o600, &bbolt.Options{
		NoSync: !c.durable, FreelistType: bbolt.FreelistMapType,
	})
	if err != nil {
		return nil, err
	}
	s := &boltStore{db: db}
	var last []byte
	err = db.View(func(tx *bbolt.Tx) error {
		if b := tx.Bucket(boltBucket); b != nil {
			last, _ = b.Cursor().Last()
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if last != nil {
		s.next.Store(binary.BigEndian.Uint64(last) + 1)
		return s, nil
	}
	return s, db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists(boltBucket)
		return err
	})
}

func (s *boltStore) append(records []evlog.Record) error {
	return s.db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket(boltBucket)
		b.FillPercent = 1
		now := time.Now().UnixMilli()
		next := s.next.Load() // transactions that write exclude each other
		for i := range records {
			if err := b.Put(offsetKey(next+uint64(i)), frame(nil, now, &records[i])); err != nil {
				return err
			}
		}
		s.next.Store(next + uint64(len(records)))
		return nil
	})
}

func offsetKey(offset uint64) []byte { return binary.BigEndian.AppendUint64(nil, offset) }

func (s *boltStore) flush() error { return nil }

func (s *boltStore) scan(each func(key, value []byte)) error {
	return s.db.View(func(tx *bbolt.Tx) error {
		c := tx.Bucket(boltBucket).Cursor()
		for k, v := c.First(); k != nil; k, v = c.Next() {
			key, value, err := unframe(v)
			if err != nil {
				return err
			}
			each(key, value)
		}
		return nil
	})
}

func (s *boltStore) get(offset uint64) (key, value []byte, err error) {
	err = s.db.View(func(tx *bbolt.Tx) error {
		v := tx.Bucket(boltBucket).Get(offsetKey(offset))
		key, value, err = unframe(append([]byte(nil), v...)) // v ends with the transaction
		return err
	})
	return key, value, err
}

func (s *boltStore) drop(below uint64) error {
	return s.db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket(boltBucket)
		var keys [][]byte // a cursor loses its place when it deletes
		c := b.Cursor()
		for k, _ := c.First(); k != nil && binary.BigEndian.Uint64(k) < below; k, _ = c.Next() {
			keys = append(keys, k)
		}
		for _, k := range keys {
			if err := b.Delete(k); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *boltStore) close() error { return s.db.Close() }
