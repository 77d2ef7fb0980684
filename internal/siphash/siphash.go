// Package siphash is SipHash-2-4 with a result of 128 bits (Aumasson and
// Bernstein): a hash under a secret key. Who does not know the key cannot find
// two inputs with the same result any better than by chance.
package siphash

import (
	"crypto/rand"
	"encoding/binary"
	"math/bits"
)

// Key is the secret.
type Key struct{ k0, k1 uint64 }

// NewKey reads a key from its 16 bytes.
func NewKey(b *[16]byte) Key {
	return Key{binary.LittleEndian.Uint64(b[:8]), binary.LittleEndian.Uint64(b[8:])}
}

// RandomKey makes a key that nobody knows.
func RandomKey() Key {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return NewKey(&b)
}

// half is the one half of a round, twice of which the compiler inlines.
func half(a, b, c, d uint64, rb, rd int) (uint64, uint64, uint64, uint64) {
	a += b
	c += d
	b = bits.RotateLeft64(b, rb) ^ a
	d = bits.RotateLeft64(d, rd) ^ c
	return bits.RotateLeft64(a, 32), b, c, d
}

// Sum returns the two halves of b's hash.
func (k Key) Sum(b []byte) (lo, hi uint64) {
	v0, v1 := k.k0^0x736f6d6570736575, k.k1^0x646f72616e646f6d^0xee
	v2, v3 := k.k0^0x6c7967656e657261, k.k1^0x7465646279746573
	last := uint64(len(b)) << 56
	for more := true; more; {
		var m uint64
		if len(b) >= 8 {
			m = binary.LittleEndian.Uint64(b)
			b = b[8:]
		} else {
			for i, c := range b {
				last |= uint64(c) << (8 * i)
			}
			m, more = last, false
		}
		v3 ^= m
		v0, v1, v2, v3 = half(v0, v1, v2, v3, 13, 16)
		v2, v1, v0, v3 = half(v2, v1, v0, v3, 17, 21)
		v0, v1, v2, v3 = half(v0, v1, v2, v3, 13, 16)
		v2, v1, v0, v3 = half(v2, v1, v0, v3, 17, 21)
		v0 ^= m
	}
	v2 ^= 0xee
	for i := range 8 {
		if i == 4 {
			lo = v0 ^ v1 ^ v2 ^ v3
			v1 ^= 0xdd
		}
		v0, v1, v2, v3 = half(v0, v1, v2, v3, 13, 16)
		v2, v1, v0, v3 = half(v2, v1, v0, v3, 17, 21)
	}
	return lo, v0 ^ v1 ^ v2 ^ v3
}
