package format_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/internal/format"
)

func TestNames_OfSegments(t *testing.T) {
	require.Equal(t, "00000000000000000000.log", format.SegmentName(0))
	require.Equal(t, "00000000000004182917.log", format.SegmentName(4182917))
	require.Equal(t, "00000000000004182917.idx", format.IndexName(4182917))
	require.Equal(t, "18446744073709551615.log", format.SegmentName(math.MaxUint64))
	require.Equal(t, "00000000000000000007.512.1.torn", format.TornName(7, 512, 1))
	for _, base := range []uint64{0, 1, 1 << 32, math.MaxUint64} {
		require.Equal(t, evtest.SegmentFile(base), format.SegmentName(base))
		got, ok := format.ParseSegmentName(format.SegmentName(base))
		require.True(t, ok)
		require.Equal(t, base, got)
		got, ok = format.ParseIndexName(format.IndexName(base))
		require.True(t, ok)
		require.Equal(t, base, got)
	}
}

func TestNames_RefusesOthers(t *testing.T) {
	for _, name := range []string{
		"", ".log", "0.log", "0000000000000000000.log", "000000000000000000000.log",
		"00000000000000000000.idx", "00000000000000000000.log.tmp", "00000000000000000000.LOG",
		"+0000000000000000000.log", "-0000000000000000001.log", " 0000000000000000000.log",
		"0000000000000000000a.log", "18446744073709551616.log", "99999999999999999999.log",
		"0x00000000000000000f.log", "0_000000000000000000.log", "٠٠٠٠٠٠٠٠٠٠.log",
	} {
		_, ok := format.ParseSegmentName(name)
		require.False(t, ok, "%q", name)
	}
	_, ok := format.ParseIndexName("00000000000000000000.log")
	require.False(t, ok)
}

func FuzzSegmentName(f *testing.F) {
	f.Add("00000000000000000000.log")
	f.Fuzz(func(t *testing.T, name string) {
		if base, ok := format.ParseSegmentName(name); ok {
			require.Equal(t, name, format.SegmentName(base))
		}
	})
}
