package main

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var noon = time.UnixMilli(1_700_000_000_000)

func (c *clock) next(now time.Time, peer string) stamp {
	ms, n := c.tick(now)
	return stamp{ms, n, peer}
}

func TestClock_FollowsTheWallClock(t *testing.T) {
	var c clock
	require.Equal(t, "1700000000000.0000.ada", c.next(noon, "ada").String())
	require.Equal(t, "1700000000001.0000.ada", c.next(noon.Add(time.Millisecond), "ada").String())
}

func TestClock_CountsWhereTheWallClockStandsStill(t *testing.T) {
	var c clock
	c.next(noon, "ada")
	require.Equal(t, "1700000000000.0001.ada", c.next(noon, "ada").String())
	require.Equal(t, "1700000000000.0002.ada", c.next(noon.Add(999*time.Microsecond), "ada").String())
}

func TestClock_WallClockJumpsBack(t *testing.T) {
	var c clock
	before := c.next(noon, "ada")
	for range 3 {
		s := c.next(noon.Add(-24*time.Hour), "ada")
		require.Positive(t, s.compare(before))
		require.Equal(t, before.ms, s.ms, "it waits for the wall clock, and counts")
		before = s
	}
	require.Equal(t, "1700000000001.0000.ada", c.next(noon.Add(time.Millisecond), "ada").String())
}

func TestClock_CounterIsFull(t *testing.T) {
	c := clock{ms: noon.UnixMilli(), n: math.MaxUint16 - 1}
	a, b, after := c.next(noon, "ada"), c.next(noon, "ada"), c.next(noon, "ada")
	require.Equal(t, "1700000000000.ffff.ada", a.String())
	require.Equal(t, "1700000000001.0000.ada", b.String())
	require.Equal(t, "1700000000001.0001.ada", after.String())
}

func TestClock_GoesOnAboveWhatItSaw(t *testing.T) {
	var c clock
	c.next(noon, "ada")
	seen := stamp{noon.Add(maxAhead).UnixMilli(), 7, "zoe"}
	require.NoError(t, c.see(seen, noon))
	mine := c.next(noon, "ada")
	require.Positive(t, mine.compare(seen), "though ada sorts below zoe")
	require.NoError(t, c.see(stamp{noon.UnixMilli(), 9, "ben"}, noon), "an old one")
	require.Positive(t, c.next(noon, "ada").compare(mine), "does not set it back")
}

func TestClock_FarFutureIsRefused(t *testing.T) {
	var c clock
	c.next(noon, "ada")
	was := c
	for _, ahead := range []time.Duration{maxAhead + time.Millisecond, 100 * 365 * 24 * time.Hour} {
		s := stamp{noon.Add(ahead).UnixMilli(), 0, "ben"}
		require.ErrorIs(t, c.see(s, noon), errAhead)
		require.Equal(t, was, c, "nothing was changed")
		require.NoError(t, new(clock).see(s, noon.Add(ahead-maxAhead)), "when the time has come")
	}
	require.ErrorIs(t, c.see(stamp{maxMS, 0, "ben"}, noon), errAhead, "no overflow")
}

// A wall clock far outside of what a stamp has room for gives stamps that can be
// read and compared all the same.
func TestClock_ImpossibleWallClock(t *testing.T) {
	var c clock
	before := c.next(time.UnixMilli(-5), "ada")
	require.Equal(t, int64(0), before.ms)
	for range 3 {
		s := c.next(time.UnixMilli(math.MaxInt64), "ada")
		require.Greater(t, s.String(), before.String())
		require.Len(t, s.String(), len(before.String()))
		before = s
	}
}

func TestStamp_TextSortsAsStampsDo(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	var all []stamp
	for range 1000 {
		s := stamp{rng.Int64N(1 << rng.IntN(43)), uint16(rng.IntN(1 << rng.IntN(17))), []string{"a", "ada", "b.c"}[rng.IntN(3)]}
		var back stamp
		text, err := s.MarshalText()
		require.NoError(t, err)
		require.NoError(t, back.UnmarshalText(text))
		require.Equal(t, s, back)
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b stamp) int { return strings.Compare(a.String(), b.String()) })
	require.True(t, slices.IsSortedFunc(all, stamp.compare))
}

func TestStamp_RefusesOtherTexts(t *testing.T) {
	for _, text := range []string{
		"", "1700000000000.0000", "1700000000000.0000.", "1700000000000.000.ada", "1700000000000.000G.ada",
		"1700000000000.000A.ada", "-000000000001.0000.ada", "+1700000000000.0000.ada",
	} {
		require.ErrorIs(t, new(stamp).UnmarshalText([]byte(text)), errStamp, text)
	}
}

// What a peer does after it has heard of something has the higher stamp: three
// peers with bad clocks that tell each other at random.
func TestClock_KnowingMeansHigher(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	names := []string{"ada", "ben", "cyd"}
	clocks, highest := make([]clock, 3), make([]stamp, 3)
	for range 10_000 {
		now := noon.Add(time.Duration(rng.IntN(200)-100) * time.Millisecond)
		i, from := rng.IntN(3), rng.IntN(3)
		if rng.IntN(3) > 0 {
			s := clocks[i].next(now, names[i])
			require.Positive(t, s.compare(highest[i]))
			highest[i] = s
			continue
		}
		require.NoError(t, clocks[i].see(highest[from], now))
		highest[i] = slices.MaxFunc([]stamp{highest[i], highest[from]}, stamp.compare)
	}
	require.NotZero(t, cmp.Or(clocks[0].n, clocks[1].n, clocks[2].n))
}
