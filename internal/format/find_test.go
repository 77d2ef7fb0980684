package format

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// The search finds what trying every byte finds.
func TestFinder_AgreesWithTryingEveryByte(t *testing.T) {
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		file := damagedFile(rnd)
		s := NewFinder(bytes.NewReader(file), int64(len(file)))
		lowest := rnd.Uint64N(6)
		for from := int64(0); ; {
			want := firstRecord(file, from, lowest)
			got, found, err := s.Find(t.Context(), from, lowest)
			require.NoError(t, err)
			require.Equal(t, want, got, "seed %d, from %d", seed, from)
			require.Equal(t, want < int64(len(file)), found)
			if got == int64(len(file)) {
				break
			}
			from = got + 1
		}
	}
}

// damagedFile is records of all sizes, some damaged, with bytes in between
// that look like the start of a record.
func damagedFile(rnd *rand.Rand) []byte {
	var file []byte
	for offset := range uint64(12) {
		value := make([]byte, rnd.IntN(4*smallCandidate))
		for i := range value {
			value[i] = byte(rnd.Uint32())
		}
		start := len(file)
		file = Append(file, offset, int64(seedTime), 0, []byte("key"), value)
		switch rnd.IntN(4) {
		case 0: // damage
			file[start+rnd.IntN(len(file)-start)] ^= 1 << rnd.IntN(8)
		case 1: // a header that claims the bytes behind it
			fake := Append(nil, offset, 0, 0, nil, make([]byte, rnd.IntN(8*smallCandidate)))
			file = append(file, fake[:HeaderSize]...)
		case 2: // zeros
			file = append(file, make([]byte, rnd.IntN(40))...)
		}
	}
	return file
}

const seedTime = 1_600_000_000_000

func firstRecord(file []byte, from int64, lowest uint64) int64 {
	for pos := from; pos < int64(len(file)); pos++ {
		if _, err := Parse(file[pos:], lowest); err == nil {
			return pos
		}
	}
	return int64(len(file))
}

// Bytes of which nearly each one begins a plausible record of 16 MiB: taking
// each checksum by itself would be thousands of gigabytes.
func TestFinder_EndsOnBytesMadeToDelayIt(t *testing.T) {
	file := bytes.Repeat([]byte{1}, 16_843_009+8+200_000)
	record := Append(nil, 1<<60, seedTime, 0, nil, []byte("found"))
	at := len(file) - 1000
	copy(file[at:], record)
	s := NewFinder(bytes.NewReader(file), int64(len(file)))
	got, _, err := s.Find(t.Context(), 1, 0)
	require.NoError(t, err)
	require.Equal(t, int64(at), got)
}

func TestBlockSums(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 7))
	file := make([]byte, 20*minBlock)
	for i := range file {
		file[i] = byte(rnd.Uint32())
	}
	const start = 100
	s, err := newBlockSums(bytes.NewReader(file), int64(len(file)), start)
	require.NoError(t, err)
	for range 2000 {
		from := start + rnd.Int64N(int64(len(file))-start)
		to := from + rnd.Int64N(int64(len(file))-from+1)
		got, err := s.checksum(from, to)
		require.NoError(t, err)
		require.Equal(t, Checksum(file[from:to]), got, "[%d, %d)", from, to)
	}
}
