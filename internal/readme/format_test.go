package readme

import (
	"encoding/hex"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/internal/format"
)

// dumps returns the bytes of docs/FORMAT.md's hex dumps by their names.
func dumps(t *testing.T) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for _, b := range blocks(t, "docs/FORMAT.md") {
		name, ok := strings.CutPrefix(b.note, "hex: ")
		if !ok {
			continue
		}
		var raw []byte
		for line := range strings.Lines(b.text) {
			digits, _, _ := strings.Cut(line[8:], "|")
			part, err := hex.DecodeString(strings.Join(strings.Fields(digits), ""))
			require.NoError(t, err, "docs/FORMAT.md:%d", b.line)
			raw = append(raw, part...)
		}
		require.Equal(t, hex.Dump(raw), b.text, "docs/FORMAT.md:%d is a canonical dump", b.line)
		all[name] = raw
	}
	return all
}

func TestFormatPage_Record(t *testing.T) {
	raw := dumps(t)["record"]
	h, err := format.Parse(raw, 42)
	require.NoError(t, err)
	require.Equal(t, int64(len(raw)), h.Size())
	require.Equal(t, format.Header{
		Frame:  format.Frame{Length: 31, CRC: 0x55ef5c14},
		Offset: 42, TimeMS: 1758337200123,
		Meta: format.Meta{Schema: 1, KeyLen: 6},
	}, h)
	require.Equal(t, "doc:42", string(h.Key(raw)))
	require.Equal(t, "hello", string(h.Value(raw)))
	require.Equal(t, raw, format.Append(nil, 42, 1758337200123, 1, []byte("doc:42"), []byte("hello")))
}

func TestFormatPage_Durable(t *testing.T) {
	raw := dumps(t)["durable"]
	d, err := format.ParseDurable(raw)
	require.NoError(t, err)
	require.Equal(t, format.Durable{NextOffset: 43, Base: 40, Position: 117}, d)
	var again [format.DurableSize]byte
	d.Encode(&again)
	require.Equal(t, raw, again[:])
}

func TestFormatPage_Index(t *testing.T) {
	all := dumps(t)
	raw := all["index"]
	h, err := format.ParseIndexHeader(raw)
	require.NoError(t, err)
	const at = 1758337200123
	shape := format.FilterShape{There: true, ID: 0x8a71fe8e, Blocks: 1, BlockBytes: 102}
	require.Equal(t, format.IndexHeader{
		Base: 42, LogSize: int64(len(all["record"])), Records: 1,
		FirstOffset: 42, LastOffset: 42, FirstCRC: 0x55ef5c14, LastCRC: 0x55ef5c14,
		MaxTimeMS: at, MinTimeMS: at, ClosedMS: 1758337260000, End: 43, Entries: 1,
		Filter: shape, Keys: 1,
	}, h)
	require.Equal(t, 1, h.IndexBlocks())
	pos, size := h.IndexBlockRange(0)
	filter := int(pos) + size
	require.Equal(t, 0xc0, filter)
	require.Equal(t, int64(filter), h.FilterBlockPos(0))
	entries, err := format.ParseIndexBlock(nil, raw[pos:filter])
	require.NoError(t, err)
	require.Equal(t, []format.IndexEntry{{Offset: 42, Pos: 0, MaxTimeMS: at}}, entries)
	require.Equal(t, raw[:filter], format.EncodeIndex(h, entries))
	require.Equal(t, uint32(0xc13f1ede), format.Checksum(raw[0xa4:filter]))

	block, err := shape.ParseFilterBlock(raw[filter:])
	require.NoError(t, err)
	require.Equal(t, 9, block.Columns)
	require.Equal(t, 1, block.Keys)
	require.Equal(t, uint64(0x8689e5ac2f8e5a08), format.KeyHash([]byte("doc:42")))
	require.Equal(t, uint64(0xd82b45620e24f0ea), format.KeyHash([]byte("doc:43")))
	require.True(t, block.MayHold(format.KeyHash([]byte("doc:42"))))
	require.False(t, block.MayHold(format.KeyHash([]byte("doc:43"))))
	var maker format.FilterMaker
	require.Equal(t, raw[filter:], maker.AppendBlock(nil, shape, []uint64{format.KeyHash([]byte("doc:42"))}))
	h.SetFilter(format.ShapeFor(1))
	require.Equal(t, shape, h.Filter, "filter_id is made as the page says")
}

// The steps of the page, written once more from its words, give the numbers in
// its text.
func TestFormatPage_FilterSteps(t *testing.T) {
	block := dumps(t)["index"][0xc0:]
	for _, c := range []struct {
		key              string
		hash, mask, left uint64 // left: of the first column's window
		start            int
		may              bool
	}{
		{"doc:42", 0x8689e5ac2f8e5a08, 0x921173c0d89942a9, 0x02112340400802a0, 8, true},
		{"doc:43", 0xd82b45620e24f0ea, 0x415b4d30c75d1b33, 0x0018440041051213, 14, false},
	} {
		high := func(a, b uint64) uint64 { hi, _ := bits.Mul64(a, b); return hi }
		h := uint64(0xcbf29ce484222325)
		for i := range len(c.key) {
			h ^= uint64(c.key[i])
			h *= 0x100000001b3
		}
		h ^= h >> 33
		h *= 0xff51afd7ed558ccd
		h ^= h >> 33
		h *= 0xc4ceb9fe1a85ec53
		h ^= h >> 33
		require.Equal(t, c.hash, h)
		const blocks, columns, size = 1, 9, (102 - 12) / 9
		require.Zero(t, high(h, blocks))
		start := int(high(h*blocks, 8*size-63))
		require.Equal(t, c.start, start)
		mask := h*0x9e3779b97f4a7c15 | 1
		require.Equal(t, c.mask, mask)
		may := true
		for col := range columns {
			column := block[12+col*size:][:size]
			w := uint64(0)
			for i := range 64 {
				n := start + i
				w |= uint64(column[n/8]>>(n%8)&1) << i
			}
			if col == 0 {
				require.Equal(t, c.left, w&mask)
			}
			may = may && bits.OnesCount64(w&mask)%2 == 0
		}
		require.Equal(t, c.may, may)
	}
}

// Where each field stands, and the numbers in the text, are what the code does.
func TestFormatPage_Tables(t *testing.T) {
	require.Equal(t, uint32(0xE3069283), format.Checksum([]byte("123456789")))
	page, err := os.ReadFile(filepath.Join(root, "docs", "FORMAT.md"))
	require.NoError(t, err)
	for _, want := range []string{
		fmt.Sprintf("The header, %d bytes:", format.IndexHeaderSize),
		fmt.Sprintf("An entry, %d bytes:", format.IndexEntrySize),
		fmt.Sprintf("Entries stand in blocks of %d. Block i starts at byte %d + %d·i:",
			format.IndexBlockEntries, format.IndexHeaderSize, format.IndexBlockSize),
		fmt.Sprintf("%d bytes:\n\n| at | size | type | field | meaning |\n|---:|-----:|------|-------|---------|\n| 0 | 4 | bytes | magic | `EVD1` |", format.DurableSize),
		"| key | 65,535 bytes |",
	} {
		require.Contains(t, string(page), want)
	}
	require.Equal(t, 65535, format.MaxKey)
	require.Equal(t, 1<<30, format.MaxLength)

	// A full block and one more entry: the second block starts where the page says.
	entries := make([]format.IndexEntry, format.IndexBlockEntries+1)
	for i := range entries {
		entries[i] = format.IndexEntry{Offset: uint64(i), Pos: int64(100 * i), MaxTimeMS: int64(i)}
	}
	raw := format.EncodeIndex(format.IndexHeader{}, entries)
	require.Len(t, raw, 160+4096+8+24)
	require.Equal(t, make([]byte, 8), raw[160+4088:160+4096], "padding")
	require.Equal(t, make([]byte, 36), raw[124:160], "no filter, and reserved")
	got, err := format.ParseIndexBlock(nil, raw[160+4096:])
	require.NoError(t, err)
	require.Equal(t, entries[170:], got)
}
