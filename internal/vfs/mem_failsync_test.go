package vfs_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/internal/vfs"
)

func TestFailSync_LosesWhatItCovered(t *testing.T) {
	t.Parallel()
	m := vfs.NewMem()
	d := openDir(t, m, "/d")
	f := openFile(t, d, "a.log", create)
	write(t, f, 0, "first ")
	require.NoError(t, f.SyncData())
	require.NoError(t, d.Sync())
	got := func(image *vfs.Mem) string { return readIn(t, image, "/d", "a.log") }

	m.FailSync(vfs.OpSyncData, "*.log", 1, syscall.EIO)
	write(t, f, 6, "second ")
	requirePathError(t, f.SyncData(), syscall.EIO, "a.log")
	require.Equal(t, "first second ", content(t, f), "the page cache still shows it")
	require.Equal(t, "first second ", got(m.KillImage()))

	require.NoError(t, f.SyncData(), "the next sync has nothing to do")
	require.NoError(t, f.Sync())
	require.Equal(t, []string{"first "}, keys(outcomes(m, got)))
	require.Equal(t, []string{"first "}, keys(outcomes(m.KillImage(), got)))

	// What comes after it can be durable, with a hole of zeros before it.
	write(t, f, 13, "third")
	require.NoError(t, f.SyncData())
	require.Equal(t, "first second third", content(t, f))
	require.Equal(t, []string{"first " + strings.Repeat("\x00", 7) + "third"}, keys(outcomes(m, got)))

	// Writing the same bytes again makes them dirty again.
	write(t, f, 6, "second ")
	require.NoError(t, f.SyncData())
	require.Equal(t, []string{"first second third"}, keys(outcomes(m, got)))
}

func TestFailSync_Truncate(t *testing.T) {
	t.Parallel()
	m := vfs.NewMem()
	d := openDir(t, m, "/d")
	writeFile(t, d, "f", "12345", true)
	require.NoError(t, d.Sync())
	f := openFile(t, d, "f", readWrite)
	m.FailSync(vfs.OpAnySync, "f", 1, syscall.EIO)
	require.NoError(t, f.Truncate(2))
	require.ErrorIs(t, f.Sync(), syscall.EIO)
	require.NoError(t, f.Sync())
	require.Equal(t, "12", content(t, f))
	require.Equal(t, "12345", readIn(t, m.Crash(0), "/d", "f"))
	require.NoError(t, f.Truncate(2))
	require.NoError(t, f.SyncData())
	require.Equal(t, "12", readIn(t, m.Crash(0), "/d", "f"))
}

func TestFailSync_Names(t *testing.T) {
	t.Parallel()
	m := vfs.NewMem()
	d := openDir(t, m, "/d")
	writeFile(t, d, "old", "old", true)
	require.NoError(t, d.Sync())
	list := func(image *vfs.Mem) string { return fmt.Sprint(dump(t, image)) }

	m.FailSync(vfs.OpDirSync, "d", 1, syscall.EIO)
	writeFile(t, d, "new.tmp", "new", true)
	require.NoError(t, d.Remove("old"))
	requirePathError(t, d.Sync(), syscall.EIO, "d")
	require.NoError(t, d.Sync())
	require.Equal(t, []string{"new.tmp"}, names(t, d))
	require.Equal(t, []string{"map[old:old]"}, keys(outcomes(m, list)))

	// A new change is covered again, whether or not its file ever was.
	require.NoError(t, d.Rename("new.tmp", "new"))
	require.Equal(t, []string{"map[old:old]"}, keys(outcomes(m, list)))
	require.NoError(t, d.Sync())
	require.Equal(t, []string{"map[new:new old:old]"}, keys(outcomes(m, list)))
}

func TestFailSync_DirectoryName(t *testing.T) {
	t.Parallel()
	m := vfs.NewMem()
	m.FailSync(vfs.OpDirSync, "base", 1, syscall.EIO)
	require.NoError(t, m.MkdirAll("/base", 0o755))
	require.ErrorIs(t, m.MkdirAll("/base/d", 0o755), syscall.EIO)
	d, err := m.OpenDir("/base/d")
	require.NoError(t, err, "it is there all the same")
	defer d.Close()
	require.NoError(t, d.SyncParent(), "which has nothing to do any more")
	_, err = m.Crash(0).OpenDir("/base/d")
	require.Error(t, err)

	m.FailSync(vfs.OpSyncParent, "base", 1, syscall.EIO)
	requirePathError(t, d.SyncParent(), syscall.EIO, "base")
	require.NoError(t, d.SyncParent())
}

func TestFailSync_ModificationTime(t *testing.T) {
	t.Parallel()
	m := vfs.NewMem()
	d := openDir(t, m, "/d")
	writeFile(t, d, "f", "x", true)
	require.NoError(t, d.Sync())
	f := openFile(t, d, "f", readWrite)
	require.NoError(t, f.Sync())
	m.FailSync(vfs.OpSync, "", 1, syscall.EIO)
	require.NoError(t, d.Chtimes("f", time.UnixMilli(5)))
	require.ErrorIs(t, f.Sync(), syscall.EIO)
	require.NoError(t, f.Sync())
	info, err := openDir(t, m.Crash(0), "/d").Stat("f")
	require.NoError(t, err)
	require.NotEqual(t, int64(5), info.ModTime().UnixMilli())
}

func TestFailSync_CountsMatchingOnes(t *testing.T) {
	t.Parallel()
	m := vfs.NewMem()
	d := openDir(t, m, "/d")
	a, b := openFile(t, d, "a.log", create), openFile(t, d, "b.idx", create)
	m.FailSync(vfs.OpSync|vfs.OpSyncData, "*.log", 3, syscall.EIO)
	m.FailSync(vfs.OpDirSync, "", 2, syscall.ENOSPC)
	require.NoError(t, a.Sync())
	require.NoError(t, b.Sync())
	require.NoError(t, d.Sync())
	require.NoError(t, a.SyncData())
	require.NoError(t, b.SyncData())
	require.ErrorIs(t, d.Sync(), syscall.ENOSPC)
	require.ErrorIs(t, a.Sync(), syscall.EIO)
	require.NoError(t, a.Sync(), "once only")
	require.NoError(t, d.Sync())
}
