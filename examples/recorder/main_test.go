package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRecorder(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir) // Unix
	t.Setenv("TMP", dir)    // Windows
	at := time.Date(2025, 4, 30, 16, 46, 50, 0, time.UTC)
	var out strings.Builder
	require.NoError(t, run(t.Context(), query{at, 20 * time.Second, "run:basic", 5}, &out))
	t.Log("\n" + out.String())

	parts := strings.Split(out.String(), "\n\n")
	require.Len(t, parts, 4)
	require.Equal(t, "recorded 3254 events, offsets 0 to 3253", parts[0])

	// By time: as many events as the source has in these 20 seconds.
	all, err := load()
	require.NoError(t, err)
	var want []string
	for i, rec := range all {
		if !rec.Time.Before(at) && rec.Time.Before(at.Add(20*time.Second)) {
			rec.Offset = uint64(i)
			want = append(want, "  "+line(rec))
		}
	}
	require.NotEmpty(t, want)
	require.Equal(t, append([]string{"2025-04-30 16:46:50, 20s: what happened?"}, want...), strings.Split(parts[1], "\n"))

	// By key: the run's four events, in order.
	run := strings.Split(parts[2], "\n")
	require.Len(t, run, 5)
	require.Contains(t, run[1], "Please create a simple 2048 game.")
	require.Contains(t, run[3], "I edited the file /workspace/game_2048.py.")

	// Backwards from the end.
	last := strings.Split(strings.TrimSpace(parts[3]), "\n")
	require.Len(t, last, 6)
	require.Contains(t, last[1], "#3253 ")
	require.Contains(t, last[5], "#3249 ")

	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left, "the directory is removed")
}

func TestRecorder_Nothing(t *testing.T) {
	var out strings.Builder
	future := time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
	require.NoError(t, run(t.Context(), query{future, time.Hour, "run:none", 1}, &out))
	require.Contains(t, out.String(), "nothing at or after that time")
	require.Contains(t, out.String(), "no such run")
}

func TestCut(t *testing.T) {
	require.Equal(t, "a b c", cut("a\n\tb\x1b\x00c ", 10))
	require.Equal(t, "äöü…", cut("äöüäöü", 4))
	require.Equal(t, "", cut("\r\n", 4))
	require.Equal(t, "…def", cutLeft("abcdef", 4))
}
