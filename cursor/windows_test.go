package cursor_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/internal/vfs"
)

// windowsLog is a log under the rules that Windows has for open files.
func windowsLog(t testing.TB, mem *vfs.Mem) context.Context {
	t.Helper()
	ctx := vfs.NewContext(t.Context(), vfs.Windows(mem))
	l, err := evlog.Open(ctx, memPath, nil)
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return ctx
}

// publish commits n times while readers poll, and checks that what they see only
// goes forwards.
func publish(t *testing.T, ctx context.Context, path string, n uint64) {
	f := openFile(t, ctx, path)
	require.NoError(t, f.Commit(ctx, "a", 0, 0))
	var end atomic.Bool
	var wg sync.WaitGroup
	var reads atomic.Uint64
	for range 2 {
		r := openFile(t, ctx, path)
		wg.Go(func() {
			for last := uint64(0); !end.Load(); {
				p, err := r.Load(ctx, "a")
				if err != nil || p.Next < last {
					t.Errorf("after %d: %+v, %v", last, p, err)
					return
				}
				last = p.Next
				reads.Add(1)
				runtime.Gosched()
			}
		})
	}
	for at := range n {
		if err := f.Commit(ctx, "a", at, at+1); err != nil {
			t.Error(err)
			break
		}
	}
	end.Store(true)
	wg.Wait()
	require.Equal(t, n, standsAt(t, ctx, f, "a"))
	require.NotZero(t, reads.Load())
	t.Logf("%d commits, %d reads", n, reads.Load())
}

// Windows replaces no file that somebody has open: 10,000 commits while readers
// poll.
func TestWindows_ReplacedWhileReadersPoll(t *testing.T) {
	publish(t, windowsLog(t, vfs.NewMem()), memPath, 10_000)
}

// The same on the real file system, by the rules of whichever it is.
func TestFile_ReplacedWhileReadersPoll(t *testing.T) {
	path := t.TempDir()
	l, err := evlog.Open(t.Context(), path, nil)
	require.NoError(t, err)
	require.NoError(t, l.Close())
	publish(t, t.Context(), path, uint64(max(200, evtest.Count(10_000))))
}

// A reader that never closes the file: the commit gives up after a while, and
// leaves everything as it was.
func TestWindows_HeldOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewMem()
		ctx := windowsLog(t, mem)
		f := openFile(t, ctx, memPath)
		require.NoError(t, f.Commit(ctx, "a", 0, 1))
		held, err := openDir(t, ctx, memPath).OpenFile(consumersJSON, os.O_RDONLY, 0)
		require.NoError(t, err)

		began := time.Now()
		err = f.Commit(ctx, "a", 1, 2)
		require.ErrorIs(t, err, fs.ErrPermission)
		require.Greater(t, time.Since(began), time.Second, "it waited")
		require.Less(t, time.Since(began), 10*time.Second)
		names, err := openDir(t, ctx, memPath).Names()
		require.NoError(t, err)
		require.NotContains(t, names, "consumers.json.tmp")
		require.EqualValues(t, 1, standsAt(t, ctx, f, "a"))

		short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
		defer cancel()
		require.True(t, errors.Is(f.Commit(short, "a", 1, 2), fs.ErrPermission))

		time.AfterFunc(100*time.Millisecond, func() { _ = held.Close() })
		require.NoError(t, f.Commit(ctx, "a", 1, 2))
	})
}
