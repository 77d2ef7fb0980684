package main

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
)

// countdown is a context that a signal ends at the n-th look at it, or before the
// first. A context that is derived from it looks once, when it is made.
type countdown struct {
	context.Context
	left   atomic.Int64
	cancel context.CancelCauseFunc
}

func newCountdown(t *testing.T, n int) *countdown {
	ctx, cancel := context.WithCancelCause(context.Background())
	t.Cleanup(func() { cancel(nil) })
	c := &countdown{Context: ctx, cancel: cancel}
	c.left.Store(int64(n))
	if n == 0 {
		c.look()
	}
	return c
}

func (c *countdown) Err() error {
	c.look()
	return c.Context.Err()
}

func (c *countdown) Done() <-chan struct{} {
	c.look()
	return c.Context.Done()
}

func (c *countdown) look() {
	if c.left.Add(-1) < 0 {
		c.cancel(&signalError{name: "interrupt", number: int(syscall.SIGINT)})
	}
}

// Wherever a signal comes, the command ends with the signal's status or has done
// all of its work, says that it was ended, and leaves a sound log.
func TestSignals_LongWorkEndsWithTheSignalsStatus(t *testing.T) {
	for name, args := range map[string][]string{
		"compact":      {"compact"},
		"compact plan": {"compact", "--dry-run"},
		"retain":       {"retain", "--max-records", "1"},
		"verify":       {"verify"},
		"reindex":      {"reindex"},
		"repair":       {"repair", "--execute"},
	} {
		t.Run(name, func(t *testing.T) {
			interrupted, told := 0, 0
			for n := 0; ; n++ {
				dir := keyedLog(t)
				ctx := newCountdown(t, n)
				code, stderr := runCounted(ctx, append(args, dir))
				if code == exitOK {
					break
				}
				require.Equal(t, exitSignal+int(syscall.SIGINT), code, "look %d: %s", n, stderr)
				require.NotContains(t, stderr, "evlog: ", "look %d", n)
				interrupted++
				if strings.Contains(stderr, "% ended by interrupt: ") {
					told++
				}
				report, err := evlog.Verify(t.Context(), dir, nil)
				require.NoError(t, err)
				require.True(t, report.OK(), "look %d: %v", n, report.Problems)
			}
			require.Positive(t, interrupted)
			require.Positive(t, told)
		})
	}
}

// runCounted is run without a signal handler, whose context would hide ctx.
func runCounted(ctx context.Context, args []string) (code int, stderr string) {
	var out, errs bytes.Buffer
	a := newApp(strings.NewReader(""), &out, &errs)
	root := newRoot(a)
	root.SetArgs(args)
	root.SetOut(a.out)
	root.SetErr(&errs)
	err := root.ExecuteContext(ctx)
	return a.report(ctx, err), errs.String()
}

// keyedLog is a log of three closed segments and more, in which two thirds are
// superseded, with records that are large against the steps of compaction.
func keyedLog(t *testing.T) string {
	dir := filepath.Join(t.TempDir(), "log")
	l, err := evlog.Open(t.Context(), dir, &evlog.Options{SegmentBytes: 512 << 10, NoPreallocate: true})
	require.NoError(t, err)
	value := make([]byte, 200<<10)
	for i := range 10 {
		_, err := l.Append(t.Context(), evlog.Record{Key: []byte{'a' + byte(i%3)}, Value: value})
		require.NoError(t, err)
	}
	require.NoError(t, l.Close())
	return dir
}
