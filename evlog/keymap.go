package evlog

import (
	"math"
	"math/bits"

	"github.com/evlog-go/evlog/internal/siphash"
)

// keySlotBytes is what a key takes in a keyMap.
const keySlotBytes = 24

// keyMap holds the newest record of each of a bounded number of keys: 24 bytes a
// key, the hash of the key under a secret that is new in every run, and the
// record's number in the pass. It belongs to one goroutine.
//
// The keys themselves are not kept and not compared. Of n keys two have the same
// hash with a probability of n²/2^129: for a thousand million keys less than
// 10^-20, far below that of a damaged record that its checksum does not find. The
// secret keeps that true of keys that somebody chooses.
type keyMap struct {
	secret siphash.Key
	slots  []keySlot
	used   int
	limit  int // of used: beyond, chains get long
}

// keySlot is empty where the hash is zero; no key has that.
type keySlot struct{ lo, hi, record uint64 }

// above is the number of every record above those of the pass.
const above = math.MaxUint64

// newKeyMap makes a map that takes at most budget bytes, for no more than
// expected keys.
func newKeyMap(budget, expected int64) *keyMap {
	n := min(budget/keySlotBytes, expected+expected/3+2, math.MaxInt/keySlotBytes)
	n = max(n, 2) // one key, and an empty slot where a search ends
	return &keyMap{
		secret: siphash.RandomKey(),
		slots:  make([]keySlot, n),
		limit:  max(1, int(n/4*3)),
	}
}

// reset empties the map.
func (m *keyMap) reset() {
	if m.used == 0 {
		return // which costs as much as many look-ups
	}
	clear(m.slots)
	m.used = 0
}

// keyHash is a key as the map knows it.
type keyHash struct{ lo, hi uint64 }

// hash returns the hash of a key, which is never zero.
func (m *keyMap) hash(key []byte) keyHash {
	lo, hi := m.secret.Sum(key)
	if lo|hi == 0 {
		lo = 1
	}
	return keyHash{lo, hi}
}

// start is the slot where the search for a key begins. The upper half chooses, as
// if it were a fraction of the size.
func (m *keyMap) start(h keyHash) int {
	i, _ := bits.Mul64(h.hi, uint64(len(m.slots)))
	return int(i)
}

// touch brings the slots of keys into the processor's cache, all at once: one
// after the other, waiting for memory is most of the work.
func (m *keyMap) touch(keys []keyHash) (sum uint64) {
	for _, h := range keys {
		s := &m.slots[m.start(h)]
		sum += s.lo + s.record // which may be in another cache line
	}
	return sum
}

// find returns the key's slot, or the empty one where it belongs.
func (m *keyMap) find(h keyHash) *keySlot {
	i := m.start(h)
	for {
		s := &m.slots[i]
		if s.lo == h.lo && s.hi == h.hi || s.lo|s.hi == 0 {
			return s
		}
		if i++; i == len(m.slots) {
			i = 0
		}
	}
}

// add notes that the record of this number, above all so far, has key. If another
// one had it, had is true and before its number. ok is false, and nothing is
// noted, where there is no room for another key.
func (m *keyMap) add(h keyHash, record uint64) (before uint64, had, ok bool) {
	s := m.find(h)
	if s.lo|s.hi != 0 {
		before, s.record = s.record, record
		return before, true, true
	}
	if m.used >= m.limit {
		return 0, false, false
	}
	*s = keySlot{h.lo, h.hi, record}
	m.used++
	return 0, false, true
}

// raise notes that a record above those of the pass has key. If it is the first
// one, and one of the pass has the key, had is true and before its number.
func (m *keyMap) raise(h keyHash) (before uint64, had bool) {
	s := m.find(h)
	if s.lo|s.hi == 0 || s.record == above {
		return 0, false
	}
	before, s.record = s.record, above
	return before, true
}

// dropSet is the records of a pass that go, a bit for each by its number.
type dropSet []uint64

// room is how many records it has a bit for.
func (d dropSet) room() uint64 { return uint64(len(d)) * 64 }

func (d dropSet) add(n uint64)      { d[n/64] |= 1 << (n % 64) }
func (d dropSet) has(n uint64) bool { return d[n/64]>>(n%64)&1 != 0 }

// count is how many of n records from the first on go.
func (d dropSet) count(first, n uint64) (going uint64) {
	for ; n > 0; first, n = first+1, n-1 {
		if first%64 == 0 && n >= 64 {
			going += uint64(bits.OnesCount64(d[first/64]))
			first, n = first+63, n-63
		} else if d.has(first) {
			going++
		}
	}
	return going
}
