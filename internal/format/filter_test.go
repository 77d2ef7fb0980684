package format_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/internal/format"
)

// keyOf makes keys as applications do: a prefix and a number.
func keyOf(kind string, i int) []byte { return fmt.Appendf(nil, "%s-%d", kind, i) }

// makeFilter makes the filter of the keys 0 to n-1.
func makeFilter(n int) (format.FilterShape, [][]byte) {
	s := format.ShapeFor(uint64(n))
	s.ID = 7
	hashes := make([][]uint64, s.Blocks)
	for i := range n {
		h := format.KeyHash(keyOf("key", i))
		hashes[s.Block(h)] = append(hashes[s.Block(h)], h)
	}
	var maker format.FilterMaker
	var blocks [][]byte
	for _, h := range hashes {
		blocks = append(blocks, maker.AppendBlock(nil, s, h))
	}
	return s, blocks
}

func mayHold(t testing.TB, s format.FilterShape, blocks [][]byte, key []byte) bool {
	h := format.KeyHash(key)
	b, err := s.ParseFilterBlock(blocks[s.Block(h)])
	require.NoError(t, err)
	return b.MayHold(h)
}

// What FORMAT.md and the issue say of a filter: every key passes, at most 1.2
// bytes a key, and of other keys few pass.
func TestFilter_SizeAndRates(t *testing.T) {
	for _, n := range []int{1, 2, 10, 50, 84, 86, 100, 150, 200, 400, 1000, 3000, 3413, 3414, 5000, 20_000, 100_000} {
		s, blocks := makeFilter(n)
		for i := range n {
			if !mayHold(t, s, blocks, keyOf("key", i)) {
				t.Fatalf("%d keys: key %d does not pass", n, i)
			}
		}
		if n >= 85 {
			require.LessOrEqual(t, float64(s.Size()), 1.2*float64(n), "%d keys", n)
		} else {
			require.Equal(t, int64(102), s.Size(), "%d keys", n)
		}
		const others = 100_000
		passed := 0
		for i := range others {
			if mayHold(t, s, blocks, keyOf("other", i)) {
				passed++
			}
		}
		rate := 100 * float64(passed) / others
		t.Logf("%6d keys: %d blocks of %d bytes, %.3f bytes a key, %.3f %% of other keys pass",
			n, s.Blocks, s.BlockBytes, float64(s.Size())/float64(n), rate)
		switch {
		case n >= 200:
			require.Less(t, rate, 0.45)
			require.Greater(t, rate, 0.1, "too good to be true")
		default: // the header takes a larger share
			require.Less(t, rate, 1.7)
		}
	}
}

func TestFilter_NoKeys(t *testing.T) {
	require.Equal(t, format.FilterShape{There: true}, format.ShapeFor(0))
}

// A block that gets more keys than there is room for tells less, and never lies.
func TestFilter_Overfull(t *testing.T) {
	s := format.FilterShape{There: true, ID: 1, Blocks: 1, BlockBytes: 102}
	for _, n := range []int{85, 200, 600, 1000, 100_000} {
		var hashes []uint64
		for i := range n {
			hashes = append(hashes, format.KeyHash(keyOf("key", i)))
		}
		var maker format.FilterMaker
		b, err := s.ParseFilterBlock(maker.AppendBlock(nil, s, hashes))
		require.NoError(t, err)
		require.Equal(t, min(n, math.MaxUint16), b.Keys)
		for _, h := range hashes {
			require.True(t, b.MayHold(h))
		}
	}
}

func TestFilter_BlockIsDeterministic(t *testing.T) {
	s := format.ShapeFor(1000)
	var hashes []uint64
	for i := range 1000 {
		hashes = append(hashes, format.KeyHash(keyOf("key", i)))
	}
	var first, second format.FilterMaker
	want := first.AppendBlock(nil, s, hashes)
	second.AppendBlock(nil, format.ShapeFor(10), hashes[:10]) // used before
	require.Equal(t, want, second.AppendBlock(nil, s, hashes))
}

func TestFilter_HashBelongsToItsBlock(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2)) // the same ones each time: this is arithmetic
	for range 1000 {
		s := format.FilterShape{There: true, Blocks: 1 + rng.Uint32()>>rng.IntN(32)}
		i := rng.Uint32N(s.Blocks)
		first := s.FirstHash(i)
		require.Equal(t, i, s.Block(first))
		if i > 0 {
			require.Equal(t, i-1, s.Block(first-1))
		}
		require.Equal(t, s.Blocks-1, s.Block(math.MaxUint64))
	}
}

func TestFilter_DamageIsFound(t *testing.T) {
	s, blocks := makeFilter(200)
	good := blocks[0]
	_, err := s.ParseFilterBlock(good)
	require.NoError(t, err)
	for bit := range len(good) * 8 {
		b := slices.Clone(good)
		b[bit/8] ^= 1 << (bit % 8)
		_, err := s.ParseFilterBlock(b)
		require.ErrorIs(t, err, format.ErrIndex, "bit %d", bit)
	}
	for name, other := range map[string]format.FilterShape{
		"other filter": {There: true, ID: s.ID + 1, Blocks: s.Blocks, BlockBytes: s.BlockBytes},
		"other size":   {There: true, ID: s.ID, Blocks: s.Blocks, BlockBytes: s.BlockBytes - 1},
		"no filter":    {},
		"no blocks":    {There: true, ID: s.ID, BlockBytes: s.BlockBytes},
	} {
		_, err := other.ParseFilterBlock(good)
		require.ErrorIs(t, err, format.ErrIndex, name)
	}
	_, err = s.ParseFilterBlock(make([]byte, s.BlockBytes))
	require.ErrorIs(t, err, format.ErrIndex, "zeros")
	for _, columns := range []uint16{0, 17, 1000} {
		b := slices.Clone(good)
		binary.LittleEndian.PutUint16(b[8:], columns)
		binary.LittleEndian.PutUint32(b, format.Checksum(b[4:]))
		_, err = s.ParseFilterBlock(b)
		require.ErrorIs(t, err, format.ErrIndex, "%d columns", columns)
	}
}

// An index header with a filter encodes back; a shape that cannot be is no
// filter, and the rest of the index can still be used.
func TestFilter_InHeader(t *testing.T) {
	h := indexHeader()
	h.SetFilter(format.ShapeFor(5000))
	h.Keys = 5000
	require.NotZero(t, h.Filter.ID)
	b := format.EncodeIndex(h, indexEntries(1))
	h.Entries = 1
	got, _ := parseIndex(t, b)
	require.Equal(t, h, got)
	require.Equal(t, b[:format.IndexHeaderSize], format.EncodeIndexHeader(got))
	require.Equal(t, int64(len(b)), got.FilterBlockPos(0))
	require.Equal(t, int64(len(b))+3000, got.FilterBlockPos(1))

	other := h
	other.LastCRC++
	other.SetFilter(format.ShapeFor(5000))
	require.NotEqual(t, h.Filter.ID, other.Filter.ID, "of other contents")
	other = h
	other.SetFilter(format.ShapeFor(6000))
	require.NotEqual(t, h.Filter.ID, other.Filter.ID, "of another shape")
	other = h
	other.CleanedMS, other.End, other.ClosedMS = 1, 2, 3
	other.SetFilter(format.ShapeFor(5000))
	require.Equal(t, h.Filter.ID, other.Filter.ID, "facts may change without the filter")

	for name, change := range map[string]func(b []byte){
		"kind":        func(b []byte) { b[134] = 2 },
		"block size":  func(b []byte) { binary.LittleEndian.PutUint16(b[132:], 19) },
		"block size ": func(b []byte) { binary.LittleEndian.PutUint16(b[132:], 4097) },
	} {
		b := slices.Clone(b)
		change(b)
		binary.LittleEndian.PutUint32(b[4:], format.Checksum(b[8:format.IndexHeaderSize]))
		got, entries := parseIndex(t, b)
		require.False(t, got.Filter.There, name)
		require.Equal(t, indexEntries(1), entries)
	}
}

// FuzzFilterBlock asks arbitrary bytes as a block of any shape. With fix its
// checksum and id are right.
func FuzzFilterBlock(f *testing.F) {
	for _, n := range []int{1, 100, 4000} {
		s, blocks := makeFilter(n)
		f.Add(blocks[0], s.Blocks, uint64(1), false)
	}
	f.Add(make([]byte, 20), uint32(1), uint64(math.MaxUint64), true)
	f.Fuzz(func(t *testing.T, b []byte, blocks uint32, hash uint64, fix bool) {
		if len(b) > math.MaxUint16 {
			return
		}
		s := format.FilterShape{There: true, ID: 7, Blocks: blocks, BlockBytes: uint16(len(b))}
		if fix && len(b) >= 8 {
			b = slices.Clone(b)
			binary.LittleEndian.PutUint32(b[4:], s.ID)
			binary.LittleEndian.PutUint32(b, format.Checksum(b[4:]))
		}
		block, err := s.ParseFilterBlock(b)
		if err != nil {
			require.ErrorIs(t, err, format.ErrIndex)
			return
		}
		require.Equal(t, s.ID, binary.LittleEndian.Uint32(b[4:]))
		for _, h := range []uint64{0, 1, hash, math.MaxUint64, rand.Uint64()} {
			block.MayHold(h)
		}
		// All zeros pass everything.
		clear(b[format.FilterBlockHeader:])
		binary.LittleEndian.PutUint32(b, format.Checksum(b[4:]))
		block, err = s.ParseFilterBlock(b)
		require.NoError(t, err)
		require.True(t, block.MayHold(hash))
	})
}
