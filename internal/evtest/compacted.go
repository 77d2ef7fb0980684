package evtest

import (
	"fmt"
	"maps"
)

// compacted is what a model knows of compaction.
type compacted struct {
	on         bool // it may be at work
	tombstones bool // they may go as well, without a grace
	always     bool // it is at work for good
	graceless  bool // and knows no grace
	// unfinished: a run has left a merge half done. What it left out is still read
	// from offsets of the segments that were to go.
	unfinished bool
	// What was gone after a crash. If a sync had failed before, it may have been
	// gone in the page cache alone, and be back after the next crash.
	ghosts map[uint64]Rec
	// deleted is the offset of the last tombstone that went, by key: from then on
	// nothing below it may be seen.
	deleted map[string]uint64
}

func (c compacted) clone() compacted {
	c.ghosts, c.deleted = maps.Clone(c.ghosts), maps.Clone(c.deleted)
	return c
}

// Compacting notes that compaction may remove superseded records from now on,
// and tombstones too, without a grace; otherwise those whose grace is over, see
// SetGrace.
func (m *Model) Compacting(tombstones bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.compact.on = true
	m.cleaningLocked()
	m.compact.tombstones = m.compact.tombstones || tombstones
}

// Unfinished notes whether the last compaction left a merge half done: then what it
// may remove is there or not, by where one reads, until another one has ended.
func (m *Model) Unfinished(is bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.compact.unfinished = is
}

// IsUnfinished reports what Unfinished noted.
func (m *Model) IsUnfinished() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.compact.unfinished
}

// CompactingAlways notes that compaction goes on in the background for as long as
// the log is open, with or without a grace for tombstones.
func (m *Model) CompactingAlways(graceless bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.compact.on, m.compact.tombstones, m.compact.always, m.compact.graceless = true, graceless, true, graceless
}

// Purged notes that the compaction without a grace has ended beside that in the
// background: tombstones that come from now on have theirs.
func (m *Model) Purged() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.times.now == nil || !m.compact.always || m.compact.graceless || m.compact.unfinished {
		return
	}
	for off := range m.times.tombs {
		m.times.over[off] = true
	}
	m.compact.tombstones = false
}

// MayLack reports whether compaction or retention may have removed a settled
// record.
func (m *Model) MayLack(r Rec) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return r.Offset < m.due || m.mayLackLocked(r, m.keysLocked(nil))
}

// CheckLatest checks the answer to a question for a key's newest record: never
// one older than the newest that is settled, and none only where that was deleted
// or may be gone.
func (m *Model) CheckLatest(key string, got Rec, found bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	newest, some := m.keysLocked(nil).settled[key]
	switch {
	case found && got.Offset < max(newest.Offset, m.compact.deleted[key]):
		return fmt.Errorf("the latest of key %q is %v, though %v is newer, or it was deleted at %d", key, got, newest, m.compact.deleted[key])
	case found:
		return m.checkOneLocked(got)
	case !some || newest.Offset < m.due || m.mayBeGoneLocked(key, newest):
		return nil
	}
	return fmt.Errorf("key %q has no record, though its newest is %v", key, newest)
}

// CheckTable checks what a table says of a key: the same, but that it does not
// have deleted keys, and may have what retention took. Where tombstones go without
// a grace, a deletion may never be heard of.
func (m *Model) CheckTable(key string, got Rec, found, noGrace bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	newest, some := m.keysLocked(nil).settled[key]
	deleted := m.compact.deleted[key]
	if some && len(newest.Value) == 0 {
		deleted = max(deleted, newest.Offset)
	}
	switch {
	case found && len(newest.Value) > 0 && got.Offset < newest.Offset:
		return fmt.Errorf("key %q is %v, though its newest record is %v", key, got, newest)
	case found && got.Offset < deleted && !noGrace:
		return fmt.Errorf("key %q is %v, though it was deleted at %d", key, got, deleted)
	case found && got.Offset < max(deleted, m.due):
		return nil
	case found:
		return m.checkOneLocked(got)
	case !some || newest.Offset < m.due || m.mayBeDeletedLocked(key, newest):
		return nil
	}
	return fmt.Errorf("key %q has no value, though its newest record is %v", key, newest)
}

// mayBeDeletedLocked reports whether a key's newest record, which is settled, or
// a later one that is not, is a tombstone.
func (m *Model) mayBeDeletedLocked(key string, newest Rec) bool {
	for off, r := range m.pending {
		if off > newest.Offset && string(r.Key) == key && len(r.Value) == 0 {
			return true
		}
	}
	return len(newest.Value) == 0
}

// mayBeGoneLocked reports whether that tombstone may be gone, too.
func (m *Model) mayBeGoneLocked(key string, newest Rec) bool {
	for off, r := range m.pending {
		if off > newest.Offset && string(r.Key) == key && m.mayExpireLocked(r) {
			return true
		}
	}
	return m.mayExpireLocked(newest)
}

// Compacted checks what can be read after a compaction has ended, and takes it
// for all there is: what is missing now must never be back.
func (m *Model) Compacted(recs []Rec) error {
	if err := m.Check(recs); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.adoptLocked(recs, false)
	return nil
}

// adoptLocked forgets what compaction has removed.
func (m *Model) adoptLocked(recs []Rec, doubtful bool) {
	c := &m.compact
	if !c.on {
		return
	}
	m.keepOverLocked()
	if !c.unfinished {
		c.on, c.tombstones = c.always, c.always && c.graceless
	}
	doubtful = doubtful || c.always // a replacement may not be synced yet
	there := map[uint64]bool{}
	highest := uint64(0)
	for _, r := range recs {
		there[r.Offset] = true
		highest = r.Offset
	}
	if c.deleted == nil {
		c.ghosts, c.deleted = map[uint64]Rec{}, map[string]uint64{}
	}
	for _, set := range []map[uint64]Rec{m.settled, m.pending} {
		for off, r := range set {
			if there[off] {
				continue
			}
			if _, ok := m.pending[off]; ok && (len(recs) == 0 || off > highest) {
				continue // not durable yet
			}
			delete(set, off)
			if doubtful {
				c.ghosts[off] = r
			}
			if len(r.Value) == 0 {
				c.deleted[string(r.Key)] = max(c.deleted[string(r.Key)], off)
			}
		}
	}
}

// keys is the newest record of each key, as it stands and as it is known.
type keys struct {
	there, settled map[string]Rec
	any            map[string]uint64 // highest offset in there, settled and pending
}

func (m *Model) keysLocked(recs []Rec) keys {
	k := keys{there: map[string]Rec{}, settled: map[string]Rec{}, any: map[string]uint64{}}
	for _, r := range recs {
		k.there[string(r.Key)] = r
		k.any[string(r.Key)] = max(k.any[string(r.Key)], r.Offset)
	}
	for _, set := range []map[uint64]Rec{m.settled, m.pending} {
		for off, r := range set {
			k.any[string(r.Key)] = max(k.any[string(r.Key)], off)
		}
	}
	for off, r := range m.settled {
		if old, ok := k.settled[string(r.Key)]; !ok || old.Offset < off {
			k.settled[string(r.Key)] = r
		}
	}
	return k
}

// mayLackLocked reports whether compaction may have removed r.
func (m *Model) mayLackLocked(r Rec, k keys) bool {
	if !m.compact.on || len(r.Key) == 0 {
		return false
	}
	return r.Offset < k.any[string(r.Key)] || m.mayExpireLocked(r)
}

// checkKeysLocked tests that each key has its newest value, and that no deleted
// one is back.
func (m *Model) checkKeysLocked(k keys, lowest uint64) error {
	for key, newest := range k.settled {
		if key == "" || newest.Offset < lowest {
			continue
		}
		switch there, ok := k.there[key]; {
		case ok && there.Offset < newest.Offset:
			return fmt.Errorf("%v is back: its key's newest record is %v", there, newest)
		case !ok && len(newest.Value) > 0 && !m.mayBeGoneLocked(key, newest):
			return fmt.Errorf("key %q is lost: its newest record is %v", key, newest)
		}
	}
	for key, off := range m.compact.deleted {
		if r, ok := k.there[key]; ok && r.Offset < off {
			return fmt.Errorf("%v is back: its key was deleted at %d", r, off)
		}
	}
	return nil
}
