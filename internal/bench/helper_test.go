package bench

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/evlog-go/evlog/evlog"
)

var background = context.Background()

// children are what this binary can be when a benchmark starts it once more.
var children = map[string]func(args []string) error{}

const childEnv = "EVLOG_BENCH_CHILD"

func TestMain(m *testing.M) {
	if name := os.Getenv(childEnv); name != "" {
		if err := children[name](os.Args[1:]); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func sizeName(n int64) string {
	switch {
	case n >= 1<<30 && n%(1<<30) == 0:
		return fmt.Sprintf("%dGiB", n>>30)
	case n >= 1<<20 && n%(1<<20) == 0:
		return fmt.Sprintf("%dMiB", n>>20)
	case n >= 1<<10 && n%(1<<10) == 0:
		return fmt.Sprintf("%dKiB", n>>10)
	}
	return fmt.Sprintf("%dB", n)
}

// openLog opens a log until the end of the benchmark.
func openLog(b testing.TB, dir string, o *evlog.Options) *evlog.Log {
	b.Helper()
	l, err := evlog.Open(background, dir, o)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, l.Close()) })
	return l
}

// fillLog enqueues n records, which are taken from records in turn, and makes
// them durable.
func fillLog(b testing.TB, l *evlog.Log, records []evlog.Record, n int) {
	b.Helper()
	for n > 0 {
		batch := records[:min(n, len(records))]
		_, err := l.Enqueue(background, batch...)
		require.NoError(b, err)
		n -= len(batch)
	}
	require.NoError(b, l.Flush(background))
}
