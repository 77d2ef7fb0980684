package evtest

import (
	"fmt"
	"maps"
)

// compacted is what a model knows of compaction.
type compacted struct {
	on         bool // it may be at work
	tombstones bool // they may go as well
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
// and tombstones too if their grace may be over.
func (m *Model) Compacting(tombstones bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.compact.on = true
	m.compact.tombstones = m.compact.tombstones || tombstones
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
	c.on, c.tombstones = false, false
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
	return r.Offset < k.any[string(r.Key)] || len(r.Value) == 0 && m.compact.tombstones
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
		case !ok && len(newest.Value) > 0:
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
