package evtest

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

// Count scales the number of rounds of a long test: full where EVLOG_SOAK is 1,
// a hundredth of it (but at least 1) by default.
func Count(full int) int {
	share := 0.01
	if s, err := strconv.ParseFloat(os.Getenv("EVLOG_SOAK"), 64); err == nil && s >= 0 {
		share = s
	}
	return max(1, int(float64(full)*share))
}

// Seeds calls f for a number of seeds, scaled by Count. They differ from run to
// run; each failure prints its own. EVLOG_SEED=N runs that one alone.
func Seeds(t *testing.T, full int, f func(t *testing.T, seed uint64)) {
	t.Helper()
	if seed, err := strconv.ParseUint(os.Getenv("EVLOG_SEED"), 10, 64); err == nil {
		f(t, seed)
		return
	}
	first := uint64(time.Now().UnixNano()) % 1_000_000_000
	n := Count(full)
	t.Logf("seeds %d to %d", first, first+uint64(n)-1)
	for seed := first; seed < first+uint64(n) && !t.Failed(); seed++ {
		func() {
			defer func() {
				if t.Failed() {
					t.Logf("run again with EVLOG_SEED=%d -run '^%s$'", seed, t.Name())
				}
			}()
			f(t, seed)
		}()
	}
}

// Seed returns EVLOG_SEED, or one that differs from run to run, and logs how to
// run again with it.
func Seed(t *testing.T) uint64 {
	t.Helper()
	seed, err := strconv.ParseUint(os.Getenv("EVLOG_SEED"), 10, 64)
	if err != nil {
		seed = uint64(time.Now().UnixNano()) % 1_000_000_000
	}
	t.Logf("run again with EVLOG_SEED=%d -run '^%s$'", seed, t.Name())
	return seed
}

// Rand returns the generator of a seed.
func Rand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0x65766c6f67)) }
