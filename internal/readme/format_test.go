package readme

import (
	"encoding/hex"
	"fmt"
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
	require.Equal(t, format.Header{Length: 31, CRC: 0x55ef5c14, Offset: 42, TimeMS: 1758337200123, Schema: 1, KeyLen: 6}, h)
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
	require.Equal(t, format.IndexHeader{
		Base: 42, LogSize: int64(len(all["record"])), Records: 1,
		FirstOffset: 42, LastOffset: 42, FirstCRC: 0x55ef5c14, LastCRC: 0x55ef5c14,
		MaxTimeMS: at, MinTimeMS: at, ClosedMS: 1758337260000, End: 43, Entries: 1,
	}, h)
	require.Equal(t, 1, h.IndexBlocks())
	pos, size := h.IndexBlockRange(0)
	require.Equal(t, len(raw), int(pos)+size)
	entries, err := format.ParseIndexBlock(nil, raw[pos:])
	require.NoError(t, err)
	require.Equal(t, []format.IndexEntry{{Offset: 42, Pos: 0, MaxTimeMS: at}}, entries)
	require.Equal(t, raw, format.EncodeIndex(h, entries))
	require.Equal(t, uint32(0xc13f1ede), format.Checksum(raw[0xa4:]))
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
	require.Equal(t, make([]byte, 36), raw[124:160], "reserved")
	got, err := format.ParseIndexBlock(nil, raw[160+4096:])
	require.NoError(t, err)
	require.Equal(t, entries[170:], got)
}
