package vfs_test

import (
	"io/fs"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/internal/vfs"
)

func TestWindows_OpenFilesStayWhereTheyAre(t *testing.T) {
	t.Parallel()
	fsys := vfs.Windows(vfs.NewMem())
	d, other := openDir(t, fsys, "/log"), openDir(t, fsys, "/log")
	writeFile(t, d, "a", "a", false)
	writeFile(t, d, "b", "b", false)
	f1, f2 := openFile(t, d, "a", os.O_RDONLY), openFile(t, other, "a", os.O_RDONLY)

	refused := func() {
		t.Helper()
		requirePathError(t, d.Remove("a"), fs.ErrPermission, "a")
		requirePathError(t, d.Rename("a", "c"), fs.ErrPermission, "a")
		requirePathError(t, d.Rename("b", "a"), fs.ErrPermission, "a")
		require.Equal(t, []string{"a", "b"}, names(t, d))
	}
	refused()
	require.NoError(t, f1.Close())
	require.Error(t, f1.Close())
	refused()
	require.NoError(t, f2.Close())
	require.NoError(t, d.Rename("b", "a"))
	require.NoError(t, d.Rename("a", "c"))
	require.NoError(t, d.Remove("c"))
}

func TestWindows_OpenDirectories(t *testing.T) {
	t.Parallel()
	fsys := vfs.Windows(vfs.NewMem())
	root := openDir(t, fsys, "/base")
	d := openDir(t, fsys, "/base/log")
	f := openFile(t, d, "f", create)
	openDir(t, fsys, "/base/logger")

	requirePathError(t, root.Rename("log", "moved"), fs.ErrPermission, "log")
	require.NoError(t, d.Close())
	requirePathError(t, root.Rename("log", "moved"), fs.ErrPermission, "log")
	require.NoError(t, f.Close())
	require.NoError(t, root.Rename("log", "moved"))
	require.NoError(t, openDir(t, fsys, "/base/moved").Close())
}

func TestWindows_LockedByte(t *testing.T) {
	t.Parallel()
	fsys := vfs.Windows(vfs.NewMem())
	d := openDir(t, fsys, "/log")
	writeFile(t, d, "LOCK", "\npid\n", false)
	lock, err := d.Lock("LOCK")
	require.NoError(t, err)

	f := openFile(t, d, "LOCK", readWrite)
	buf := make([]byte, 3)
	_, err = f.ReadAt(buf, 0)
	requirePathError(t, err, fs.ErrPermission, "LOCK")
	_, err = f.WriteAt([]byte("x"), 0)
	requirePathError(t, err, fs.ErrPermission, "LOCK")
	_, err = f.ReadAt(buf, 1)
	require.NoError(t, err)
	require.Equal(t, "pid", string(buf))
	write(t, f, 1, "new")
	require.NoError(t, f.Close())

	requirePathError(t, d.Remove("LOCK"), fs.ErrPermission, "LOCK")
	require.NoError(t, lock.Unlock())
	require.Equal(t, "\nnew\n", read(t, d, "LOCK"))
	require.NoError(t, d.Remove("LOCK"))
}

func TestWindows_Names(t *testing.T) {
	t.Parallel()
	d := openDir(t, vfs.Windows(vfs.NewMem()), "/log")
	writeFile(t, d, "good name.txt", "", false)
	for _, name := range []string{"a:b", "a?", "a*", `a"b`, "a|b", "<a>", `a\b`, "a.", "a "} {
		_, err := d.OpenFile(name, create, 0o644)
		require.ErrorIs(t, err, fs.ErrInvalid, name)
		require.ErrorIs(t, d.Rename("good name.txt", name), fs.ErrInvalid, name)
		_, err = d.Lock(name)
		require.ErrorIs(t, err, fs.ErrInvalid, name)
	}
}

func TestWindows_HasNoAllocate(t *testing.T) {
	t.Parallel()
	f := openFile(t, openDir(t, vfs.Windows(vfs.NewMem()), "/log"), "f", create)
	requirePathError(t, f.Allocate(0, 1), vfs.ErrUnsupported, "f")
}
