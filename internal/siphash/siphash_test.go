package siphash

import (
	"encoding/binary"
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"
)

// The authors' test vectors: key 00 01 .. 0f, input 00 01 .. of each length.
func TestSum_Vectors(t *testing.T) {
	var kb [16]byte
	input := make([]byte, 64)
	for i := range input {
		input[i] = byte(i)
	}
	copy(kb[:], input)
	k := NewKey(&kb)
	for n, want := range map[int]string{
		0: "a3817f04ba25a8e66df67214c7550293",
		1: "da87c1d86b99af44347659119b22fc45",
	} {
		lo, hi := k.Sum(input[:n])
		got := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, lo), hi)
		require.Equal(t, want, hex.EncodeToString(got), "%d bytes", n)
	}
}

// Every length and every bit counts, in the input and in the key.
func TestSum_EveryBitCounts(t *testing.T) {
	k := RandomKey()
	seen := map[[2]uint64]string{}
	note := func(k Key, b []byte, what string) {
		lo, hi := k.Sum(b)
		require.NotContains(t, seen, [2]uint64{lo, hi}, "%s", what)
		seen[[2]uint64{lo, hi}] = what
	}
	for n := range 40 {
		b := make([]byte, n)
		note(k, b, "zeros")
		for i := range 8 * n {
			b[i/8] ^= 1 << (i % 8)
			note(k, b, "a bit")
			b[i/8] ^= 1 << (i % 8)
		}
	}
	for i := range 64 {
		note(Key{k.k0 ^ 1<<i, k.k1}, []byte("key"), "the key's first half")
		note(Key{k.k0, k.k1 ^ 1<<i}, []byte("key"), "its second half")
	}
	require.NotEqual(t, RandomKey(), RandomKey())
}

func BenchmarkSum(b *testing.B) {
	k := RandomKey()
	key := []byte("key-000000000042")
	b.ReportAllocs()
	for b.Loop() {
		k.Sum(key)
	}
}
