package limit

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/klauspost/crc32"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/format"
)

// HeaderSize is what a record has before its key.
const HeaderSize = format.HeaderSize

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Encode appends a record, as docs/FORMAT.md has it, to dst.
func Encode(dst []byte, offset uint64, timeMS int64, r *evlog.Record) []byte {
	size := HeaderSize + len(r.Key) + len(r.Value)
	dst = slices.Grow(dst, size)
	b := dst[len(dst) : len(dst)+size]
	le := binary.LittleEndian
	le.PutUint32(b, uint32(size-8))
	le.PutUint64(b[8:], offset)
	le.PutUint64(b[16:], uint64(timeMS))
	le.PutUint16(b[24:], r.Schema)
	le.PutUint16(b[26:], uint16(len(r.Key)))
	copy(b[HeaderSize:], r.Key)
	copy(b[HeaderSize+len(r.Key):], r.Value)
	le.PutUint32(b[4:], crc32.Checksum(b[8:], castagnoli))
	return dst[:len(dst)+size]
}

const keyBytes = 16

// Records makes n records with keys of 16 bytes and random values.
func Records(n, valueBytes int) []evlog.Record {
	rng := rand.New(rand.NewPCG(1, 2))
	records := make([]evlog.Record, n)
	for i := range records {
		value := make([]byte, valueBytes)
		for j := range value {
			value[j] = byte(rng.Uint32())
		}
		records[i] = evlog.Record{Key: fmt.Appendf(nil, "key-%012d", rng.IntN(1000)), Value: value}
	}
	return records
}

// RecordSize is the number of bytes such a record takes in a log.
func RecordSize(valueBytes int) int64 { return HeaderSize + keyBytes + int64(valueBytes) }
