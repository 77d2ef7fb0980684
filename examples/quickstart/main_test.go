package main

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
)

// TestMain lets the test binary be the child processes, as the program is.
func TestMain(m *testing.M) {
	if os.Getenv(roleVar) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestQuickstart(t *testing.T) {
	useTemp(t)
	var out strings.Builder
	require.NoError(t, run(context.Background(), &out, false))
	t.Log("\n" + out.String())

	for _, want := range []string{
		`(?m)^events     18,335 edits of one document, 2020-10-18 to 2021-01-23$`,
		`(?m)^killed     the writing process \(pid \d+\) while it appended; \d+,\d+ edits were acknowledged$`,
		`(?m)^reopened   in \S+: all \d+,\d+ acknowledged edits are there, and \d+ that were not acknowledged yet$`,
		`(?m)^continued  at offset \d+,\d+: `,
		`(?m)^one by one 200 edits, one with each sync: `,
		`(?m)^followed   a second process \(pid \d+\) had each after `,
		`(?m)^looked up  2020-10-19 02:30: offset 7,327, typed at 02:30:15, found in `,
		`(?m)^verified   18,335 records, \d+ segments, [\d,]+ bytes, no problems$`,
	} {
		require.Regexp(t, regexp.MustCompile(want), out.String())
	}
	require.LessOrEqual(t, strings.Count(out.String(), "\n"), 14, "a dozen readable lines")
	left, err := os.ReadDir(os.TempDir())
	require.NoError(t, err)
	require.Empty(t, left, "the directory is removed")
}

func TestQuickstart_Keep(t *testing.T) {
	useTemp(t)
	var out strings.Builder
	require.NoError(t, run(context.Background(), &out, true))
	found, err := filepath.Glob(filepath.Join(os.TempDir(), "evlog-quickstart-*", "events"))
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Contains(t, out.String(), found[0])
	report, err := evlog.Verify(context.Background(), found[0], nil)
	require.NoError(t, err)
	require.True(t, report.OK())
	require.Equal(t, uint64(18335), report.Next)
}

func TestRound(t *testing.T) {
	require.Equal(t, "999ns", round(999).String())
	require.Equal(t, "1.235ms", round(1234567).String())
	require.Equal(t, "2.1s", round(2_100_000_123).String())
}

func TestCount(t *testing.T) {
	require.Equal(t, "0", count(0))
	require.Equal(t, "999", count(999))
	require.Equal(t, "1,000", count(int64(1000)))
	require.Equal(t, "1,234,567", count(uint64(1234567)))
}

// useTemp makes os.TempDir a directory of the test's own.
func useTemp(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir) // Unix
	t.Setenv("TMP", dir)    // Windows
}
