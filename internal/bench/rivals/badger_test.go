package rivals

import (
	"encoding/binary"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
	"github.com/dgraph-io/badger/v4/pb"

	"github.com/evlog-go/evlog/evlog"
)

// badgerStore is github.com/dgraph-io/badger with its defaults, SyncWrites for
// durable appends, and checksums of blocks checked when they are read, which it does
// not do by default. The offset is the key. Deleting leaves tombstones, and space
// comes back with later compactions.
type badgerStore struct {
	db   *badger.DB
	next atomic.Uint64
}

func openBadger(_ testing.TB, dir string, c config) (store, error) {
	db, err := badger.Open(badger.DefaultOptions(dir).WithLogger(nil).WithSyncWrites(c.durable).
		WithChecksumVerificationMode(options.OnTableAndBlockRead))
	if err != nil {
		return nil, err
	}
	s := &badgerStore{db: db}
	return s, db.View(func(tx *badger.Txn) error {
		o := badger.DefaultIteratorOptions
		o.Reverse, o.PrefetchValues = true, false
		it := tx.NewIterator(o)
		defer it.Close()
		if it.Rewind(); it.Valid() {
			s.next.Store(binary.BigEndian.Uint64(it.Item().Key()) + 1)
		}
		return nil
	})
}

func (s *badgerStore) append(records []evlog.Record) error {
	n := uint64(len(records))
	first := s.next.Add(n) - n
	now := time.Now().UnixMilli()
	return s.db.Update(func(tx *badger.Txn) error {
		for i := range records {
			if err := tx.Set(offsetKey(first+uint64(i)), frame(nil, now, &records[i])); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *badgerStore) flush() error { return nil }

func (s *badgerStore) scan(each func(key, value []byte)) error {
	return s.db.View(func(tx *badger.Txn) error {
		it := tx.NewIterator(badger.DefaultIteratorOptions)
		defer it.Close()
		for it.Rewind(); it.Valid(); it.Next() {
			err := it.Item().Value(func(v []byte) error {
				key, value, err := unframe(v)
				if err == nil {
					each(key, value)
				}
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *badgerStore) get(offset uint64) (key, value []byte, err error) {
	err = s.db.View(func(tx *badger.Txn) error {
		item, err := tx.Get(offsetKey(offset))
		if err != nil {
			return err
		}
		v, err := item.ValueCopy(nil)
		if err != nil {
			return err
		}
		key, value, err = unframe(v)
		return err
	})
	return key, value, err
}

func (s *badgerStore) drop(below uint64) error {
	batch := s.db.NewWriteBatch()
	defer batch.Cancel()
	var keys [][]byte
	err := s.db.View(func(tx *badger.Txn) error {
		o := badger.DefaultIteratorOptions
		o.PrefetchValues = false
		it := tx.NewIterator(o)
		defer it.Close()
		for it.Rewind(); it.Valid(); it.Next() {
			if binary.BigEndian.Uint64(it.Item().Key()) >= below {
				break
			}
			keys = append(keys, it.Item().KeyCopy(nil))
		}
		return nil
	})
	for i := 0; err == nil && i < len(keys); i++ {
		err = batch.Delete(keys[i])
	}
	if err != nil {
		return err
	}
	return batch.Flush()
}

func (s *badgerStore) close() error { return s.db.Close() }

func (s *badgerStore) follow(next uint64, seen func()) (stop func(), err error) {
	return start(func(subscribed chan<- struct{}, done <-chan struct{}) {
		ctx, cancel := contextUntil(done)
		defer cancel()
		// It has no way to tell that it has subscribed.
		time.AfterFunc(100*time.Millisecond, func() { close(subscribed) })
		_ = s.db.Subscribe(ctx, func(kvs *badger.KVList) error { // ends with ctx
			for _, kv := range kvs.Kv {
				// Writes from just before it subscribed come too, and keys of its own.
				if len(kv.Key) == 8 && binary.BigEndian.Uint64(kv.Key) >= next {
					seen()
				}
			}
			return nil
		}, []pb.Match{{}})
	}), nil
}
