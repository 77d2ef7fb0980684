package evtest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// Rec is a record as the second implementation sees it.
type Rec struct {
	Offset uint64
	TimeMS int64
	Schema uint16
	Key    []byte
	Value  []byte
}

// Same reports whether two records are the same in every field.
func (r Rec) Same(o Rec) bool {
	return r.Offset == o.Offset && r.TimeMS == o.TimeMS && r.Schema == o.Schema &&
		bytes.Equal(r.Key, o.Key) && bytes.Equal(r.Value, o.Value)
}

// SameContent is Same without the offset.
func (r Rec) SameContent(o Rec) bool {
	o.Offset = r.Offset
	return r.Same(o)
}

// Size is the number of bytes the record takes in a segment.
func (r Rec) Size() int64 { return int64(28 + len(r.Key) + len(r.Value)) }

// String shows the record in failures.
func (r Rec) String() string {
	return fmt.Sprintf("{%d ts=%d schema=%d key=%s value=%s}", r.Offset, r.TimeMS, r.Schema, short(r.Key), short(r.Value))
}

func short(b []byte) string {
	if len(b) <= 24 {
		return fmt.Sprintf("%q", b)
	}
	return fmt.Sprintf("%q... (%d B, crc %08x)", b[:16], len(b), crc(b))
}

// crcTable is not the table of internal/format on purpose.
var crcTable = crc32.MakeTable(0x82f63b78)

func crc(b []byte) uint32 { return crc32.Checksum(b, crcTable) }

// EncodeRec returns the bytes of a record as FORMAT.md lays them out.
func EncodeRec(r Rec) []byte {
	n := 20 + len(r.Key) + len(r.Value)
	var b bytes.Buffer
	body := binary.LittleEndian.AppendUint64(nil, r.Offset)
	body = binary.LittleEndian.AppendUint64(body, uint64(r.TimeMS))
	body = binary.LittleEndian.AppendUint16(body, r.Schema)
	body = binary.LittleEndian.AppendUint16(body, uint16(len(r.Key)))
	body = append(body, r.Key...)
	body = append(body, r.Value...)
	if len(body) != n {
		panic("evtest: length is wrong")
	}
	b.Write(binary.LittleEndian.AppendUint32(nil, uint32(n)))
	b.Write(binary.LittleEndian.AppendUint32(nil, crc(body)))
	b.Write(body)
	return b.Bytes()
}

// EncodeRecs returns the bytes of records back to back.
func EncodeRecs(recs ...Rec) []byte {
	var b []byte
	for _, r := range recs {
		b = append(b, EncodeRec(r)...)
	}
	return b
}

// DecodeRec reads the record at the start of b, where b is all that is left of
// the file. lowest is the lowest offset that may come here.
func DecodeRec(b []byte, lowest uint64) (Rec, int64, error) {
	if len(b) < 28 {
		return Rec{}, 0, errors.New("fewer bytes than a header")
	}
	length := int64(binary.LittleEndian.Uint32(b))
	if length < 20 || length > 1<<30 {
		return Rec{}, 0, fmt.Errorf("length %d", length)
	}
	if 8+length > int64(len(b)) {
		return Rec{}, 0, fmt.Errorf("length %d runs past the end", length)
	}
	keyLen := int64(binary.LittleEndian.Uint16(b[26:]))
	if keyLen > length-20 {
		return Rec{}, 0, fmt.Errorf("key of %d bytes in %d", keyLen, length-20)
	}
	if crc(b[8:8+length]) != binary.LittleEndian.Uint32(b[4:]) {
		return Rec{}, 0, errors.New("crc")
	}
	r := Rec{
		Offset: binary.LittleEndian.Uint64(b[8:]),
		TimeMS: int64(binary.LittleEndian.Uint64(b[16:])),
		Schema: binary.LittleEndian.Uint16(b[24:]),
		Key:    cloned(b[28 : 28+keyLen]),
		Value:  cloned(b[28+keyLen : 8+length]),
	}
	if r.Offset < lowest {
		return Rec{}, 0, fmt.Errorf("offset %d below %d", r.Offset, lowest)
	}
	if r.Offset+1 == 0 {
		return Rec{}, 0, errors.New("offset without a next one")
	}
	return r, 8 + length, nil
}

func cloned(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return bytes.Clone(b)
}

// Durable is the content of a DURABLE file.
type Durable struct {
	Next uint64
	Base uint64
	Pos  int64
}

// EncodeDurable returns the 32 bytes of DURABLE.
func EncodeDurable(d Durable) []byte {
	rest := binary.LittleEndian.AppendUint64(nil, d.Next)
	rest = binary.LittleEndian.AppendUint64(rest, d.Base)
	rest = binary.LittleEndian.AppendUint64(rest, uint64(d.Pos))
	b := binary.LittleEndian.AppendUint32([]byte("EVD1"), crc(rest))
	return append(b, rest...)
}

// DecodeDurable reads them back.
func DecodeDurable(b []byte) (Durable, error) {
	if len(b) != 32 || string(b[:4]) != "EVD1" || crc(b[8:]) != binary.LittleEndian.Uint32(b[4:]) {
		return Durable{}, errors.New("DURABLE is damaged")
	}
	d := Durable{
		Next: binary.LittleEndian.Uint64(b[8:]),
		Base: binary.LittleEndian.Uint64(b[16:]),
		Pos:  int64(binary.LittleEndian.Uint64(b[24:])),
	}
	if d.Pos < 0 { // no file is that large
		return Durable{}, errors.New("DURABLE has an impossible position")
	}
	return d, nil
}

// PutCRC writes the checksum of b into dst.
func PutCRC(dst, b []byte) { binary.LittleEndian.PutUint32(dst, crc(b)) }
