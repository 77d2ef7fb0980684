package limit

import (
	"encoding/binary"
	"os"
	"testing"

	"github.com/klauspost/crc32"
)

// Buffer is how much is read, or gathered for a write, at once.
const Buffer = 256 << 10

// Scan reads a segment by large preads, checks every record, and calls each
// with its offset, position, key and value.
func Scan(b testing.TB, f *os.File, buf []byte, each func(offset uint64, pos int64, key, value []byte)) {
	ScanWhole(b, f, buf, func(offset uint64, pos int64, rec []byte) {
		keyEnd := HeaderSize + int(binary.LittleEndian.Uint16(rec[26:]))
		each(offset, pos, rec[HeaderSize:keyEnd], rec[keyEnd:])
	})
}

// ScanWhole is Scan for whole records.
func ScanWhole(b testing.TB, f *os.File, buf []byte, each func(offset uint64, pos int64, rec []byte)) {
	info, err := f.Stat()
	if err != nil {
		b.Fatal(err)
	}
	size := info.Size()
	le := binary.LittleEndian
	lowest := uint64(0)
	start, end := 0, 0
	for pos := int64(0); pos < size; {
		if rest := buf[start:end]; len(rest) < HeaderSize || len(rest) < 8+int(le.Uint32(rest)) {
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
		rec, offset := Parse(b, buf[start:end], lowest)
		each(offset, pos, rec)
		lowest = offset + 1
		start += len(rec)
		pos += int64(len(rec))
	}
}

// Parse checks the record at the start of buf.
func Parse(b testing.TB, buf []byte, lowest uint64) (rec []byte, offset uint64) {
	le := binary.LittleEndian
	size := 8 + int(le.Uint32(buf))
	offset = le.Uint64(buf[8:])
	if size < HeaderSize || size > len(buf) || offset < lowest || HeaderSize+int(le.Uint16(buf[26:])) > size ||
		crc32.Checksum(buf[8:size], castagnoli) != le.Uint32(buf[4:]) {
		b.Fatal("no valid record")
	}
	return buf[:size], offset
}
