// Package format turns evlog's structures into bytes and back. It is pure: it
// never sees a file. docs/FORMAT.md is the normative description.
package format

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/klauspost/crc32"
)

const (
	// HeaderSize is the number of bytes in front of a record's key.
	HeaderSize = 28
	// crcEnd is where the checksummed bytes of a record start.
	crcEnd = 8
	// minLength is the length field of a record with neither key nor value.
	minLength = HeaderSize - crcEnd
	// MaxLength is the highest length field that is ever valid: 1 GiB.
	MaxLength = 1 << 30
	// MaxKey is the longest key in bytes.
	MaxKey = 1<<16 - 1
	// MaxOffset is the highest offset of a record. The next offset, one more, must
	// be a number too.
	MaxOffset = 1<<64 - 2
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum is CRC-32C, the checksum of every structure of the format.
func Checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// UpdateChecksum adds b to a checksum that is taken piece by piece.
func UpdateChecksum(crc uint32, b []byte) uint32 { return crc32.Update(crc, castagnoli, b) }

// Why bytes are not a valid record. A reader wraps one of them into an error
// that says where.
var (
	ErrLength = errors.New("length out of range")
	ErrShort  = errors.New("record runs past the end of the file")
	ErrKey    = errors.New("key longer than the record")
	ErrCRC    = errors.New("crc mismatch")
	ErrOrder  = errors.New("offset not above the one before")
	ErrOffset = errors.New("offset out of range")
	ErrZeros  = errors.New("zeros where a record should be")
)

// Invalid reports whether err says that bytes are no valid record, as opposed
// to an error of reading them.
func Invalid(err error) bool {
	for _, e := range []error{ErrLength, ErrShort, ErrKey, ErrCRC, ErrOrder, ErrOffset, ErrZeros} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// Header is the fixed part of a record. It is in four parts because the compiler
// keeps a structure in registers if it has no more fields than that; through
// memory, it takes as long to hand on as to check a small record.
type Header struct {
	Frame
	Offset uint64
	TimeMS int64
	Meta
}

// Frame is what a Header begins with.
type Frame struct {
	Length uint32 // bytes that follow the crc field
	CRC    uint32
}

// Meta is what a Header ends with.
type Meta struct {
	Schema uint16
	KeyLen uint16
}

// Size returns the bytes of a record with such a key and value.
func Size(keyLen, valueLen int) int64 { return HeaderSize + int64(keyLen) + int64(valueLen) }

// Append encodes a record behind dst. The caller has checked the limits.
func Append(dst []byte, offset uint64, timeMS int64, schema uint16, key, value []byte) []byte {
	from := len(dst)
	dst = AppendUnsealed(dst, offset, timeMS, schema, key, value)
	Seal(dst[from:])
	return dst
}

// AppendUnsealed is Append without the checksum, which Seal puts in. Many records
// sealed at once take less time than each by itself: what was just written in
// pieces of 2 to 16 bytes cannot be read in pieces of 8 for some cycles.
func AppendUnsealed(dst []byte, offset uint64, timeMS int64, schema uint16, key, value []byte) []byte {
	start, size := len(dst), HeaderSize+len(key)+len(value)
	dst = slices.Grow(dst, size)[:start+size]
	b := dst[start:]
	binary.LittleEndian.PutUint32(b[0:], uint32(size-crcEnd))
	binary.LittleEndian.PutUint64(b[8:], offset)
	binary.LittleEndian.PutUint64(b[16:], uint64(timeMS))
	binary.LittleEndian.PutUint16(b[24:], schema)
	binary.LittleEndian.PutUint16(b[26:], uint16(len(key)))
	copy(b[HeaderSize:], key)
	copy(b[HeaderSize+len(key):], value)
	return dst
}

// Seal puts the checksums into whole records, which stand back to back in b.
func Seal(b []byte) {
	for len(b) > 0 {
		n := SizeOf(b)
		binary.LittleEndian.PutUint32(b[4:], Checksum(b[crcEnd:n]))
		b = b[n:]
	}
}

// ParseHeader reads the fixed part from b, which holds at least HeaderSize
// bytes. It checks nothing.
func ParseHeader(b []byte) Header {
	_ = b[HeaderSize-1]
	return Header{
		Frame:  Frame{Length: binary.LittleEndian.Uint32(b[0:]), CRC: binary.LittleEndian.Uint32(b[4:])},
		Offset: binary.LittleEndian.Uint64(b[8:]),
		TimeMS: int64(binary.LittleEndian.Uint64(b[16:])),
		Meta:   Meta{Schema: binary.LittleEndian.Uint16(b[24:]), KeyLen: binary.LittleEndian.Uint16(b[26:])},
	}
}

// SizeOf is the number of bytes of the record at the start of b.
func SizeOf(b []byte) int { return crcEnd + int(binary.LittleEndian.Uint32(b)) }

// OffsetOf is the offset of the record at the start of b.
func OffsetOf(b []byte) uint64 { return binary.LittleEndian.Uint64(b[8:]) }

// Size is the number of bytes of the whole record.
func (h Header) Size() int64 { return crcEnd + int64(h.Length) }

// Check tests all that the header alone can tell: the lengths against each
// other and against the bytes left in the file, and the offset against the
// lowest that may come here.
func (h Header) Check(remaining int64, lowest uint64) error {
	switch {
	case h.Length == 0 && h.CRC == 0:
		return ErrZeros
	case h.Length < minLength || h.Length > MaxLength:
		return ErrLength
	case h.Size() > remaining:
		return ErrShort
	case uint32(h.KeyLen) > h.Length-minLength:
		return ErrKey
	case h.Offset < lowest:
		return ErrOrder
	case h.Offset > MaxOffset:
		return ErrOffset
	}
	return nil
}

// CheckBody tests the checksum of a whole record, header included.
func (h Header) CheckBody(record []byte) error {
	if Checksum(record[crcEnd:h.Size()]) != h.CRC {
		return ErrCRC
	}
	return nil
}

// Key returns the key of a whole record that was checked.
func (h Header) Key(record []byte) []byte {
	end := HeaderSize + int(h.KeyLen)
	return record[HeaderSize:end:end]
}

// Value returns the value of a whole record that was checked.
func (h Header) Value(record []byte) []byte {
	end := int(h.Size())
	return record[HeaderSize+int(h.KeyLen) : end : end]
}

// Run returns the length of the valid records at the start of b, whole ones back
// to back, and the lowest offset that may follow them. It tests all that Check
// and CheckBody do, but does not say why a record is none.
func Run(b []byte, lowest uint64) (n int, next uint64) {
	n, next, _ = RunBelow(b, lowest, MaxOffset+1)
	return n, next
}

// RunBelow is Run that ends before the first record with this offset or a higher
// one, and tells how many records there are.
func RunBelow(b []byte, lowest, below uint64) (n int, next uint64, records int) {
	le := binary.LittleEndian
	for len(b)-n >= HeaderSize {
		r := b[n:]
		length := le.Uint32(r)
		offset := le.Uint64(r[8:])
		if length-minLength > MaxLength-minLength || int64(length)+crcEnd > int64(len(r)) ||
			uint32(le.Uint16(r[26:])) > length-minLength || offset < lowest || offset >= below {
			break
		}
		size := crcEnd + int(length)
		if crc32.Update(0, castagnoli, r[crcEnd:size]) != le.Uint32(r[4:]) {
			break
		}
		n += size
		lowest = offset + 1
		records++
	}
	return n, lowest, records
}

// Parse checks and reads the record at the start of b, of which b holds
// everything that is left in the file.
func Parse(b []byte, lowest uint64) (Header, error) {
	if len(b) < HeaderSize {
		return Header{}, ErrShort
	}
	h := ParseHeader(b)
	if err := h.Check(int64(len(b)), lowest); err != nil {
		return h, err
	}
	return h, h.CheckBody(b)
}
