package main

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestMain lets the test binary be the process that gets killed.
func TestMain(m *testing.M) {
	if os.Getenv(dirVar) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestProjection(t *testing.T) {
	var out strings.Builder
	require.NoError(t, run(context.Background(), uint64(time.Now().UnixNano())%1_000_000, &out))
	t.Log("\n" + out.String())

	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.LessOrEqual(t, len(lines), 13)
	require.Equal(t, kills, strings.Count(out.String(), "\nkilled "))
	for _, want := range []string{
		`(?m)^log      3045 changes of paths, 2013-12-20 to \d{4}-\d\d-\d\d$`,
		`(?m)^killed   when it had come to record \d+ or a little further; committed are \d+, each once, and the table is exactly theirs$`,
		`(?m)^applied  3045 changes, each once, by 8 processes, whose handlers were called \d+ times$`,
		`(?m)^table    158 files, exactly those of the last commit$`,
	} {
		require.Regexp(t, want, out.String())
	}
}
