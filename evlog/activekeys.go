package evlog

import (
	"context"
	"io"
	"math"
	"math/bits"
	"sync"

	"github.com/evlog-go/evlog/internal/format"
)

// maxActiveKeys bounds what a reader remembers of the keys in the active segment:
// 8 MiB, room for 786,432 keys.
const maxActiveKeys = 1 << 20

// searchedFar is how much of the segment a look-up has to read, if not all of it, so
// that the next one remembers.
const searchedFar = 256 << 10

// activeKeys is where the newest record of each key stands in a segment that has
// no key filter yet, up to pos. It grows with the segment, so that a look-up reads
// what was appended since the last one. Keys are told apart by 32 bits of their
// hash: what it says of one may be true of another one that stands higher.
type activeKeys struct {
	mu    sync.Mutex // guards the rest; held while the segment is read
	of    *segFile
	pos   int64  // read up to here
	next  uint64 // lowest offset that may stand there
	slots []activeKey
	used  int
}

// activeKey is empty where at is 0: at is the position, and 1.
type activeKey struct{ tag, at uint32 }

func (k *activeKeys) find(tag uint32) *activeKey {
	hi, _ := bits.Mul64(uint64(tag)<<32, uint64(len(k.slots)))
	for i := int(hi); ; i++ {
		if i == len(k.slots) {
			i = 0
		}
		if s := &k.slots[i]; s.at == 0 || s.tag == tag {
			return s
		}
	}
}

// add notes a record. It reports whether there was room.
func (k *activeKeys) add(key []byte, pos int64) bool {
	if pos >= math.MaxUint32 {
		return false
	}
	if k.used >= len(k.slots)/4*3 && !k.grow() {
		return false
	}
	tag := uint32(format.KeyHash(key))
	s := k.find(tag)
	if s.at == 0 {
		k.used++
	}
	*s = activeKey{tag, uint32(pos) + 1}
	return true
}

func (k *activeKeys) grow() bool {
	old := k.slots
	if len(old) >= maxActiveKeys {
		return false
	}
	k.slots = make([]activeKey, max(1024, 2*len(old)))
	for _, s := range old {
		if s.at != 0 {
			*k.find(s.tag) = s
		}
	}
	return true
}

// newest returns a position above which no record up to pos has the key; found is
// false where none has it at all.
func (k *activeKeys) newest(hash uint64) (pos int64, found bool) {
	if k.used == 0 {
		return 0, false
	}
	s := k.find(uint32(hash))
	return int64(s.at) - 1, s.at != 0
}

// extend reads on up to the position upTo, which is the end of a record. It reports
// whether it got there.
func (k *activeKeys) extend(ctx context.Context, upTo int64) (bool, error) {
	fr := newFrames(k.of.f, k.pos, upTo, k.next)
	fr.brief = true
	defer fr.release()
	for k.pos < upTo {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		run, err := fr.run()
		if err == io.EOF || invalidRecord(err) {
			return false, nil // for whoever reads there to report
		}
		if err != nil {
			return false, err
		}
		for len(run) > 0 {
			var h format.Header
			var rec []byte
			h, rec, run = cutRecord(run)
			if h.KeyLen > 0 && !k.add(h.Key(rec), k.pos) {
				return false, nil
			}
			k.pos += h.Size()
			k.next = h.Offset + 1
		}
	}
	return true, nil
}

// newestIn asks where the newest record with a key can stand in the active
// segment s, below the position upTo: not above pos, and nowhere if found is
// false. known is false where only reading tells. Keys are remembered from the
// second look-up on that has to read far: who looks for what was set a moment ago
// needs to read little.
func (r *Reader) newestIn(ctx context.Context, s *segFile, hash uint64, upTo int64) (pos int64, found, known bool, err error) {
	if !s.searched.Load() || r.opts.BeyondDurable {
		return 0, false, false, nil
	}
	k := &r.active
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.of != s {
		// A file that took the place of the one that was appended to, when the
		// segment had been closed, has its records elsewhere. One that is the active
		// segment's after it was opened is not such a file, and stays what it is.
		segments, err := r.list()
		if err != nil || len(segments) == 0 || segments.active() != s.base {
			return 0, false, false, err
		}
		k.of, k.pos, k.next, k.slots, k.used = s, 0, s.base, nil, 0
	}
	if k.pos < upTo {
		if ok, err := k.extend(ctx, upTo); !ok {
			return 0, false, false, err
		}
	}
	pos, found = k.newest(hash)
	return pos, found, true, nil
}
