package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
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

const keyBytes = 16

// makeRecords makes n records with keys of 16 bytes and random values.
func makeRecords(n, valueBytes int) []evlog.Record {
	rng := rand.New(rand.NewPCG(1, 2))
	records := make([]evlog.Record, n)
	for i := range records {
		value := make([]byte, valueBytes)
		for j := range value {
			value[j] = byte(rng.Uint32())
		}
		records[i] = evlog.Record{Key: fmt.Appendf(nil, "key-%012d", rng.IntN(1000)), Value: value}
	}
	return records
}

// recordSize is the number of bytes such a record takes in a log.
func recordSize(valueBytes int) int64 { return headerSize + keyBytes + int64(valueBytes) }

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
