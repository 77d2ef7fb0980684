package table

import (
	"bytes"

	"github.com/evlog-go/evlog/evlog"
)

// state is what the records below one offset make together.
type state struct {
	entries map[string]*Entry // never changed once they are here, so that a snapshot can share them
	next    uint64            // it is made of the records below
	bytes   int64
	max     int64 // below 0: no limit
	peak    int   // most keys since the map was made: a map never gets smaller
}

func newState(limit int64, next uint64) *state {
	return &state{entries: map[string]*Entry{}, max: limit, next: next}
}

// entryBytes is what a key takes beside itself and its value: an Entry, its share
// of the map, and what allocations are rounded up by. 112 bytes where a pointer
// takes 8.
const entryBytes = 48 + 8*pointerBytes

const pointerBytes = 4 << (^uintptr(0) >> 63)

// sizeOf is what a key with its value counts.
func sizeOf(key, value int) int64 { return entryBytes + int64(key) + int64(value) }

// apply takes the next record. Where it does not fit nothing is changed.
func (s *state) apply(rec evlog.Record) error {
	if len(rec.Key) > 0 {
		if err := s.put(rec); err != nil {
			return err
		}
	}
	s.next = rec.Offset + 1
	return nil
}

func (s *state) put(rec evlog.Record) error {
	old := s.entries[string(rec.Key)]
	was := int64(0)
	if old != nil {
		was = sizeOf(len(rec.Key), len(old.Value))
	}
	if len(rec.Value) == 0 {
		if old != nil {
			delete(s.entries, string(rec.Key))
			s.bytes -= was
			s.shrink()
		}
		return nil
	}
	size := sizeOf(len(rec.Key), len(rec.Value))
	if s.max >= 0 && s.bytes-was+size > s.max && size > was {
		return &FullError{Offset: rec.Offset, Keys: len(s.entries), Bytes: s.bytes, MaxBytes: s.max}
	}
	// A key that is there already keeps its string.
	s.entries[string(rec.Key)] = &Entry{
		Offset: rec.Offset, Time: rec.Time, Schema: rec.Schema, Value: bytes.Clone(rec.Value),
	}
	s.bytes += size - was
	s.peak = max(s.peak, len(s.entries))
	return nil
}

// shrinkFrom is the least number of keys for which a map is worth making anew.
const shrinkFrom = 1024

// shrink makes the map anew when most of its keys are gone.
func (s *state) shrink() {
	if s.peak < shrinkFrom || len(s.entries) > s.peak/4 {
		return
	}
	smaller := make(map[string]*Entry, len(s.entries))
	for key, e := range s.entries {
		smaller[key] = e
	}
	s.entries, s.peak = smaller, len(smaller)
}
