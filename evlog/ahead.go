package evlog

import (
	"github.com/evlog-go/evlog/internal/format"
	"github.com/evlog-go/evlog/internal/invariant"
	"github.com/evlog-go/evlog/internal/vfs"
)

// readAhead reads the next parts of a segment, and checks their records, on a
// goroutine of its own, while whoever scans the segment uses the part before: on
// two processors a long scan takes about two thirds of the time. It ends where the
// segment does, and at whatever it cannot pass on, which is then read again where
// it is wanted: an error, damage, a record larger than its buffer.
type readAhead struct {
	parts chan aheadPart // closed when the goroutine has ended
	free  chan *[]byte
	quit  chan struct{}
	used  *[]byte // holds the part handed out last
}

// aheadPart is valid records, back to back.
type aheadPart struct {
	buf    *[]byte
	size   int
	lowest uint64 // that may follow
}

// aheadBuffers is one that is used, one that waits, and one that is being filled.
const aheadBuffers = 3

// aheadAfter is how many bytes a scan reads by itself before it is taken for a long
// one.
var aheadAfter = func() int64 {
	if invariant.Enabled {
		return 0 // so that small logs have it too
	}
	return 4 * scanBytes
}()

// newReadAhead reads f from pos on up to end, where no offset below lowest may
// stand. The bytes up to end do not change any more.
func newReadAhead(f vfs.File, pos, end int64, lowest uint64) *readAhead {
	a := &readAhead{
		parts: make(chan aheadPart, aheadBuffers),
		free:  make(chan *[]byte, aheadBuffers),
		quit:  make(chan struct{}),
	}
	for range aheadBuffers {
		a.free <- scanBuffers.Get().(*[]byte)
	}
	go a.run(f, pos, end, lowest)
	return a
}

func (a *readAhead) run(f vfs.File, pos, end int64, lowest uint64) {
	defer close(a.parts)
	for pos < end {
		var buf *[]byte
		select {
		case buf = <-a.free:
		case <-a.quit:
			return
		}
		p := aheadPart{buf: buf}
		b := (*buf)[:min(scanBytes, end-pos)]
		if readFull(f, b, pos) == nil {
			p.size, p.lowest = format.Run(b, lowest)
		}
		if p.size == 0 {
			scanBuffers.Put(buf)
			return
		}
		a.parts <- p // has room for all there are
		pos += int64(p.size)
		lowest = p.lowest
	}
}

// next returns the next part, valid until the next call. ok is false at the end.
func (a *readAhead) next() (p aheadPart, ok bool) {
	if a.used != nil {
		a.free <- a.used
		a.used = nil
	}
	p, ok = <-a.parts
	a.used = p.buf
	return p, ok
}

// stop ends the goroutine and waits for that: it may be reading the file. It
// returns the buffer of the part that was handed out last.
func (a *readAhead) stop() (used *[]byte) {
	close(a.quit)
	for p := range a.parts {
		scanBuffers.Put(p.buf)
	}
	for len(a.free) > 0 {
		scanBuffers.Put(<-a.free)
	}
	return a.used
}
