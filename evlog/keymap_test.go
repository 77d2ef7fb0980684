package evlog

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Hashes come out in order, each of them, however they are distributed.
func TestSortHashes_IsSorting(t *testing.T) {
	rng := rand.New(rand.NewPCG(rand.Uint64(), 1))
	for _, n := range []int{1, 2, 64, 65, 1000, 50_000} {
		for name, hash := range map[string]func() uint64{
			"anywhere":                 rng.Uint64,
			"a few different ones":     func() uint64 { return rng.Uint64N(3) << 40 },
			"all in their lowest byte": func() uint64 { return rng.Uint64N(256) },
			"all the same":             func() uint64 { return 1<<63 + 5 },
		} {
			a := make([]uint64, n)
			for i := range a {
				a[i] = hash()
			}
			want := slices.Sorted(slices.Values(a))
			sortHashes(a, 64)
			require.Equal(t, want, a, "%d, %s", n, name)
		}
	}
}

// The count agrees with a look at each record, wherever a range begins and ends.
func TestDropSet_Count(t *testing.T) {
	rng := rand.New(rand.NewPCG(rand.Uint64(), 2))
	for range 2000 {
		d := make(dropSet, 5)
		for i := range d {
			d[i] = []uint64{0, ^uint64(0), rng.Uint64()}[rng.IntN(3)]
		}
		first := rng.Uint64N(d.room())
		n := rng.Uint64N(d.room() - first + 1)
		going := uint64(0)
		for i := range n {
			if d.has(first + i) {
				going++
			}
		}
		require.Equal(t, going, d.count(first, n), "%x from %d, %d", d, first, n)
	}
}
