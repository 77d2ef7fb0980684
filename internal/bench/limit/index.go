package limit

import (
	"encoding/binary"
	"os"
	"sort"
	"testing"

	"github.com/stretchr/testify/require"
)

// Index finds records by offset: it has an entry in memory for every 4 KiB.
type Index struct {
	b       testing.TB
	entries []indexEntry
	buf     []byte
}

const indexInterval = 4 << 10

type indexEntry struct {
	f      *os.File
	offset uint64
	pos    int64
}

// NewIndex reads segments, in the order of their offsets. Records are of less
// than 1 KiB.
func NewIndex(b testing.TB, segments ...*os.File) *Index {
	x := &Index{b: b, buf: make([]byte, indexInterval+1<<10)}
	for _, f := range segments {
		due := int64(0)
		Scan(b, f, make([]byte, Buffer), func(offset uint64, pos int64, _, _ []byte) {
			if pos >= due {
				x.entries = append(x.entries, indexEntry{f, offset, pos})
				due = pos + indexInterval
			}
		})
	}
	return x
}

// Get reads once, goes over the records before the one wanted by their lengths,
// checks that one, and copies it, as evlog does.
func (x *Index) Get(offset uint64) []byte {
	i := sort.Search(len(x.entries), func(i int) bool { return x.entries[i].offset > offset })
	e := x.entries[i-1]
	n, err := e.f.ReadAt(x.buf, e.pos)
	if n == 0 {
		require.NoError(x.b, err)
	}
	buf := x.buf[:n]
	for binary.LittleEndian.Uint64(buf[8:]) < offset {
		buf = buf[8+binary.LittleEndian.Uint32(buf):]
	}
	rec, _ := Parse(x.b, buf, offset)
	return append([]byte(nil), rec...)
}
