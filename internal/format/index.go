package format

import (
	"encoding/binary"
	"errors"
)

const (
	// IndexHeaderSize is the size of an index's header in bytes.
	IndexHeaderSize = 160
	// IndexEntrySize is the size of one entry in bytes.
	IndexEntrySize = 24
	// IndexBlockEntries is the number of entries in a full block.
	IndexBlockEntries = 170
	// IndexBlockSize is the distance between blocks in bytes.
	IndexBlockSize = 4096

	indexMagic       = "EVI1"
	indexBlockHeader = 8
)

// ErrIndex: the bytes are no index of this version, or a part of it is damaged.
var ErrIndex = errors.New("index is damaged")

// IndexEntry says where one record of the segment stands.
type IndexEntry struct {
	Offset uint64
	Pos    int64
	// MaxTimeMS is the highest time of the segment's records up to and
	// including this one.
	MaxTimeMS int64
}

// IndexHeader describes the segment that an index belongs to. An index is only
// believed where all of it up to LastCRC matches the segment.
type IndexHeader struct {
	Base        uint64
	LogSize     int64
	Records     uint64
	FirstOffset uint64
	FirstPos    int64
	LastOffset  uint64
	LastPos     int64
	FirstCRC    uint32
	LastCRC     uint32
	MaxTimeMS   int64
	MinTimeMS   int64
	Tombstones  uint64

	// Facts that are in no .log. Zero: not known, not yet, not claimed.
	ClosedMS  int64
	CleanedMS int64
	End       uint64

	Entries uint32 // number of entries

	Filter FilterShape
	Keys   uint64 // different keys that the filter was made from
}

// SetFilter takes the shape of a filter over, with an ID that no other filter of
// this segment has: it is made from what tells the segment's contents, and from
// the shape.
func (h *IndexHeader) SetFilter(s FilterShape) {
	var b [IndexHeaderSize]byte
	h.Filter = s
	h.put(b[:])
	h.Filter.ID = UpdateChecksum(Checksum(b[8:72]), b[128:136])
}

// EncodeIndex returns the content of an index, up to the blocks of its filter.
func EncodeIndex(h IndexHeader, entries []IndexEntry) []byte {
	h.Entries = uint32(len(entries))
	b := make([]byte, IndexHeaderSize, IndexHeaderSize+IndexEntriesSize(h.Entries))
	h.put(b)
	for len(entries) > 0 {
		n := min(len(entries), IndexBlockEntries)
		b = appendIndexBlock(b, entries[:n])
		entries = entries[n:]
	}
	return b
}

// EncodeIndexHeader returns the header alone. Entries must be set.
func EncodeIndexHeader(h IndexHeader) []byte {
	b := make([]byte, IndexHeaderSize)
	h.put(b)
	return b
}

// put writes the header into b, which is all zeros.
func (h *IndexHeader) put(b []byte) {
	copy(b, indexMagic)
	le := binary.LittleEndian
	le.PutUint64(b[8:], h.Base)
	le.PutUint64(b[16:], uint64(h.LogSize))
	le.PutUint64(b[24:], h.Records)
	le.PutUint64(b[32:], h.FirstOffset)
	le.PutUint64(b[40:], uint64(h.FirstPos))
	le.PutUint64(b[48:], h.LastOffset)
	le.PutUint64(b[56:], uint64(h.LastPos))
	le.PutUint32(b[64:], h.FirstCRC)
	le.PutUint32(b[68:], h.LastCRC)
	le.PutUint64(b[72:], uint64(h.MaxTimeMS))
	le.PutUint64(b[80:], uint64(h.MinTimeMS))
	le.PutUint64(b[88:], uint64(h.ClosedMS))
	le.PutUint64(b[96:], uint64(h.CleanedMS))
	le.PutUint64(b[104:], h.End)
	le.PutUint64(b[112:], h.Tombstones)
	le.PutUint32(b[120:], h.Entries)
	if h.Filter.There {
		le.PutUint32(b[124:], h.Filter.ID)
		le.PutUint32(b[128:], h.Filter.Blocks)
		le.PutUint16(b[132:], h.Filter.BlockBytes)
		le.PutUint16(b[134:], filterRibbon)
		le.PutUint64(b[136:], h.Keys)
	}
	le.PutUint32(b[4:], Checksum(b[8:IndexHeaderSize]))
}

func appendIndexBlock(b []byte, entries []IndexEntry) []byte {
	start := len(b)
	le := binary.LittleEndian
	b = le.AppendUint32(b, 0)
	b = le.AppendUint32(b, uint32(len(entries)))
	for _, e := range entries {
		b = le.AppendUint64(b, e.Offset)
		b = le.AppendUint64(b, uint64(e.Pos))
		b = le.AppendUint64(b, uint64(e.MaxTimeMS))
	}
	if len(entries) == IndexBlockEntries {
		b = append(b, make([]byte, IndexBlockSize-(len(b)-start))...)
	}
	le.PutUint32(b[start:], Checksum(b[start+4:]))
	return b
}

// IndexEntriesSize is the number of bytes that n entries take behind the header.
func IndexEntriesSize(n uint32) int64 {
	size := int64(n/IndexBlockEntries) * IndexBlockSize
	if rest := n % IndexBlockEntries; rest > 0 {
		size += indexBlockHeader + int64(rest)*IndexEntrySize
	}
	return size
}

// ParseIndexHeader reads and checks the header of an index.
func ParseIndexHeader(b []byte) (IndexHeader, error) {
	le := binary.LittleEndian
	if len(b) < IndexHeaderSize || string(b[:4]) != indexMagic {
		return IndexHeader{}, ErrIndex
	}
	b = b[:IndexHeaderSize]
	if le.Uint32(b[4:]) != Checksum(b[8:]) {
		return IndexHeader{}, ErrIndex
	}
	h := IndexHeader{
		Base:        le.Uint64(b[8:]),
		LogSize:     int64(le.Uint64(b[16:])),
		Records:     le.Uint64(b[24:]),
		FirstOffset: le.Uint64(b[32:]),
		FirstPos:    int64(le.Uint64(b[40:])),
		LastOffset:  le.Uint64(b[48:]),
		LastPos:     int64(le.Uint64(b[56:])),
		FirstCRC:    le.Uint32(b[64:]),
		LastCRC:     le.Uint32(b[68:]),
		MaxTimeMS:   int64(le.Uint64(b[72:])),
		MinTimeMS:   int64(le.Uint64(b[80:])),
		ClosedMS:    int64(le.Uint64(b[88:])),
		CleanedMS:   int64(le.Uint64(b[96:])),
		End:         le.Uint64(b[104:]),
		Tombstones:  le.Uint64(b[112:]),
		Entries:     le.Uint32(b[120:]),
	}
	if le.Uint16(b[134:]) == filterRibbon {
		h.Filter = FilterShape{
			There: true, ID: le.Uint32(b[124:]), Blocks: le.Uint32(b[128:]), BlockBytes: le.Uint16(b[132:]),
		}
		h.Keys = le.Uint64(b[136:])
		if !h.Filter.valid() {
			h.Filter = FilterShape{} // entries can still be used
		}
	}
	if h.LogSize < 0 || h.FirstPos < 0 || h.LastPos < 0 || h.LastPos > h.LogSize {
		return IndexHeader{}, ErrIndex
	}
	return h, nil
}

// IndexBlocks is the number of blocks that the header's entries fill.
func (h IndexHeader) IndexBlocks() int {
	return int((int64(h.Entries) + IndexBlockEntries - 1) / IndexBlockEntries)
}

// IndexBlockRange says where block i stands in the index.
func (h IndexHeader) IndexBlockRange(i int) (pos int64, size int) {
	pos = IndexHeaderSize + int64(i)*IndexBlockSize
	if rest := int(h.Entries) - i*IndexBlockEntries; rest < IndexBlockEntries {
		return pos, indexBlockHeader + rest*IndexEntrySize
	}
	return pos, IndexBlockSize
}

// FilterBlockPos says where block i of the filter stands in the index.
func (h IndexHeader) FilterBlockPos(i uint32) int64 {
	return IndexHeaderSize + IndexEntriesSize(h.Entries) + int64(i)*int64(h.Filter.BlockBytes)
}

// ParseIndexBlock checks the bytes of one block and appends its entries to dst.
func ParseIndexBlock(dst []IndexEntry, b []byte) ([]IndexEntry, error) {
	le := binary.LittleEndian
	if len(b) < indexBlockHeader || len(b) > IndexBlockSize || le.Uint32(b) != Checksum(b[4:]) {
		return dst, ErrIndex
	}
	n := int(le.Uint32(b[4:]))
	if n > IndexBlockEntries || indexBlockHeader+n*IndexEntrySize > len(b) {
		return dst, ErrIndex
	}
	for i := range n {
		dst = append(dst, parseIndexEntry(b[indexBlockHeader+i*IndexEntrySize:]))
	}
	return dst, nil
}

// FirstEntryPos says where the first entry of block i stands, for a binary
// search that reads one entry a step.
func FirstEntryPos(i int) int64 {
	return IndexHeaderSize + int64(i)*IndexBlockSize + indexBlockHeader
}

// ParseIndexEntry reads one entry. Nothing is checked: the block's checksum is
// what makes an entry credible.
func ParseIndexEntry(b *[IndexEntrySize]byte) IndexEntry { return parseIndexEntry(b[:]) }

func parseIndexEntry(b []byte) IndexEntry {
	le := binary.LittleEndian
	return IndexEntry{
		Offset:    le.Uint64(b[0:]),
		Pos:       int64(le.Uint64(b[8:])),
		MaxTimeMS: int64(le.Uint64(b[16:])),
	}
}
