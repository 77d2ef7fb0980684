package main

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestShiftValue(t *testing.T) {
	for _, tt := range []struct {
		shift        string
		offset, want uint64
		ok           bool
	}{
		{"0", 5, 5, true},
		{"3", 5, 8, true},
		{"+3", 5, 8, true},
		{"-5", 5, 0, true},
		{"-6", 5, 0, false},
		{"9223372036854775807", 1 << 63, math.MaxUint64, true},
		{"9223372036854775807", 1<<63 + 1, 0, false},
		{"-9223372036854775808", 1 << 63, 0, true},
		{"-9223372036854775808", 1<<63 - 1, 0, false},
	} {
		var v shiftValue
		require.NoError(t, v.Set(tt.shift))
		got, ok := v.from(tt.offset)
		require.Equal(t, tt.ok, ok, tt)
		if ok {
			require.Equal(t, tt.want, got, tt)
		}
	}
	for _, bad := range []string{"", "x", "1.5", "9223372036854775808"} {
		require.Error(t, new(shiftValue).Set(bad), bad)
	}
}
