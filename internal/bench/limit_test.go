package bench

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/klauspost/crc32"
	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/format"
)

// The limit: what evlog does, with everything left out that the bytes on disk
// do not ask for.

const headerSize = format.HeaderSize

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encode appends a record, as docs/FORMAT.md has it, to dst.
func encode(dst []byte, offset uint64, timeMS int64, r *evlog.Record) []byte {
	size := headerSize + len(r.Key) + len(r.Value)
	dst = slices.Grow(dst, size)
	b := dst[len(dst) : len(dst)+size]
	le := binary.LittleEndian
	le.PutUint32(b, uint32(size-8))
	le.PutUint64(b[8:], offset)
	le.PutUint64(b[16:], uint64(timeMS))
	le.PutUint16(b[24:], r.Schema)
	le.PutUint16(b[26:], uint16(len(r.Key)))
	copy(b[headerSize:], r.Key)
	copy(b[headerSize+len(r.Key):], r.Value)
	le.PutUint32(b[4:], crc32.Checksum(b[8:], castagnoli))
	return dst[:len(dst)+size]
}

// limitLog is one file that records are written to.
type limitLog struct {
	b      testing.TB
	dir    string
	zeroed int64 // bytes that a new file is filled with and synced
	f      *os.File
	pos    int64
	next   uint64
	buf    []byte
	files  int
}

const limitZeroed = 64 << 20

func newLimitLog(b testing.TB, zeroed int64) *limitLog {
	l := &limitLog{b: b, dir: b.TempDir(), zeroed: zeroed, buf: make([]byte, 0, 512<<10)}
	l.newFile()
	b.Cleanup(func() { l.f.Close() })
	return l
}

// newFile starts another file.
func (l *limitLog) newFile() {
	if l.f != nil {
		require.NoError(l.b, l.f.Close())
	}
	var err error
	l.f, err = os.Create(filepath.Join(l.dir, format.SegmentName(l.next)))
	require.NoError(l.b, err)
	zeros := make([]byte, 1<<20)
	for at := int64(0); at < l.zeroed; at += int64(len(zeros)) {
		_, err := l.f.WriteAt(zeros, at)
		require.NoError(l.b, err)
	}
	require.NoError(l.b, l.f.Sync())
	l.pos = 0
	l.files++
}

// room starts another file if the zeros do not suffice for n bytes.
func (l *limitLog) room(n int64) {
	if l.zeroed > 0 && l.pos+n > l.zeroed {
		l.newFile()
	}
}

// add encodes records that get the time of now.
func (l *limitLog) add(records ...evlog.Record) {
	now := time.Now().UnixMilli()
	for i := range records {
		l.buf = encode(l.buf, l.next, now, &records[i])
		l.next++
	}
}

func (l *limitLog) write() {
	if _, err := l.f.WriteAt(l.buf, l.pos); err != nil {
		l.b.Fatal(err)
	}
	l.pos += int64(len(l.buf))
	l.buf = l.buf[:0]
}

func (l *limitLog) sync() {
	if err := fdatasync(l.f); err != nil {
		l.b.Fatal(err)
	}
}

// roll does what a new segment cannot do without.
func (l *limitLog) roll() {
	l.write()
	if err := l.f.Sync(); err != nil {
		l.b.Fatal(err)
	}
	l.newFile()
	dir, err := os.Open(l.dir)
	require.NoError(l.b, err)
	require.NoError(l.b, dir.Sync())
	require.NoError(l.b, dir.Close())
}

// scanFile reads a segment by large preads, checks every record, and calls each
// with its offset, position, key and value.
func scanFile(b testing.TB, f *os.File, buf []byte, each func(offset uint64, pos int64, key, value []byte)) {
	scanRecords(b, f, buf, func(offset uint64, pos int64, rec []byte) {
		keyEnd := headerSize + int(binary.LittleEndian.Uint16(rec[26:]))
		each(offset, pos, rec[headerSize:keyEnd], rec[keyEnd:])
	})
}

// scanRecords is scanFile for whole records.
func scanRecords(b testing.TB, f *os.File, buf []byte, each func(offset uint64, pos int64, rec []byte)) {
	info, err := f.Stat()
	if err != nil {
		b.Fatal(err)
	}
	size := info.Size()
	le := binary.LittleEndian
	lowest := uint64(0)
	start, end := 0, 0
	for pos := int64(0); pos < size; {
		if rest := buf[start:end]; len(rest) < headerSize || len(rest) < 8+int(le.Uint32(rest)) {
			end = copy(buf, rest)
			start = 0
			n := min(int64(len(buf)-end), size-pos-int64(end))
			if n == 0 {
				b.Fatalf("record at %d does not fit", pos)
			}
			if _, err := f.ReadAt(buf[end:end+int(n)], pos+int64(end)); err != nil {
				b.Fatal(err)
			}
			end += int(n)
			continue
		}
		rec, offset := parse(b, buf[start:end], lowest)
		each(offset, pos, rec)
		lowest = offset + 1
		start += len(rec)
		pos += int64(len(rec))
	}
}

// parse checks the record at the start of buf.
func parse(b testing.TB, buf []byte, lowest uint64) (rec []byte, offset uint64) {
	le := binary.LittleEndian
	size := 8 + int(le.Uint32(buf))
	offset = le.Uint64(buf[8:])
	if size < headerSize || size > len(buf) || offset < lowest || headerSize+int(le.Uint16(buf[26:])) > size ||
		crc32.Checksum(buf[8:size], castagnoli) != le.Uint32(buf[4:]) {
		b.Fatal("no valid record")
	}
	return buf[:size], offset
}

// TestLimit_WritesRecords tests that the limit's bytes are evlog's.
func TestLimit_WritesRecords(t *testing.T) {
	records := makeRecords(3, 100)
	l := newLimitLog(t, 0)
	l.add(records...)
	want := slices.Clone(l.buf)
	l.write()
	l.sync()

	at := 0
	scanFile(t, l.f, make([]byte, 64<<10), func(offset uint64, pos int64, key, value []byte) {
		h, err := format.Parse(want[pos:], offset)
		require.NoError(t, err)
		require.Equal(t, uint64(at), offset)
		require.Equal(t, records[at].Key, key)
		require.Equal(t, records[at].Value, value)
		require.Equal(t, want[pos:pos+h.Size()], format.Append(nil, offset, h.TimeMS, h.Schema, key, value))
		at++
	})
	require.Equal(t, len(records), at)
}
