package format_test

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/internal/format"
)

func indexHeader() format.IndexHeader {
	return format.IndexHeader{
		Base: 1, LogSize: 2, Records: 3, FirstOffset: 4, FirstPos: 0, LastOffset: 6, LastPos: 1,
		FirstCRC: 8, LastCRC: 9, MaxTimeMS: -10, MinTimeMS: math.MinInt64, Tombstones: 12,
		ClosedMS: 13, CleanedMS: 14, End: math.MaxUint64,
	}
}

func indexEntries(n int) []format.IndexEntry {
	entries := make([]format.IndexEntry, n)
	for i := range entries {
		entries[i] = format.IndexEntry{Offset: uint64(i) << 33, Pos: int64(i) * 100, MaxTimeMS: int64(i) - 5}
	}
	return entries
}

func parseIndex(t testing.TB, b []byte) (format.IndexHeader, []format.IndexEntry) {
	t.Helper()
	h, err := format.ParseIndexHeader(b)
	require.NoError(t, err)
	var entries []format.IndexEntry
	for i := range h.IndexBlocks() {
		pos, size := h.IndexBlockRange(i)
		require.LessOrEqual(t, pos+int64(size), int64(len(b)))
		entries, err = format.ParseIndexBlock(entries, b[pos:pos+int64(size)])
		require.NoError(t, err)
	}
	return h, entries
}

func TestIndex_GoldenBytes(t *testing.T) {
	h := indexHeader()
	got := format.EncodeIndex(h, []format.IndexEntry{{Offset: 4, Pos: 0, MaxTimeMS: -10}})
	want := unhex(t, `45564931 247fd3fe
		0100000000000000 0200000000000000 0300000000000000 0400000000000000
		0000000000000000 0600000000000000 0100000000000000 08000000 09000000
		f6ffffffffffffff 0000000000000080 0d00000000000000 0e00000000000000
		ffffffffffffffff 0c00000000000000 01000000
		00000000 0000000000000000 0000000000000000 0000000000000000 0000000000000000
		372b7378 01000000 0400000000000000 0000000000000000 f6ffffffffffffff`)
	require.Equal(t, want, got)
}

func TestIndex_EncodesBack(t *testing.T) {
	for _, n := range []int{0, 1, 2, 169, 170, 171, 339, 340, 341, 1000} {
		h := indexHeader()
		want := indexEntries(n)
		b := format.EncodeIndex(h, want)
		require.EqualValues(t, format.IndexHeaderSize+format.IndexEntriesSize(uint32(n)), len(b), "%d entries", n)
		gotHeader, got := parseIndex(t, b)
		h.Entries = uint32(n)
		require.Equal(t, h, gotHeader)
		require.Len(t, got, n)
		for i := range got {
			require.Equal(t, want[i], got[i])
		}
		for i := range gotHeader.IndexBlocks() {
			var e [format.IndexEntrySize]byte
			copy(e[:], b[format.FirstEntryPos(i):])
			require.Equal(t, want[i*format.IndexBlockEntries], format.ParseIndexEntry(&e))
		}
	}
}

func TestIndex_SeesDamage(t *testing.T) {
	b := format.EncodeIndex(indexHeader(), indexEntries(3))
	h, _ := parseIndex(t, b)
	pos, size := h.IndexBlockRange(0)
	for bit := range len(b) * 8 {
		bad := append([]byte(nil), b...)
		bad[bit/8] ^= 1 << (bit % 8)
		_, err := format.ParseIndexHeader(bad)
		if int64(bit/8) >= pos {
			require.NoError(t, err)
			_, err = format.ParseIndexBlock(nil, bad[pos:pos+int64(size)])
		}
		require.ErrorIs(t, err, format.ErrIndex, "bit %d", bit)
	}
}

// fixIndexCRC makes damaged bytes look right, so that a fuzzer gets behind the
// checksum.
func fixIndexCRC(b []byte) {
	if len(b) >= format.IndexHeaderSize {
		binary.LittleEndian.PutUint32(b[4:], format.Checksum(b[8:format.IndexHeaderSize]))
	}
}

func FuzzIndex(f *testing.F) {
	f.Add(format.EncodeIndex(indexHeader(), nil), true)
	f.Add(format.EncodeIndex(indexHeader(), indexEntries(2)), false)
	f.Add(format.EncodeIndex(indexHeader(), indexEntries(200)), true)
	f.Fuzz(func(t *testing.T, b []byte, fix bool) {
		if fix {
			fixIndexCRC(b)
		}
		h, err := format.ParseIndexHeader(b)
		if err != nil {
			return
		}
		require.GreaterOrEqual(t, h.LogSize, int64(0))
		var entries []format.IndexEntry
		for i := range min(h.IndexBlocks(), 10) {
			pos, size := h.IndexBlockRange(i)
			require.Positive(t, size)
			require.LessOrEqual(t, size, format.IndexBlockSize)
			if pos+int64(size) > int64(len(b)) {
				return
			}
			entries, err = format.ParseIndexBlock(entries, b[pos:pos+int64(size)])
			if err != nil {
				return
			}
		}
		require.LessOrEqual(t, len(entries), 10*format.IndexBlockEntries)
	})
}
