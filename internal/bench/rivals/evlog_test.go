package rivals

import (
	"context"
	"testing"

	"github.com/evlog-go/evlog/evlog"
)

type evlogStore struct {
	log     *evlog.Log
	durable bool
}

func openEvlog(_ testing.TB, dir string, c config) (store, error) {
	o := &evlog.Options{SegmentBytes: c.segmentBytes}
	if !c.durable {
		o.Sync = evlog.SyncFlush
	}
	l, err := evlog.Open(background, dir, o)
	if err != nil {
		return nil, err
	}
	return &evlogStore{l, c.durable}, nil
}

func (s *evlogStore) append(records []evlog.Record) error {
	var err error
	if s.durable {
		_, err = s.log.Append(background, records...)
	} else {
		_, err = s.log.Enqueue(background, records...)
	}
	return err
}

func (s *evlogStore) flush() error { return s.log.Flush(background) }

func (s *evlogStore) scan(each func(key, value []byte)) error {
	first, _, err := s.log.Reader().Bounds(background)
	if err != nil {
		return err
	}
	for r, err := range s.log.Reader().Records(background, first) {
		if err != nil {
			return err
		}
		each(r.Key, r.Value)
	}
	return nil
}

func (s *evlogStore) get(offset uint64) (key, value []byte, err error) {
	r, err := s.log.Reader().Get(background, offset)
	return r.Key, r.Value, err
}

func (s *evlogStore) drop(below uint64) error {
	_, err := s.log.Retain(background, &evlog.RetainOptions{Below: below})
	return err
}

func (s *evlogStore) close() error { return s.log.Close() }

func (s *evlogStore) follow(next uint64, seen func()) (stop func(), err error) {
	ctx, cancel := context.WithCancel(background)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, err := range s.log.Reader().Follow(ctx, next) {
			if err != nil {
				return
			}
			seen()
		}
	}()
	return func() { cancel(); <-done }, nil
}
