package evtest

import (
	"maps"
	"time"
)

// times is what a model knows of the wall clock: since when what has been there at
// least, by the lowest time that the clock has shown since. A model without a clock
// takes no grace to be over and no record to be old.
type times struct {
	now   func() time.Time               // nil: no clock
	grace time.Duration                  // of the compactions of now; 0: it never ends
	waits func(limit time.Duration) bool // whether such an age does not count, because the clock has jumped
	began int64                          // when the step of now began, ms
	wrote map[uint64]int64               // records, since they were handed over
	tombs map[uint64]int64               // tombstones, since they may have been cleaned first
	over  map[uint64]bool                // tombstones whose grace may be over
}

func (t times) clone() times {
	t.wrote, t.tombs, t.over = maps.Clone(t.wrote), maps.Clone(t.tombs), maps.Clone(t.over)
	return t
}

// SetClock gives the model a clock. waits says of a limit for ages, or a grace, that
// it does not count for now, because the clock has jumped forwards.
func (m *Model) SetClock(now func() time.Time, waits func(limit time.Duration) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.times = times{now: now, waits: waits, wrote: map[uint64]int64{}, tombs: map[uint64]int64{}, over: map[uint64]bool{}}
	m.times.began = now().UnixMilli()
}

// Begin notes that a step begins: nothing that it does was done before. Whose grace
// may be over by now keeps that, also if the step has the clock doubted.
func (m *Model) Begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.times.now != nil {
		m.keepOverLocked()
		m.times.began = m.times.now().UnixMilli()
	}
}

// SetGrace notes how long tombstones stay after their first cleaning, for the
// compactions from now on.
func (m *Model) SetGrace(grace time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.keepOverLocked()
	m.times.grace = max(0, grace)
}

// ClockMoves changes the wall clock by calling move. What may have happened by the
// time before is noted.
func (m *Model) ClockMoves(move func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.keepOverLocked()
	move()
	now := m.times.now().UnixMilli()
	m.times.began = now
	for _, since := range []map[uint64]int64{m.times.wrote, m.times.tombs} {
		for off, ms := range since {
			since[off] = min(ms, now)
		}
	}
}

// MayBeOld reports whether a record may be in a segment whose age has reached
// limit by the time now: its own time is that old, or the clock has shown a time
// that long ago since it was written.
func (m *Model) MayBeOld(r Rec, now time.Time, limit time.Duration) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	wrote, known := m.times.wrote[r.Offset]
	before := now.Add(-limit).UnixMilli()
	return r.TimeMS <= before || !known || wrote <= before
}

// forget drops what is known of the record at an offset.
func (t times) forget(off uint64) {
	delete(t.wrote, off)
	delete(t.tombs, off)
	delete(t.over, off)
}

// noteLocked notes that the log has a record.
func (m *Model) noteLocked(r Rec) {
	t := &m.times
	if _, known := t.wrote[r.Offset]; known || t.now == nil {
		return
	}
	t.wrote[r.Offset] = t.began
	if isTombstone(r) && m.compact.always {
		t.tombs[r.Offset] = t.began
	}
}

// cleaningLocked notes that all tombstones there are may be cleaned from now on.
func (m *Model) cleaningLocked() {
	if m.times.now == nil {
		return
	}
	for _, set := range []map[uint64]Rec{m.settled, m.pending} {
		for off, r := range set {
			if _, known := m.times.tombs[off]; !known && isTombstone(r) {
				m.times.tombs[off] = m.times.began
			}
		}
	}
}

// mayExpireLocked reports whether compaction may have removed a tombstone.
func (m *Model) mayExpireLocked(r Rec) bool {
	if !isTombstone(r) || !m.compact.on {
		return false
	}
	return m.compact.tombstones || m.times.over[r.Offset] || m.graceOverLocked(r.Offset)
}

// graceOverLocked reports whether the grace of a tombstone may be over now.
func (m *Model) graceOverLocked(off uint64) bool {
	t := &m.times
	since, cleaned := t.tombs[off]
	return cleaned && t.grace > 0 && t.now().UnixMilli()-since >= t.grace.Milliseconds() && !t.waits(t.grace)
}

// keepOverLocked keeps whose grace may be over by what holds now.
func (m *Model) keepOverLocked() {
	if !m.compact.on {
		return
	}
	for off := range m.times.tombs {
		if m.graceOverLocked(off) {
			m.times.over[off] = true
		}
	}
}

func isTombstone(r Rec) bool { return len(r.Key) > 0 && len(r.Value) == 0 }
