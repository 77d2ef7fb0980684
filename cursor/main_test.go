package cursor_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/evlog-go/evlog/cursor"
	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/evlog/evlogtest"
	"github.com/evlog-go/evlog/internal/vfs"
)

// children are what this test binary can be when a test starts it once more as
// a process of its own.
var children = map[string]func(args []string) error{}

const childEnv = "EVLOG_TEST_CHILD"

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

// child prepares this test binary to run as one of children.
func child(t testing.TB, name string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = append(os.Environ(), childEnv+"="+name)
	cmd.Stderr = os.Stderr
	return cmd
}

// fill appends n records, each with a segment of its own, so that they can be
// removed one by one.
func fill(t testing.TB, ctx context.Context, l *evlog.Log, n int) {
	t.Helper()
	for range n {
		_, err := l.Append(ctx, evlog.Record{Value: fmt.Appendf(nil, "value %d", l.Stats().NextOffset)})
		require.NoError(t, err)
	}
}

// onePerSegment makes a segment of each append.
var onePerSegment = &evlog.Options{SegmentBytes: 1}

// logOf returns a log with n records, and where it is.
func logOf(t testing.TB, n int) (*evlogtest.Dir, *evlog.Log) {
	t.Helper()
	dir := evlogtest.NewMemDir(t)
	l := dir.Open(onePerSegment)
	fill(t, dir.Context(), l, n)
	return dir, l
}

// openFile opens the store of a log.
func openFile(t testing.TB, ctx context.Context, path string) *cursor.File {
	t.Helper()
	f, err := cursor.OpenFile(ctx, path, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func storeOf(t testing.TB, dir *evlogtest.Dir) *cursor.File {
	t.Helper()
	return openFile(t, dir.Context(), dir.Path())
}

// standsAt returns where a consumer stands.
func standsAt(t testing.TB, ctx context.Context, s cursor.Store, name string) uint64 {
	t.Helper()
	p, err := s.Load(ctx, name)
	require.NoError(t, err)
	return p.Next
}

// removeBelow removes the segments below an offset, as retention does.
func removeBelow(t testing.TB, dir *evlogtest.Dir, offset uint64) {
	t.Helper()
	d := openDir(t, dir.Context(), dir.Path())
	for base := range offset {
		_ = d.Remove(fmt.Sprintf("%020d.log", base))
		_ = d.Remove(fmt.Sprintf("%020d.idx", base))
	}
	require.NoError(t, d.Sync())
}

func openDir(t testing.TB, ctx context.Context, path string) vfs.Dir {
	t.Helper()
	d, err := vfs.FromContext(ctx).OpenDir(path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// readFile returns a file's content, "" where there is none.
func readFile(t testing.TB, ctx context.Context, path, name string) string {
	t.Helper()
	d := openDir(t, ctx, path)
	f, err := d.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		require.ErrorIs(t, err, os.ErrNotExist)
		return ""
	}
	defer f.Close()
	info, err := f.Stat()
	require.NoError(t, err)
	b := make([]byte, info.Size())
	if len(b) > 0 {
		_, err = f.ReadAt(b, 0)
		require.NoError(t, err)
	}
	return string(b)
}

// writeFile replaces a file's content and makes it durable.
func writeFile(t testing.TB, ctx context.Context, path, name, content string) {
	t.Helper()
	d := openDir(t, ctx, path)
	f, err := d.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	require.NoError(t, err)
	defer f.Close()
	if content != "" {
		_, err = f.WriteAt([]byte(content), 0)
		require.NoError(t, err)
	}
	require.NoError(t, f.Sync())
	require.NoError(t, d.Sync())
}

const consumersJSON = "consumers.json"

func consumersPath(dir *evlogtest.Dir) string { return filepath.Join(dir.Path(), consumersJSON) }
