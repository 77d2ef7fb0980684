package evtest

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/evlog-go/evlog/evlog"
)

// Model is a log in memory: what must be readable and what may be. Safe for
// concurrent use.
//
// A record is intended when it was handed to the log, and settled when it was
// acknowledged or any reader has seen it: from then on its offset means it for
// ever. A crash may take what is intended and not settled.
type Model struct {
	mu      sync.Mutex
	settled map[uint64]Rec
	pending map[uint64]Rec // accepted under this offset
	loose   []Rec          // handed over, the offset is not known
	next    uint64         // above every settled offset
	compact compacted
	times   times

	// Retention: records below gone are not there any more, of those below due
	// a prefix may be missing.
	gone, due uint64
}

// NewModel returns an empty log.
func NewModel() *Model {
	return &Model{settled: map[uint64]Rec{}, pending: map[uint64]Rec{}}
}

// Intend notes records that are about to be handed over. Their offsets are not
// known yet.
func (m *Model) Intend(recs ...evlog.Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range recs {
		m.loose = append(m.loose, RecOf(r))
	}
}

// Accept notes records that the log accepted at first, first+1, ...
func (m *Model) Accept(first uint64, recs ...evlog.Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, r := range recs {
		rec := RecOf(r)
		rec.Offset = first + uint64(i)
		m.dropLooseLocked(rec)
		if old, ok := m.settled[rec.Offset]; ok {
			if !old.Same(rec) {
				return fmt.Errorf("offset %d was given out before: it was %v, now %v", rec.Offset, old, rec)
			}
			continue
		}
		if old, ok := m.pending[rec.Offset]; ok && !old.Same(rec) {
			return fmt.Errorf("offset %d was given out twice: %v and %v", rec.Offset, old, rec)
		}
		m.pending[rec.Offset] = rec
		m.times.forget(rec.Offset) // a crash may have taken another record
		m.noteLocked(rec)
	}
	return nil
}

// Ack notes that the n records from first are acknowledged as durable.
func (m *Model) Ack(first uint64, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for off := first; off < first+uint64(n); off++ {
		if r, ok := m.pending[off]; ok {
			m.settleLocked(r)
		}
	}
}

// AckAll notes that everything accepted is durable, as after Flush.
func (m *Model) AckAll() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range maps.Clone(m.pending) {
		m.settleLocked(r)
	}
}

// Forget drops accepted records that the log said were lost: their offsets
// stay holes.
func (m *Model) Forget(first uint64, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for off := first; off < first+uint64(n); off++ {
		delete(m.pending, off)
	}
}

// Saw checks a record that a reader delivered, and settles it. (I2, I3)
func (m *Model) Saw(r Rec) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sawLocked(r)
}

func (m *Model) sawLocked(r Rec) error {
	if old, ok := m.settled[r.Offset]; ok {
		if !old.Same(r) {
			return fmt.Errorf("offset %d changed: it was %v, now %v", r.Offset, old, r)
		}
		return nil
	}
	if p, ok := m.pending[r.Offset]; ok && p.Same(r) {
		m.settleLocked(r)
		return nil
	}
	if g, ok := m.compact.ghosts[r.Offset]; ok && g.Same(r) {
		m.settleLocked(r)
		return nil
	}
	if m.dropLooseLocked(r) {
		m.settleLocked(r)
		return nil
	}
	return fmt.Errorf("nobody appended %v", r)
}

func (m *Model) settleLocked(r Rec) {
	if r.Offset >= m.gone {
		m.settled[r.Offset] = r
		m.noteLocked(r)
	}
	delete(m.pending, r.Offset)
	if r.Offset+1 > m.next {
		m.next = r.Offset + 1
	}
}

// dropLooseLocked finds a record of this content among those whose offset was
// not known.
func (m *Model) dropLooseLocked(r Rec) bool {
	for i, l := range m.loose {
		if l.SameContent(r) {
			m.loose = slices.Delete(m.loose, i, i+1)
			return true
		}
	}
	return false
}

// Due notes that retention may remove what lies below this offset from now on.
func (m *Model) Due(below uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.due = max(m.due, below)
}

// Gone notes that retention has removed, durably, all that lies below this
// offset. It must have been due.
func (m *Model) Gone(below uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if below > m.due {
		return fmt.Errorf("everything below %d was removed, though only what is below %d was due", below, m.due)
	}
	m.goneLocked(below)
	return nil
}

func (m *Model) goneLocked(below uint64) {
	m.gone = max(m.gone, below)
	for off := range m.settled {
		if off < m.gone {
			delete(m.settled, off)
		}
	}
}

// GoneIfDue notes the same of what lies below offset, as far as it was due.
func (m *Model) GoneIfDue(offset uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.goneLocked(min(offset, m.due))
}

// IsDue reports whether retention may have removed all below this offset.
func (m *Model) IsDue(offset uint64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return offset <= m.due
}

// checkRetainedLocked tests that what is missing from the old end was due, and
// that nothing that was removed durably is back. first is the first offset that
// is there.
func (m *Model) checkRetainedLocked(recs []Rec) (first uint64, err error) {
	if len(recs) == 0 {
		return m.due, nil
	}
	if first = recs[0].Offset; first < m.gone {
		return 0, fmt.Errorf("%v is back: everything below %d was removed durably", recs[0], m.gone)
	}
	return min(first, m.due), nil
}

// Check compares all that can be read with the model: everything settled is
// there unchanged, nothing is there that was not intended, offsets rise, and
// nothing accepted is missing below an accepted record that is there. (I1, I3)
func (m *Model) Check(recs []Rec) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	first, err := m.checkRetainedLocked(recs)
	if err != nil {
		return err
	}
	there := make(map[uint64]bool, len(recs))
	highest := uint64(0)
	for i, r := range recs {
		if i > 0 && r.Offset <= recs[i-1].Offset {
			return fmt.Errorf("offset %d after %d", r.Offset, recs[i-1].Offset)
		}
		there[r.Offset] = true
		highest = r.Offset
	}
	var k keys
	if m.compact.on || len(m.compact.deleted) > 0 {
		k = m.keysLocked(recs)
		if err := m.checkKeysLocked(k, first); err != nil {
			return err
		}
	}
	for off, r := range m.settled {
		if !there[off] && off >= first && !m.mayLackLocked(r, k) {
			return fmt.Errorf("acknowledged or seen, and lost: %v (%d records read)", r, len(recs))
		}
	}
	for off, r := range m.pending {
		if off < highest && !there[off] && off >= first && !m.mayLackLocked(r, k) {
			return fmt.Errorf("%v is missing, though %d, accepted later, is there", r, highest)
		}
	}
	for _, r := range recs {
		if err := m.checkOneLocked(r); err != nil {
			return err
		}
	}
	return nil
}

// checkOneLocked is Saw without settling.
func (m *Model) checkOneLocked(r Rec) error {
	if old, ok := m.settled[r.Offset]; ok {
		if !old.Same(r) {
			return fmt.Errorf("offset %d changed: it was %v, now %v", r.Offset, old, r)
		}
		return nil
	}
	if p, ok := m.pending[r.Offset]; ok && p.Same(r) {
		return nil
	}
	if g, ok := m.compact.ghosts[r.Offset]; ok && g.Same(r) {
		return nil
	}
	if slices.ContainsFunc(m.loose, r.SameContent) {
		return nil
	}
	return fmt.Errorf("nobody appended %v", r)
}

// Crashed checks what can be read after a crash, settles it, and drops what the
// crash took.
func (m *Model) Crashed(recs []Rec) error {
	if err := m.Check(recs); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range recs {
		if err := m.sawLocked(r); err != nil {
			return err
		}
	}
	m.adoptLocked(recs, true)
	clear(m.pending)
	m.loose = nil
	return nil
}

// Next is above every settled offset: the log's next offset must never be
// lower.
func (m *Model) Next() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.next
}

// Reserve notes that the log's next offset will never be below next again, though
// there may be no record.
func (m *Model) Reserve(next uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.next = max(m.next, next)
}

// Pending is the number of records accepted and not settled.
func (m *Model) Pending() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.pending)
}

// Settled returns the settled records in order.
func (m *Model) Settled() []Rec {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.SortedFunc(maps.Values(m.settled), func(a, b Rec) int { return cmp.Compare(a.Offset, b.Offset) })
}

// Clone returns an independent copy.
func (m *Model) Clone() *Model {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cloneLocked()
}

// CloneWith returns a copy of the moment at which take takes an image of the
// disk: with callers under way, no acknowledgement is noted between the two, so
// the copy holds none that the image is too old for.
func (m *Model) CloneWith(take func()) *Model {
	m.mu.Lock()
	defer m.mu.Unlock()
	take()
	return m.cloneLocked()
}

func (m *Model) cloneLocked() *Model {
	return &Model{
		settled: maps.Clone(m.settled), pending: maps.Clone(m.pending),
		loose: slices.Clone(m.loose), next: m.next, compact: m.compact.clone(), times: m.times.clone(),
		gone: m.gone, due: m.due,
	}
}

// At is the offset that a reader must answer for time ms by brute force: the
// first record with that time or a later one.
func At(recs []Rec, ms int64) (offset uint64, ok bool) {
	for _, r := range recs {
		if r.TimeMS >= ms {
			return r.Offset, true
		}
	}
	return math.MaxUint64, false
}
