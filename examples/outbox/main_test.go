package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOutbox(t *testing.T) {
	for _, seed := range []uint64{1, 2} {
		dir := t.TempDir()
		t.Setenv("TMPDIR", dir) // Unix
		t.Setenv("TMP", dir)    // Windows
		var out strings.Builder
		require.NoError(t, run(t.Context(), seed, &out))
		t.Log("\n" + out.String())
		for _, want := range []string{
			`(?m)^orders   [23]\d\d were taken, [1-9]\d+ rolled back because the shelf was empty$`,
			`(?m)^log      (\d+) events, exactly those of the (\d+) orders in the table, in the order of their commits$`,
		} {
			require.Regexp(t, want, out.String())
		}
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Empty(t, left, "the directory is removed")
	}
}
