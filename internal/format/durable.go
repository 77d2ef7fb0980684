package format

import (
	"encoding/binary"
	"errors"
)

// DurableSize is the size of DURABLE in bytes.
const DurableSize = 32

const durableMagic = "EVD1"

// ErrDurable: the bytes are no DURABLE of this version.
var ErrDurable = errors.New("DURABLE is damaged")

// Durable is the published durable position: every record below NextOffset has
// been synced, and the next one goes to byte Position of segment Base.
type Durable struct {
	NextOffset uint64
	Base       uint64
	Position   int64
}

// Encode writes d into b.
func (d Durable) Encode(b *[DurableSize]byte) {
	copy(b[:], durableMagic)
	binary.LittleEndian.PutUint64(b[8:], d.NextOffset)
	binary.LittleEndian.PutUint64(b[16:], d.Base)
	binary.LittleEndian.PutUint64(b[24:], uint64(d.Position))
	binary.LittleEndian.PutUint32(b[4:], Checksum(b[8:]))
}

// ParseDurable reads and checks the content of DURABLE.
func ParseDurable(b []byte) (Durable, error) {
	if len(b) != DurableSize || string(b[:4]) != durableMagic ||
		binary.LittleEndian.Uint32(b[4:]) != Checksum(b[8:]) {
		return Durable{}, ErrDurable
	}
	d := Durable{
		NextOffset: binary.LittleEndian.Uint64(b[8:]),
		Base:       binary.LittleEndian.Uint64(b[16:]),
		Position:   int64(binary.LittleEndian.Uint64(b[24:])),
	}
	if d.Position < 0 {
		return Durable{}, ErrDurable
	}
	return d, nil
}
