package cursortest_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/evlog-go/evlog/cursor"
	"github.com/evlog-go/evlog/cursor/cursortest"
	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/evlog/evlogtest"
	"github.com/evlog-go/evlog/internal/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture is a log of evlog; each batch gets a segment of its own, so that it
// can be removed.
func fixture(dir *evlogtest.Dir, read func(*evlog.Log) cursor.Log) cursortest.LogFixture {
	l := dir.Open(&evlog.Options{SegmentBytes: 1, Sync: evlog.SyncFlush})
	ctx := dir.Context()
	return cursortest.LogFixture{
		Log: read(l),
		Append: func(_ context.Context, recs ...evlog.Record) (uint64, error) {
			return l.Append(ctx, recs...)
		},
		Enqueue: func(_ context.Context, recs ...evlog.Record) (uint64, error) {
			return l.Enqueue(ctx, recs...)
		},
		AppendAt: func(_ context.Context, recs ...evlog.Record) error {
			return l.AppendExact(ctx, recs...)
		},
		RemoveBelow: func(_ context.Context, offset uint64) error { return removeBelow(ctx, dir.Path(), offset) },
		Reopen: func(context.Context) (cursor.Log, error) {
			return dir.Reader(nil), nil
		},
	}
}

// removeBelow unlinks segments, the oldest first.
func removeBelow(ctx context.Context, path string, offset uint64) error {
	d, err := vfs.FromContext(ctx).OpenDir(path)
	if err != nil {
		return err
	}
	defer d.Close()
	names, err := d.Names()
	if err != nil {
		return err
	}
	for _, name := range names {
		digits, ok := strings.CutSuffix(name, ".log")
		if !ok {
			continue
		}
		if base, err := strconv.ParseUint(digits, 10, 64); err != nil || base >= offset {
			continue
		}
		if err := d.Remove(name); err != nil {
			return err
		}
		_ = d.Remove(digits + ".idx") // may not have been written yet
	}
	return d.Sync()
}

func own(l *evlog.Log) cursor.Log { return l.Reader() }

func TestLog_SameProcess(t *testing.T) {
	cursortest.TestLog(t, func(t *testing.T) cursortest.LogFixture { return fixture(evlogtest.NewDir(t), own) })
}

func TestLog_InMemory(t *testing.T) {
	cursortest.TestLog(t, func(t *testing.T) cursortest.LogFixture { return fixture(evlogtest.NewMemDir(t), own) })
}

// A reader of its own is what another process has.
func TestLog_OtherProcess(t *testing.T) {
	cursortest.TestLog(t, func(t *testing.T) cursortest.LogFixture {
		dir := evlogtest.NewDir(t)
		return fixture(dir, func(*evlog.Log) cursor.Log { return dir.Reader(nil) })
	})
}

// store opens the consumers.json of a log.
func store(t *testing.T, dir *evlogtest.Dir) *cursor.File {
	t.Helper()
	f, err := cursor.OpenFile(dir.Context(), dir.Path(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	return f
}

func TestStore_File(t *testing.T) {
	cursortest.TestStore(t, func(t *testing.T) cursortest.StoreFixture {
		dir := evlogtest.NewDir(t)
		dir.Open(nil)
		return cursortest.StoreFixture{
			Store:  store(t, dir),
			Reopen: func(context.Context) (cursor.Store, error) { return store(t, dir), nil },
			OtherLog: func(context.Context) (cursor.Store, error) {
				other := evlogtest.NewDir(t)
				other.Open(nil)
				b, err := os.ReadFile(filepath.Join(dir.Path(), "consumers.json"))
				if err != nil {
					return nil, err
				}
				return store(t, other), os.WriteFile(filepath.Join(other.Path(), "consumers.json"), b, 0o600)
			},
		}
	})
}

func TestStore_FileInMemory(t *testing.T) {
	cursortest.TestStore(t, func(t *testing.T) cursortest.StoreFixture {
		dir := evlogtest.NewMemDir(t)
		dir.Open(nil)
		return cursortest.StoreFixture{
			Store:  store(t, dir),
			Reopen: func(context.Context) (cursor.Store, error) { return store(t, dir), nil },
		}
	})
}
