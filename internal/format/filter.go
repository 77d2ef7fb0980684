package format

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
)

const (
	// FilterBlockSize is the size of the largest block of a key filter.
	FilterBlockSize = 4096
	// FilterBlockHeader is the part of a block before its columns.
	FilterBlockHeader = 12

	// filterRibbon is the only kind of filter there is.
	filterRibbon = 1
	// filterWindow is how many slots of a column a key looks at.
	filterWindow = 64
	// maxFilterColumns is the highest number of columns in a block.
	maxFilterColumns = 16
	// minFilterColumn is the least length of a column in bytes.
	minFilterColumn = filterWindow / 8
)

// FilterShape says how the blocks of a segment's key filter look. The zero value
// stands for no filter.
type FilterShape struct {
	There      bool
	ID         uint32 // repeated by each block
	Blocks     uint32 // 0: no record has a key
	BlockBytes uint16 // the size of each
}

func (s FilterShape) valid() bool {
	return s.Blocks == 0 || s.BlockBytes >= FilterBlockHeader+minFilterColumn && s.BlockBytes <= FilterBlockSize
}

// Size is the size of all blocks together.
func (s FilterShape) Size() int64 { return int64(s.Blocks) * int64(s.BlockBytes) }

// Block returns the number of the block that a hash belongs to. There is one.
func (s FilterShape) Block(hash uint64) uint32 {
	block, _ := bits.Mul64(hash, uint64(s.Blocks))
	return uint32(block)
}

// FirstHash returns the lowest hash that belongs to block i.
func (s FilterShape) FirstHash(i uint32) uint64 {
	hash, rest := bits.Div64(uint64(i), 0, uint64(s.Blocks))
	if rest > 0 {
		hash++
	}
	return hash
}

// KeyHash is the hash of a key for the filter: 64-bit FNV-1a, and behind it the
// finalizer of MurmurHash3, since the high bits decide most.
func KeyHash(key []byte) uint64 {
	h := uint64(0xcbf29ce484222325)
	for _, b := range key {
		h = (h ^ uint64(b)) * 0x100000001b3
	}
	return mix(h)
}

func mix(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// FilterBlock is a block that was checked.
type FilterBlock struct {
	blocks  uint64 // in the filter
	columns []byte // one behind the other
	size    int    // of a column in bytes
	Columns int
	Keys    int // how many different ones it was made from, 65,535 standing for more
}

// ParseFilterBlock checks the bytes of one block. A damaged one, or one of
// another filter, is ErrIndex.
func (s FilterShape) ParseFilterBlock(b []byte) (FilterBlock, error) {
	le := binary.LittleEndian
	if !s.There || s.Blocks == 0 || !s.valid() || len(b) != int(s.BlockBytes) ||
		le.Uint32(b) != Checksum(b[4:]) || le.Uint32(b[4:]) != s.ID {
		return FilterBlock{}, ErrIndex
	}
	f := FilterBlock{blocks: uint64(s.Blocks), columns: b[FilterBlockHeader:], Columns: int(le.Uint16(b[8:])), Keys: int(le.Uint16(b[10:]))}
	if f.Columns == 0 || f.Columns > maxFilterColumns {
		return FilterBlock{}, ErrIndex
	}
	if f.size = len(f.columns) / f.Columns; f.size < minFilterColumn {
		return FilterBlock{}, ErrIndex
	}
	return f, nil
}

// MayHold reports whether the segment may hold a record whose key has this
// hash, of which this is the block.
func (f FilterBlock) MayHold(hash uint64) bool {
	return f.mayHold(placeOf(hash, f.blocks, f.size))
}

func (f FilterBlock) mayHold(start int, mask uint64) bool {
	for c := range f.Columns {
		column := f.columns[c*f.size : (c+1)*f.size]
		if bits.OnesCount64(window(column, start)&mask)%2 != 0 {
			return false
		}
	}
	return true
}

// placeOf says at which slot of a column of size bytes a hash's window begins,
// and which slots of the window count.
func placeOf(hash, blocks uint64, size int) (start int, mask uint64) {
	_, rest := bits.Mul64(hash, blocks)
	at, _ := bits.Mul64(rest, uint64(size)*8-filterWindow+1)
	return int(at), hash*0x9e3779b97f4a7c15 | 1
}

// window returns the 64 slots of a column from start on.
func window(column []byte, start int) uint64 {
	at, shift := start/8, start%8
	w := binary.LittleEndian.Uint64(column[at:]) >> shift
	if shift > 0 {
		w |= uint64(column[at+8]) << (64 - shift)
	}
	return w
}

// FilterMaker makes the blocks of key filters. The zero value is ready to use.
//
// A block is a homogeneous ribbon filter (Dillinger and Walzer, 2021). Each key
// is an equation over GF(2): the slots of its window that count add up to 0.
// Every column is a solution of all of them, made from random bits where there
// is a choice. A key that is none of them meets with zeros by chance, in each
// column with a probability of one half.
type FilterMaker struct {
	rows []uint64 // echelon form: the equation that begins at this slot, 0: none
}

const (
	// filterBytesPerKey is what a key may take in the filter, block headers
	// included.
	filterBytesPerKey = 1.2
	// filterTrials is how many places a block is tested with.
	filterTrials = 4096
	// filterMaxColumns is the number of columns where there is room.
	filterMaxColumns = 9
)

// ShapeFor returns the shape of a filter for so many different keys, without an
// ID. A few keys take more than their share: a block has a least size.
func ShapeFor(keys uint64) FilterShape {
	if keys == 0 {
		return FilterShape{There: true}
	}
	room := float64(keys) * filterBytesPerKey
	blocks := math.Ceil(room / FilterBlockSize)
	// 80 slots for the fewest: a window, and where it can begin.
	least := float64(FilterBlockHeader + filterMaxColumns*(minFilterColumn+2))
	return FilterShape{
		There: true, Blocks: uint32(min(blocks, math.MaxUint32)),
		BlockBytes: uint16(min(max(math.Floor(room/blocks), least), FilterBlockSize)),
	}
}

// AppendBlock appends the block for the hashes, which all belong to it and are
// different, to dst. Where there are too many of them for its columns, so that
// there is too little choice left to tell other keys from them, it gets fewer and
// longer ones.
func (m *FilterMaker) AppendBlock(dst []byte, s FilterShape, hashes []uint64) []byte {
	from := len(dst)
	dst = append(dst, make([]byte, s.BlockBytes)...)
	b := dst[from:]
	columns := m.fill(b[FilterBlockHeader:], uint64(s.Blocks), hashes)
	le := binary.LittleEndian
	le.PutUint32(b[4:], s.ID)
	le.PutUint16(b[8:], uint16(columns))
	le.PutUint16(b[10:], uint16(min(len(hashes), math.MaxUint16)))
	le.PutUint32(b, Checksum(b[4:]))
	return dst
}

// fill makes the columns and returns how many there are.
func (m *FilterMaker) fill(b []byte, blocks uint64, hashes []uint64) (columns int) {
	for columns = filterMaxColumns; ; columns-- {
		size := len(b) / columns
		if len(hashes) >= size*8 && columns > 1 {
			continue
		}
		m.rows = slices.Grow(m.rows[:0], size*8)[:size*8]
		clear(m.rows)
		for _, h := range hashes {
			m.insert(placeOf(h, blocks, size))
		}
		clear(b)
		m.solve(b, size, columns)
		if columns == 1 || tells(FilterBlock{columns: b, size: size, Columns: columns}) {
			return columns
		}
	}
}

// tells reports whether no more than twice as many of other keys pass as must.
func tells(f FilterBlock) bool {
	passed := 0
	for i := range uint64(filterTrials) {
		if r := mix(i + 1); f.mayHold(int(r>>33)%(f.size*8-filterWindow+1), mix(^r)|1) {
			passed++
		}
	}
	return passed <= 2*filterTrials>>f.Columns
}

// insert adds the equation that the slots start+i with bit i of mask, of which
// bit 0 is set, add up to 0. One that follows from the others vanishes.
func (m *FilterMaker) insert(start int, mask uint64) {
	for m.rows[start] != 0 {
		mask ^= m.rows[start]
		if mask == 0 {
			return
		}
		n := bits.TrailingZeros64(mask)
		start, mask = start+n, mask>>n
	}
	m.rows[start] = mask
}

// solve fills the columns from the last slot to the first. A slot at which no
// equation begins gets random bits, the same ones each time.
func (m *FilterMaker) solve(b []byte, size, columns int) {
	var behind [maxFilterColumns]uint64 // the 64 slots behind the one at hand
	random := uint64(0)
	for slot := size*8 - 1; slot >= 0; slot-- {
		row := m.rows[slot]
		free := uint64(0)
		if row == 0 {
			random += 0x9e3779b97f4a7c15
			free = mix(random)
		}
		for c := range columns {
			bit := free >> c & 1
			if row != 0 {
				bit = uint64(bits.OnesCount64(behind[c]&(row>>1))) & 1
			}
			behind[c] = behind[c]<<1 | bit
		}
		if slot%8 == 0 {
			for c := range columns {
				b[c*size+slot/8] = byte(behind[c])
			}
		}
	}
}
