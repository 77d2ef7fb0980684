//go:build unix

package vfs_test

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/internal/vfs"
)

// TestOS_DirectoryMoved: the open directory is a directory, not a path.
func TestOS_DirectoryMoved(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	path := filepath.Join(base, "d")
	d := openDir(t, vfs.OS{}, path)
	writeFile(t, d, "f", "mine", false)
	f := openFile(t, d, "f", readWrite)

	require.NoError(t, os.Rename(path, filepath.Join(base, "moved")))
	impostor := openDir(t, vfs.OS{}, path)
	writeFile(t, impostor, "f", "impostor", false)
	writeFile(t, impostor, "LOCK", "", false)

	require.Equal(t, "mine", read(t, d, "f"))
	same, err := d.Same("f", f)
	require.NoError(t, err)
	require.True(t, same)
	writeFile(t, d, "g", "new", true)
	require.NoError(t, d.Sync())
	require.NoError(t, d.SyncParent())
	require.FileExists(t, filepath.Join(base, "moved", "g"))
	require.NoFileExists(t, filepath.Join(path, "g"))

	// What is locked is the moved directory's file, or nothing.
	lock, err := d.Lock("LOCK")
	if runtime.GOOS == "linux" {
		require.NoError(t, err)
		_, err = d.Lock("LOCK")
		require.ErrorIs(t, err, vfs.ErrLocked)
		require.NoError(t, lock.Unlock())
	} else {
		require.Error(t, err)
		require.NotErrorIs(t, err, vfs.ErrLocked)
	}
	lock, err = impostor.Lock("LOCK")
	require.NoError(t, err)
	require.NoError(t, lock.Unlock())
}

func TestOS_DirectoryMovedAwayForGood(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "d")
	d := openDir(t, vfs.OS{}, path)
	require.NoError(t, os.Remove(path))
	_, err := d.OpenFile("f", create, 0o644)
	requirePathError(t, err, fs.ErrNotExist, "f")
	_, err = d.Lock("LOCK")
	requirePathError(t, err, fs.ErrNotExist, "LOCK")
}

func TestOS_SymbolicLinks(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	d := openDir(t, vfs.OS{}, filepath.Join(base, "d"))
	writeFile(t, openDir(t, vfs.OS{}, filepath.Join(base, "out")), "f", "outside", false)
	writeFile(t, d, "f", "inside", false)

	require.NoError(t, os.Symlink("f", filepath.Join(base, "d", "in")))
	require.NoError(t, os.Symlink("../out/f", filepath.Join(base, "d", "out")))
	require.NoError(t, os.Symlink("d", filepath.Join(base, "link")))
	require.Equal(t, "inside", read(t, d, "in"))
	_, err := d.OpenFile("out", os.O_RDONLY, 0)
	require.ErrorContains(t, err, "escapes", "a link that leaves the directory is refused")
	require.Equal(t, "inside", read(t, openDir(t, vfs.OS{}, filepath.Join(base, "link")), "f"),
		"the directory itself may be a link")
}

// What is no file has its name in the error, and nothing waits: the opening of a
// FIFO would, until somebody opens its other end.
func TestOS_OpensRegularFilesOnly(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	d := openDir(t, vfs.OS{}, base)
	require.NoError(t, syscall.Mkfifo(filepath.Join(base, "fifo"), 0o600))
	require.NoError(t, os.Symlink("fifo", filepath.Join(base, "link")))
	require.NoError(t, os.Symlink("/dev/zero", filepath.Join(base, "device")))
	require.NoError(t, os.Mkdir(filepath.Join(base, "dir"), 0o700))
	listener, err := net.Listen("unix", filepath.Join(base, "socket"))
	require.NoError(t, err)
	defer listener.Close()
	for _, name := range []string{"fifo", "link", "device", "dir", "socket"} {
		for _, flag := range []int{os.O_RDONLY, os.O_RDWR, os.O_RDWR | os.O_CREATE, os.O_WRONLY | os.O_TRUNC} {
			done := make(chan error, 1)
			go func() {
				f, err := d.OpenFile(name, flag, 0o600)
				if err == nil {
					err = errors.Join(errors.New("it was opened"), f.Close())
				}
				done <- err
			}()
			select {
			case err := <-done:
				requireNamed(t, err, name)
			case <-time.After(20 * time.Second):
				require.FailNow(t, "opening waits", "%s, flags %x", name, flag)
			}
		}
		_, err := d.Lock(name)
		requireNamed(t, err, name)
	}
	_, err = d.OpenFile("dir", os.O_RDONLY, 0)
	require.ErrorIs(t, err, syscall.EISDIR)
	_, err = d.OpenFile("fifo", os.O_RDONLY, 0)
	require.ErrorContains(t, err, "not a regular file")
	for _, name := range []string{"fifo", "link", "dir"} {
		_, err := vfs.OpenRegular(filepath.Join(base, name))
		requireNamed(t, err, name)
	}
}

func TestOS_SameAllocatesNothing(t *testing.T) {
	d := openDir(t, vfs.OS{}, t.TempDir())
	f := openFile(t, d, "00000000000000000000.log", create)
	allocs := testing.AllocsPerRun(100, func() {
		if same, err := d.Same("00000000000000000000.log", f); !same || err != nil {
			t.Error("not the same", err)
		}
	})
	if runtime.GOOS == "linux" && runtime.GOARCH != "386" {
		require.Zero(t, allocs)
	}
	require.LessOrEqual(t, allocs, 1.0)
}

func TestOS_AllocateTakesSpace(t *testing.T) {
	t.Parallel()
	f := openFile(t, openDir(t, vfs.OS{}, t.TempDir()), "f", create)
	write(t, f, 0, "x")
	if err := f.Allocate(0, 1<<20); err != nil {
		require.ErrorIs(t, err, vfs.ErrUnsupported)
		t.Skip("not supported here")
	}
	info, err := f.Stat()
	require.NoError(t, err)
	require.EqualValues(t, 1, info.Size())
	require.GreaterOrEqual(t, info.Sys().(*syscall.Stat_t).Blocks, int64(1<<20/512))
}

// TestOS_DirectoryCannotBeSynced: procfs is a mount on which it is so.
func TestOS_DirectoryCannotBeSynced(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("needs procfs")
	}
	d, err := vfs.OS{}.OpenDir("/proc/self")
	require.NoError(t, err)
	defer d.Close()
	err = d.Sync()
	require.ErrorContains(t, err, "/proc/self: the file system cannot sync directories")
	require.ErrorIs(t, err, syscall.EINVAL)
	require.ErrorContains(t, d.SyncParent(), "the file system cannot sync directories")
}

func TestOS_RelativePath(t *testing.T) {
	base := t.TempDir()
	t.Chdir(base)
	require.NoError(t, vfs.OS{}.MkdirAll("a/b", 0o755))
	d := openDir(t, vfs.OS{}, "a/b")
	require.Equal(t, "a/b", d.Path())
	t.Chdir("/")
	writeFile(t, d, "f", "x", false)
	require.FileExists(t, filepath.Join(base, "a", "b", "f"))
	lock, err := d.Lock("LOCK")
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(base, "a", "b", "LOCK"))
	require.NoError(t, lock.Unlock())
}

// TestOS_ParentCannotBeRead: a service's directory often stands in one that
// only root may list.
func TestOS_ParentCannotBeRead(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 || runtime.GOOS != "linux" {
		t.Skip("needs syncfs, and permissions that mean something")
	}
	base := t.TempDir()
	d := openDir(t, vfs.OS{}, filepath.Join(base, "parent", "d"))
	require.NoError(t, os.Chmod(filepath.Join(base, "parent"), 0o111))
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(base, "parent"), 0o755) })
	require.NoError(t, d.SyncParent())
}
