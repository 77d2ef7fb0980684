package format_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/internal/format"
)

var goldenDurable = []struct {
	name string
	d    format.Durable
	hex  string
}{
	{"new log", format.Durable{}, "45564431 eeecfb84 0000000000000000 0000000000000000 0000000000000000"},
	{
		"in a segment",
		format.Durable{NextOffset: 4182930, Base: 4182917, Position: 8192},
		"45564431 bcb5f09e 92d33f0000000000 85d33f0000000000 0020000000000000",
	},
	{
		"highest",
		format.Durable{NextOffset: math.MaxUint64, Base: math.MaxUint64, Position: math.MaxInt64},
		"45564431 bcbb6c93 ffffffffffffffff ffffffffffffffff ffffffffffffff7f",
	},
}

func TestDurable_GoldenBytes(t *testing.T) {
	for _, c := range goldenDurable {
		t.Run(c.name, func(t *testing.T) {
			want := unhex(t, c.hex)
			var b [format.DurableSize]byte
			c.d.Encode(&b)
			require.Equal(t, want, b[:])
			require.Equal(t, want, evtest.EncodeDurable(evtest.Durable{
				Next: c.d.NextOffset, Base: c.d.Base, Pos: c.d.Position,
			}), "second implementation")
			got, err := format.ParseDurable(want)
			require.NoError(t, err)
			require.Equal(t, c.d, got)
		})
	}
}

func TestDurable_RefusesDamage(t *testing.T) {
	good := unhex(t, goldenDurable[1].hex)
	for n := range good {
		_, err := format.ParseDurable(good[:n])
		require.ErrorIs(t, err, format.ErrDurable, "%d bytes", n)
	}
	_, err := format.ParseDurable(append(good[:32:32], 0))
	require.ErrorIs(t, err, format.ErrDurable, "33 bytes")
	for bit := range len(good) * 8 {
		b := append([]byte(nil), good...)
		b[bit/8] ^= 1 << (bit % 8)
		_, err := format.ParseDurable(b)
		require.ErrorIs(t, err, format.ErrDurable, "bit %d", bit)
	}
	negative := evtest.EncodeDurable(evtest.Durable{Pos: -1})
	_, err = format.ParseDurable(negative)
	require.ErrorIs(t, err, format.ErrDurable, "a position with the top bit set")
}

func FuzzDurable(f *testing.F) {
	for _, c := range goldenDurable {
		f.Add(unhex(f, c.hex))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := format.ParseDurable(b)
		if err != nil {
			return
		}
		var back [format.DurableSize]byte
		d.Encode(&back)
		require.Equal(t, b, back[:])
	})
}
