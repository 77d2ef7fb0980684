package vfs_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/internal/vfs"
)

func TestMem_PathsStartAtOneRoot(t *testing.T) {
	t.Parallel()
	m := vfs.NewMem()
	writeFile(t, openDir(t, m, "a/b"), "f", "x", false)
	for _, path := range []string{"/a/b", "a/b/", "./a//b", "/a/../a/b"} {
		require.Equal(t, "x", readIn(t, m, path, "f"), path)
	}
	require.Equal(t, []string{"a"}, names(t, openDir(t, m, "/")))
	require.NoError(t, openDir(t, m, "/").SyncParent())
}

func TestMem_RemovedDirectory(t *testing.T) {
	t.Parallel()
	m := vfs.NewMem()
	d := openDir(t, m, "/d")
	require.NoError(t, openDir(t, m, "/").Remove("d"))
	_, err := d.OpenFile("f", create, 0o644)
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = m.OpenDir("/d")
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestMem_NamesAreRepeatableButNotSorted(t *testing.T) {
	t.Parallel()
	list := func() []string {
		d := openDir(t, vfs.NewMem(), "/d")
		for i := range 10 {
			writeFile(t, d, fmt.Sprintf("%020d.log", i), "", false)
		}
		names, err := d.Names()
		require.NoError(t, err)
		return names
	}
	first := list()
	require.Equal(t, first, list())
	require.False(t, slices.IsSorted(first))
}

func TestMem_Clock(t *testing.T) {
	t.Parallel()
	m := vfs.NewMem()
	now := time.UnixMilli(1_000_000)
	m.SetNow(func() time.Time { return now })
	d := openDir(t, m, "/d")
	writeFile(t, d, "f", "x", false)
	now = now.Add(time.Hour)
	info, err := d.Stat("f")
	require.NoError(t, err)
	require.Equal(t, time.UnixMilli(1_000_000), info.ModTime())
}

func TestMem_Network(t *testing.T) {
	t.Parallel()
	m := vfs.NewMem()
	d := openDir(t, m, "/d")
	network, err := d.Network()
	require.NoError(t, err)
	require.Empty(t, network)
	m.SetNetwork("nfs")
	network, err = d.Network()
	require.NoError(t, err)
	require.Equal(t, "nfs", network)
}

// steps changes something in every way that counts as an operation, and stops
// at the first error. It returns how many steps were done.
func steps(m *vfs.Mem, d vfs.Dir) (int, error) {
	var f vfs.File
	list := []func() error{
		func() (err error) { f, err = d.OpenFile("a", create, 0o644); return err },
		func() error { _, err := f.WriteAt([]byte("hello"), 0); return err },
		func() error { return f.Allocate(0, 100) },
		func() error { return f.SyncData() },
		func() error { return f.Truncate(3) },
		func() error { return f.Sync() },
		func() error { return d.Rename("a", "b") },
		func() error { return d.Sync() },
		func() error { return d.SyncParent() },
		func() error { return d.Chtimes("b", time.UnixMilli(1)) },
		func() error { return d.Remove("b") },
		func() (err error) { f, err = d.OpenFile("c", create, 0o644); return err },
		func() (err error) { f, err = d.OpenFile("c", readWrite|os.O_TRUNC, 0o644); return err },
		func() error { lock, err := d.Lock("LOCK"); return errors.Join(err, unlock(lock)) },
		func() error { return m.MkdirAll("/log/sub", 0o755) }, // two syncs more
	}
	for i, step := range list {
		if err := step(); err != nil {
			return i, err
		}
	}
	return len(list), nil
}

func unlock(lock vfs.Lock) error {
	if lock == nil {
		return nil
	}
	return lock.Unlock()
}

func TestMem_CutAtEachOperation(t *testing.T) {
	t.Parallel()
	m := vfs.NewMem()
	d := openDir(t, m, "/log")
	before := m.Ops()
	done, err := steps(m, d)
	require.NoError(t, err)
	total := m.Ops() - before
	require.EqualValues(t, done+2, total)

	for n := range total {
		m := vfs.NewMem()
		d := openDir(t, m, "/log")
		m.SetCut(n)
		require.False(t, m.WasCut())
		done, err := steps(m, d)
		require.ErrorIs(t, err, vfs.ErrCut)
		require.EqualValues(t, min(n, 14), done)
		require.True(t, m.WasCut())
		require.EqualValues(t, before+n, m.Ops())

		// Nothing more happens, but looking is free.
		image := names(t, d)
		_, err = d.OpenFile("late", create, 0o644)
		require.ErrorIs(t, err, vfs.ErrCut)
		require.ErrorIs(t, d.Sync(), vfs.ErrCut)
		require.Equal(t, image, names(t, d))
		require.EqualValues(t, before+n, m.Ops())

		// The images are not cut.
		writeFile(t, openDir(t, m.KillImage(), "/log"), "late", "x", true)
		writeFile(t, openDir(t, m.Crash(1), "/log"), "late", "x", true)
		m.SetCut(-1)
		writeFile(t, d, "late", "x", true)
	}
}

func TestMem_TornCut(t *testing.T) {
	t.Parallel()
	m := vfs.NewMem()
	d := openDir(t, m, "/d")
	f := openFile(t, d, "f", create)
	write(t, f, 0, "aaaaa")
	m.SetTornCut(1, 2)
	write(t, f, 5, "bbbbb")
	n, err := f.WriteAt([]byte("ccccc"), 10)
	require.ErrorIs(t, err, vfs.ErrCut)
	require.Equal(t, 2, n)
	require.Equal(t, "aaaaabbbbbcc", content(t, f))
	n, err = f.WriteAt([]byte("ddddd"), 0)
	require.ErrorIs(t, err, vfs.ErrCut)
	require.Zero(t, n)
	require.Equal(t, "aaaaabbbbbcc", readIn(t, m.KillImage(), "/d", "f"))
}

func TestMem_Capacity(t *testing.T) {
	t.Parallel()
	m := vfs.NewMem()
	d := openDir(t, m, "/d")
	f := openFile(t, d, "f", create)
	write(t, f, 0, "12345")
	used := m.Used()
	m.SetCapacity(used + 10)

	n, err := f.WriteAt([]byte(strings.Repeat("x", 20)), 5)
	requirePathError(t, err, syscall.ENOSPC, "f")
	require.Equal(t, 10, n)
	require.Equal(t, "12345xxxxxxxxxx", content(t, f), "what fits is written")
	n, err = f.WriteAt([]byte("y"), 15)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.Zero(t, n)
	write(t, f, 0, "over") // needs no space
	require.ErrorIs(t, f.Truncate(30), syscall.ENOSPC)
	_, err = d.OpenFile("g", create, 0o644)
	requirePathError(t, err, syscall.ENOSPC, "g")
	require.ErrorIs(t, m.MkdirAll("/e", 0o755), syscall.ENOSPC)
	require.Equal(t, []string{"f"}, names(t, d))
	require.NoError(t, f.Sync())

	require.NoError(t, f.Truncate(5))
	require.Equal(t, used, m.Used())
	require.ErrorIs(t, f.Allocate(0, 16), syscall.ENOSPC)
	require.NoError(t, f.Allocate(0, 15))
	require.Equal(t, used+10, m.Used())
	write(t, f, 5, "0123456789")
	require.Equal(t, used+10, m.Used(), "allocated space is used up")
	_, err = f.WriteAt([]byte("y"), 30)
	require.ErrorIs(t, err, syscall.ENOSPC, "holes count")
}

func TestMem_CapacityIsGivenBack(t *testing.T) {
	t.Parallel()
	m := vfs.NewMem()
	d := openDir(t, m, "/d")
	empty := m.Used()
	f, err := d.OpenFile("f", create, 0o644)
	require.NoError(t, err)
	write(t, f, 0, "12345")
	with := m.Used()
	require.NoError(t, d.Remove("f"))
	require.Equal(t, with, m.Used(), "still open")
	require.NoError(t, f.Close())
	require.Equal(t, empty, m.Used())

	writeFile(t, d, "a", "12345", true)
	writeFile(t, d, "b", "12345", true)
	require.NoError(t, d.Rename("a", "b"))
	require.Equal(t, with, m.Used())
	require.Equal(t, with, m.KillImage().Used())
	require.Equal(t, empty, m.SyncedImage().Used())
	m.SetCapacity(0)
	_, err = openDir(t, m.KillImage(), "/d").OpenFile("c", create, 0o644)
	require.ErrorIs(t, err, syscall.ENOSPC, "the disk is as large as before")
}

func TestMem_SparseFile(t *testing.T) {
	t.Parallel()
	f := openFile(t, openDir(t, vfs.NewMem(), "/d"), "f", create)
	require.NoError(t, f.Truncate(1<<35))
	buf := []byte{1, 2, 3}
	_, err := f.ReadAt(buf, 1<<34)
	require.NoError(t, err)
	require.Equal(t, []byte{0, 0, 0}, buf)
	require.ErrorIs(t, f.Truncate(1<<50), syscall.EFBIG)
	_, err = f.WriteAt(buf, 1<<50)
	require.ErrorIs(t, err, syscall.EFBIG)
}

func BenchmarkMem_AppendSync(b *testing.B) {
	m := vfs.NewMem()
	require.NoError(b, m.MkdirAll("/d", 0o755))
	d, err := m.OpenDir("/d")
	require.NoError(b, err)
	f, err := d.OpenFile("f", create, 0o644)
	require.NoError(b, err)
	buf := make([]byte, 64<<10)
	b.SetBytes(int64(len(buf)))
	b.ReportAllocs()
	var off int64
	for b.Loop() {
		_, _ = f.WriteAt(buf, off)
		_ = f.SyncData()
		off = (off + int64(len(buf))) % (32 << 20)
	}
}
