package readme

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
)

// What the README says about copying a log in use: DURABLE first, then log.json,
// then the segments as listed after that, in ascending order. The copy holds
// everything that was durable when it began.
func TestReadme_Backup(t *testing.T) {
	ctx := t.Context()
	dir := filepath.Join(t.TempDir(), "events")
	log, err := evlog.Open(ctx, dir, &evlog.Options{SegmentBytes: 4 << 10})
	require.NoError(t, err)
	stop := make(chan struct{})
	done := make(chan error)
	go func() {
		for {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			if _, err := log.Append(ctx, evlog.Record{Value: make([]byte, 100)}); err != nil {
				done <- err
				return
			}
		}
	}()

	for range 10 {
		atLeast := log.Stats().DurableNext + 10
		require.Eventually(t, func() bool { return log.Stats().DurableNext >= atLeast }, time.Minute, time.Millisecond)
		acknowledged := log.Stats().DurableNext
		backup := filepath.Join(t.TempDir(), "backup")
		require.NoError(t, backUp(dir, backup))

		report, err := evlog.Verify(ctx, backup, nil)
		require.NoError(t, err)
		require.True(t, report.OK(), "%v", report.Problems)
		copied, err := evlog.Open(ctx, backup, &evlog.Options{Verify: evlog.VerifyAll})
		require.NoError(t, err)
		first, next, err := copied.Reader().Bounds(ctx)
		require.NoError(t, err)
		require.Zero(t, first)
		require.GreaterOrEqual(t, next, acknowledged)
		require.Equal(t, next, countRecords(ctx, t, copied.Reader()))
		require.NoError(t, copied.Close())
	}
	close(stop)
	require.NoError(t, <-done)
	require.NoError(t, log.Close())
}

func backUp(from, to string) error {
	if err := os.Mkdir(to, 0o700); err != nil {
		return err
	}
	for _, name := range []string{"DURABLE", "log.json", "consumers.json"} {
		if err := copyFile(from, to, name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	segments, err := filepath.Glob(filepath.Join(from, "*.log")) // ascending
	for _, path := range segments {
		err = errors.Join(err, copyFile(from, to, filepath.Base(path)))
	}
	return err
}

func copyFile(from, to, name string) error {
	b, err := os.ReadFile(filepath.Join(from, name))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(to, name), b, 0o600)
}

func countRecords(ctx context.Context, t *testing.T, r *evlog.Reader) (n uint64) {
	for _, err := range r.Records(ctx, 0) {
		require.NoError(t, err)
		n++
	}
	return n
}
