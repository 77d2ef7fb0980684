package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParseTime(t *testing.T) {
	newYork, err := time.LoadLocation("America/New_York")
	require.NoError(t, err)
	now := time.Date(2026, 9, 20, 12, 30, 15, 123_000_000, newYork)
	tests := []struct {
		in, want string
	}{
		{"2026-09-20T03:00:00Z", "2026-09-20T03:00:00.000Z"},
		{"2026-09-20T03:00:00.123456+02:00", "2026-09-20T01:00:00.124Z"},
		{"2026-09-20 03:00", "2026-09-20T07:00:00.000Z"},
		{"2026-09-20 03:00:05", "2026-09-20T07:00:05.000Z"},
		{"2026-09-20 03:00:05.0001", "2026-09-20T07:00:05.001Z"},
		{"2026-01-20 03:00", "2026-01-20T08:00:00.000Z"},
		{"2026-09-20", "2026-09-20T04:00:00.000Z"},
		{"03:00", "2026-09-20T07:00:00.000Z"},
		{"23:59:59", "2026-09-21T03:59:59.000Z"},
		{"today", "2026-09-20T04:00:00.000Z"},
		{"yesterday", "2026-09-19T04:00:00.000Z"},
		{"now", "2026-09-20T16:30:15.123Z"},
		{"-2h", "2026-09-20T14:30:15.123Z"},
		{"-1d12h", "2026-09-19T04:30:15.123Z"},
		{"-0s", "2026-09-20T16:30:15.123Z"},
		{"@1758337200", "2025-09-20T03:00:00.000Z"},
		{"@1758337200123", "2025-09-20T03:00:00.123Z"},
		{"@1758337200123ms", "2025-09-20T03:00:00.123Z"},
		{"@5ms", "1970-01-01T00:00:00.005Z"},
		{"@-1", "1969-12-31T23:59:59.000Z"},
		{"@9223372036854775807ms", "292278994-08-17T07:12:55.807Z"},
	}
	for _, tt := range tests {
		t.Run(tt.in, func(t *testing.T) {
			got, err := parseTime(tt.in, now)
			require.NoError(t, err)
			require.Equal(t, tt.want, string(timePrinter{}.append(nil, got)))
		})
	}
	for _, bad := range []string{"", "noon", "25:00", "2026-13-01", "-", "-2", "--2h", "-2x", "@", "@x", "@1.5", "@1s", "2h"} {
		_, err := parseTime(bad, now)
		require.Error(t, err, bad)
	}
}

func TestParseDuration(t *testing.T) {
	tests := map[string]time.Duration{
		"0s": 0, "90s": 90 * time.Second, "2h30m": 150 * time.Minute, "1.5h": 90 * time.Minute,
		"30d": 720 * time.Hour, "2w": 336 * time.Hour, "1w2d3h": (7*24 + 2*24 + 3) * time.Hour, "100ms": 100 * time.Millisecond,
	}
	for in, want := range tests {
		got, err := parseDuration(in)
		require.NoError(t, err, in)
		require.Equal(t, want, got, in)
	}
	for _, bad := range []string{"", "5", "d", "1d1w", "-1d", "1d-2h", "1.5d", "1x", "99999999w", "300y", "106751d24h"} {
		_, err := parseDuration(bad)
		require.Error(t, err, bad)
	}
}

func TestParseSize(t *testing.T) {
	tests := map[string]int64{
		"0": 0, "4096": 4096, "12B": 12, "64M": 64 << 20, "1GiB": 1 << 30, "1k": 1024, "1KB": 1000, "2T": 2 << 40, "5mb": 5_000_000,
		"9223372036854775807": 1<<63 - 1,
	}
	for in, want := range tests {
		got, err := parseSize(in)
		require.NoError(t, err, in)
		require.Equal(t, want, got, in)
	}
	for _, bad := range []string{"", "M", "-1", "1.5G", "1 M", "1MM", "1iB", "9223372036854775808", "8388608T", "0x10"} {
		_, err := parseSize(bad)
		require.Error(t, err, bad)
	}
}
