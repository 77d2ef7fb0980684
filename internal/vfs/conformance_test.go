package vfs_test

import (
	"context"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/internal/vfs"
)

// kind is a file system under test and what it is not held to.
type kind struct {
	name    string
	fsys    func() vfs.FS
	real    bool // needs a real directory
	windows bool // Windows rules for open files
}

func kinds() []kind {
	none := func(vfs.Op) error { return nil }
	windows := runtime.GOOS == "windows"
	return []kind{
		{name: "OS", fsys: func() vfs.FS { return vfs.OS{} }, real: true, windows: windows},
		{name: "Mem", fsys: func() vfs.FS { return vfs.NewMem() }},
		{name: "Inject(OS)", fsys: func() vfs.FS { return vfs.Inject(vfs.OS{}, none) }, real: true, windows: windows},
		{name: "Inject(Mem)", fsys: func() vfs.FS { return vfs.Inject(vfs.NewMem(), none) }},
		{name: "Windows(Mem)", fsys: func() vfs.FS { return vfs.Windows(vfs.NewMem()) }, windows: true},
		{name: "Windows(OS)", fsys: func() vfs.FS { return vfs.Windows(vfs.OS{}) }, real: true, windows: true},
		{name: "Windows(Inject(Mem))", fsys: func() vfs.FS { return vfs.Windows(vfs.Inject(vfs.NewMem(), nil)) }, windows: true},
	}
}

// TestConformance runs the same checks on every implementation.
func TestConformance(t *testing.T) {
	t.Parallel()
	checks := []struct {
		name string
		fn   func(t *testing.T, k kind, fsys vfs.FS, base string)
	}{
		{"mkdir", checkMkdir},
		{"open flags", checkOpenFlags},
		{"read and write", checkReadWrite},
		{"truncate", checkTruncate},
		{"allocate", checkAllocate},
		{"names", checkNames},
		{"rename", checkRename},
		{"bad names", checkBadNames},
		{"same", checkSame},
		{"removed but open", checkRemovedButOpen},
		{"times", checkTimes},
		{"sync", checkSync},
		{"lock", checkLock},
		{"lock directory", checkLockDir},
		{"closed", checkClosed},
		{"concurrent reads", checkConcurrentReads},
	}
	for _, k := range kinds() {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			for _, check := range checks {
				t.Run(check.name, func(t *testing.T) {
					t.Parallel()
					base := "/base"
					if k.real {
						base = t.TempDir()
					}
					check.fn(t, k, k.fsys(), base)
				})
			}
		})
	}
}

func checkMkdir(t *testing.T, _ kind, fsys vfs.FS, base string) {
	deep := filepath.Join(base, "a", "b", "c")
	_, err := fsys.OpenDir(deep)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, fsys.MkdirAll(deep, 0o755))
	require.NoError(t, fsys.MkdirAll(deep, 0o755), "an existing directory is no error")
	d := openDir(t, fsys, deep)
	require.Equal(t, deep, d.Path())
	require.Empty(t, names(t, d))

	writeFile(t, d, "file", "x", false)
	require.Error(t, fsys.MkdirAll(filepath.Join(deep, "file"), 0o755))
	require.Error(t, fsys.MkdirAll(filepath.Join(deep, "file", "below"), 0o755))
	_, err = fsys.OpenDir(filepath.Join(deep, "file"))
	require.Error(t, err)

	parent := openDir(t, fsys, filepath.Join(base, "a"))
	require.Equal(t, []string{"b"}, names(t, parent))
	info, err := parent.Stat("b")
	require.NoError(t, err)
	require.True(t, info.IsDir())
	require.Error(t, parent.Remove("b"), "a directory that is not empty")
}

func checkOpenFlags(t *testing.T, _ kind, fsys vfs.FS, base string) {
	d := openDir(t, fsys, filepath.Join(base, "d"))
	_, err := d.OpenFile("f", readWrite, 0)
	requirePathError(t, err, fs.ErrNotExist, "f")
	writeFile(t, d, "f", "content", false)
	_, err = d.OpenFile("f", create|os.O_EXCL, 0o644)
	requirePathError(t, err, fs.ErrExist, "f")

	f := openFile(t, d, "f", create)
	require.Equal(t, "content", content(t, f), "opening does not truncate")
	f = openFile(t, d, "f", readWrite|os.O_TRUNC)
	require.Empty(t, content(t, f))

	f = openFile(t, d, "f", os.O_RDONLY)
	_, err = f.WriteAt([]byte("x"), 0)
	require.Error(t, err)
	require.Error(t, f.Truncate(5))
	require.Empty(t, content(t, f))

	f = openFile(t, d, "f", os.O_WRONLY)
	write(t, f, 0, "y")
	_, err = f.ReadAt(make([]byte, 1), 0)
	require.Error(t, err)
	require.NotErrorIs(t, err, io.EOF)

	f = openFile(t, d, "f", os.O_WRONLY|os.O_APPEND)
	_, err = f.WriteAt([]byte("x"), 0)
	require.Error(t, err, "as os.File has it")
}

func checkReadWrite(t *testing.T, _ kind, fsys vfs.FS, base string) {
	f := openFile(t, openDir(t, fsys, filepath.Join(base, "d")), "f", create)
	buf := make([]byte, 8)

	n, err := f.ReadAt(buf, 0)
	require.Zero(t, n)
	require.Equal(t, io.EOF, err)

	write(t, f, 10_000, "hello")
	n, err = f.ReadAt(buf, 9_998)
	require.Equal(t, io.EOF, err)
	require.Equal(t, "\x00\x00hello", string(buf[:n]))
	n, err = f.ReadAt(buf[:5], 10_000)
	require.NoError(t, err, "up to the end, but not past it")
	require.Equal(t, "hello", string(buf[:n]))
	n, err = f.ReadAt(buf, 20_000)
	require.Zero(t, n)
	require.Equal(t, io.EOF, err)
	n, err = f.ReadAt(nil, 20_000)
	require.Zero(t, n)
	require.NoError(t, err)

	long := strings.Repeat("0123456789", 5_000)
	write(t, f, 4_090, long)
	require.Equal(t, strings.Repeat("\x00", 4_090)+long, content(t, f))
	write(t, f, 8_000, "in the middle")
	require.Equal(t, long[:3_910]+"in the middle"+long[3_923:], content(t, f)[4_090:])
	n, err = f.WriteAt(nil, 1<<20)
	require.Zero(t, n)
	require.NoError(t, err)
	require.Len(t, content(t, f), 54_090, "writing nothing does not extend")

	_, err = f.WriteAt([]byte("x"), -1)
	require.Error(t, err)
	_, err = f.ReadAt(buf, -1)
	require.Error(t, err)
	require.NotErrorIs(t, err, io.EOF)
}

func checkTruncate(t *testing.T, _ kind, fsys vfs.FS, base string) {
	f := openFile(t, openDir(t, fsys, filepath.Join(base, "d")), "f", create)
	write(t, f, 0, strings.Repeat("x", 20_000))
	require.NoError(t, f.Truncate(5_000))
	require.Equal(t, strings.Repeat("x", 5_000), content(t, f))
	require.NoError(t, f.Truncate(9_000))
	require.Equal(t, strings.Repeat("x", 5_000)+strings.Repeat("\x00", 4_000), content(t, f))
	require.NoError(t, f.Truncate(4_096))
	write(t, f, 8_192, "y")
	require.Equal(t, strings.Repeat("x", 4_096)+strings.Repeat("\x00", 4_096)+"y", content(t, f))
	require.NoError(t, f.Truncate(0))
	require.Empty(t, content(t, f))
	require.Error(t, f.Truncate(-1))
}

func checkAllocate(t *testing.T, _ kind, fsys vfs.FS, base string) {
	f := openFile(t, openDir(t, fsys, filepath.Join(base, "d")), "f", create)
	write(t, f, 0, "abc")
	err := f.Allocate(0, 1<<20)
	if err != nil {
		requirePathError(t, err, vfs.ErrUnsupported, "f")
	}
	require.Equal(t, "abc", content(t, f), "neither size nor content change")
	write(t, f, 3, "def")
	require.Equal(t, "abcdef", content(t, f))
	require.Error(t, f.Allocate(0, 0))
}

func checkNames(t *testing.T, _ kind, fsys vfs.FS, base string) {
	d := openDir(t, fsys, filepath.Join(base, "d"))
	var want []string
	for _, name := range []string{"a", "b.log", "c.idx", "Ü", "with space"} {
		writeFile(t, d, name, name, false)
		want = append(want, name)
	}
	require.ElementsMatch(t, want, names(t, d))
	require.ElementsMatch(t, want, names(t, d), "and once more")
	require.NoError(t, d.Remove("b.log"))
	require.NotContains(t, names(t, d), "b.log")
	requirePathError(t, d.Remove("b.log"), fs.ErrNotExist, "b.log")
	_, err := d.Stat("b.log")
	requirePathError(t, err, fs.ErrNotExist, "b.log")
	info, err := d.Stat("with space")
	require.NoError(t, err)
	require.Equal(t, "with space", info.Name())
	require.EqualValues(t, 10, info.Size())
	require.True(t, info.Mode().IsRegular())
}

func checkRename(t *testing.T, _ kind, fsys vfs.FS, base string) {
	d := openDir(t, fsys, filepath.Join(base, "d"))
	requirePathError(t, d.Rename("a", "b"), fs.ErrNotExist, "a")
	writeFile(t, d, "a", "new", false)
	require.NoError(t, d.Rename("a", "b"))
	require.Equal(t, []string{"b"}, names(t, d))
	writeFile(t, d, "c", "old", false)
	require.NoError(t, d.Rename("b", "c"))
	require.Equal(t, []string{"c"}, names(t, d))
	require.Equal(t, "new", read(t, d, "c"))
	require.NoError(t, d.Rename("c", "c"))
	require.Equal(t, "new", read(t, d, "c"))

	require.NoError(t, fsys.MkdirAll(filepath.Join(base, "d", "sub"), 0o755))
	require.Error(t, d.Rename("c", "sub"), "a directory is not replaced by a file")
	require.Error(t, d.Rename("sub", "c"))
	require.NoError(t, d.Rename("sub", "sub2"))
	require.Equal(t, []string{"c", "sub2"}, names(t, d))
	require.NoError(t, d.Remove("sub2"))
}

func checkBadNames(t *testing.T, _ kind, fsys vfs.FS, base string) {
	d := openDir(t, fsys, filepath.Join(base, "d"))
	writeFile(t, d, "f", "x", false)
	f := openFile(t, d, "f", readWrite)
	require.NoError(t, fsys.MkdirAll(filepath.Join(base, "d", "sub"), 0o755))
	for _, name := range []string{"", ".", "..", "sub/f", "/f", "../d/f"} {
		_, err := d.OpenFile(name, create, 0o644)
		require.ErrorIs(t, err, fs.ErrInvalid, "open %q", name)
		require.ErrorIs(t, d.Rename("f", name), fs.ErrInvalid, "rename to %q", name)
		require.ErrorIs(t, d.Rename(name, "g"), fs.ErrInvalid, "rename %q", name)
		require.ErrorIs(t, d.Remove(name), fs.ErrInvalid, "remove %q", name)
		require.ErrorIs(t, d.Chtimes(name, time.Now()), fs.ErrInvalid, "chtimes %q", name)
		_, err = d.Stat(name)
		require.ErrorIs(t, err, fs.ErrInvalid, "stat %q", name)
		_, err = d.Same(name, f)
		require.ErrorIs(t, err, fs.ErrInvalid, "same %q", name)
		_, err = d.Lock(name)
		require.ErrorIs(t, err, fs.ErrInvalid, "lock %q", name)
	}
	require.Equal(t, []string{"f", "sub"}, names(t, d))
}

func checkSame(t *testing.T, k kind, fsys vfs.FS, base string) {
	d := openDir(t, fsys, filepath.Join(base, "d"))
	f := openFile(t, d, "f", create)
	writeFile(t, d, "g", "", false)
	same := func(name string) bool {
		t.Helper()
		ok, err := d.Same(name, f)
		require.NoError(t, err)
		return ok
	}
	require.True(t, same("f"))
	require.False(t, same("g"))
	require.False(t, same("gone"))
	if k.windows {
		return
	}
	require.NoError(t, d.Rename("f", "moved"))
	require.False(t, same("f"))
	require.True(t, same("moved"))
	require.NoError(t, d.Rename("g", "moved"))
	require.False(t, same("moved"), "another file has taken the name")
	require.NoError(t, d.Remove("moved"))
	require.False(t, same("moved"))
}

func checkRemovedButOpen(t *testing.T, k kind, fsys vfs.FS, base string) {
	if k.windows {
		t.Skip("open files cannot be removed")
	}
	d := openDir(t, fsys, filepath.Join(base, "d"))
	f := openFile(t, d, "f", create)
	write(t, f, 0, "still here")
	require.NoError(t, d.Remove("f"))
	require.Equal(t, "still here", content(t, f))
	write(t, f, 6, "there")
	require.NoError(t, f.Sync())
	require.Equal(t, "still there", content(t, f))
	writeFile(t, d, "f", "another", false)
	require.Equal(t, "still there", content(t, f))
}

func checkTimes(t *testing.T, _ kind, fsys vfs.FS, base string) {
	d := openDir(t, fsys, filepath.Join(base, "d"))
	f := openFile(t, d, "f", create)
	want := time.UnixMilli(1_600_000_000_123)
	requirePathError(t, d.Chtimes("gone", want), fs.ErrNotExist, "gone")
	require.NoError(t, d.Chtimes("f", want))
	info, err := d.Stat("f")
	require.NoError(t, err)
	require.WithinDuration(t, want, info.ModTime(), 0)
	info, err = f.Stat()
	require.NoError(t, err)
	require.WithinDuration(t, want, info.ModTime(), 0)
	write(t, f, 0, "later")
	info, err = d.Stat("f")
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), info.ModTime(), time.Minute)
}

func checkSync(t *testing.T, _ kind, fsys vfs.FS, base string) {
	d := openDir(t, fsys, filepath.Join(base, "d"))
	f := openFile(t, d, "f", create)
	write(t, f, 0, "x")
	require.NoError(t, f.SyncData())
	require.NoError(t, f.Sync())
	require.NoError(t, d.Sync())
	require.NoError(t, d.SyncParent())
	_, err := d.Network()
	require.NoError(t, err)
}

func checkLock(t *testing.T, _ kind, fsys vfs.FS, base string) {
	path := filepath.Join(base, "d")
	d := openDir(t, fsys, path)
	lock, err := d.Lock("LOCK")
	require.NoError(t, err)
	require.Equal(t, []string{"LOCK"}, names(t, d), "made when missing")

	_, err = d.Lock("LOCK")
	requirePathError(t, err, vfs.ErrLocked, "LOCK")
	d2 := openDir(t, fsys, path)
	_, err = d2.Lock("LOCK")
	requirePathError(t, err, vfs.ErrLocked, "LOCK")
	other, err := d2.Lock("other.lock")
	require.NoError(t, err)

	// The lock covers byte 0; what stands behind it can be read and written.
	f := openFile(t, d2, "LOCK", create)
	write(t, f, 1, "pid")
	buf := make([]byte, 3)
	_, err = f.ReadAt(buf, 1)
	require.NoError(t, err)
	require.Equal(t, "pid", string(buf))
	require.NoError(t, f.Close())
	_, err = d2.Lock("LOCK")
	require.ErrorIs(t, err, vfs.ErrLocked, "closing another open file does not unlock")

	require.NoError(t, lock.Unlock())
	require.NoError(t, lock.Unlock(), "a second time does nothing")
	lock2, err := d2.Lock("LOCK")
	require.NoError(t, err)
	require.NoError(t, lock.Unlock(), "and does not touch the next holder's lock")
	_, err = d.Lock("LOCK")
	require.ErrorIs(t, err, vfs.ErrLocked)
	require.NoError(t, lock2.Unlock())
	require.NoError(t, other.Unlock())
	require.Equal(t, []string{"LOCK", "other.lock"}, names(t, d), "never removed")
}

func checkLockDir(t *testing.T, k kind, fsys vfs.FS, base string) {
	path := filepath.Join(base, "d")
	d, d2 := openDir(t, fsys, path), openDir(t, fsys, path)
	lock, err := d.LockDir()
	require.NoError(t, err)
	if k.windows {
		again, err := d2.LockDir()
		require.NoError(t, err, "no such locks there")
		require.NoError(t, again.Unlock())
		return
	}
	_, err = d.LockDir()
	requirePathError(t, err, vfs.ErrLocked, "d")
	_, err = d2.LockDir()
	requirePathError(t, err, vfs.ErrLocked, "d")

	// It holds when LOCK is removed under the writer.
	file, err := d.Lock("LOCK")
	require.NoError(t, err)
	require.NoError(t, d.Remove("LOCK"))
	file2, err := d2.Lock("LOCK")
	require.NoError(t, err, "a new file, which nobody has locked")
	_, err = d2.LockDir()
	require.ErrorIs(t, err, vfs.ErrLocked)
	require.NoError(t, file2.Unlock())
	require.NoError(t, file.Unlock())

	require.NoError(t, lock.Unlock())
	require.NoError(t, lock.Unlock())
	lock, err = d2.LockDir()
	require.NoError(t, err)
	require.NoError(t, lock.Unlock())
}

func checkClosed(t *testing.T, _ kind, fsys vfs.FS, base string) {
	d := openDir(t, fsys, filepath.Join(base, "d"))
	f := openFile(t, d, "f", create)
	g := openFile(t, d, "g", create)
	require.NoError(t, f.Close())
	require.ErrorIs(t, f.Close(), fs.ErrClosed)
	_, err := f.ReadAt(make([]byte, 1), 0)
	require.ErrorIs(t, err, fs.ErrClosed)
	_, err = f.WriteAt([]byte("x"), 0)
	require.ErrorIs(t, err, fs.ErrClosed)
	require.Error(t, f.SyncData())
	require.ErrorIs(t, f.Sync(), fs.ErrClosed)
	require.ErrorIs(t, f.Truncate(0), fs.ErrClosed)
	_, err = f.Stat()
	require.ErrorIs(t, err, fs.ErrClosed)

	require.NoError(t, d.Close())
	require.ErrorIs(t, d.Close(), fs.ErrClosed)
	_, err = d.OpenFile("f", readWrite, 0)
	require.ErrorIs(t, err, fs.ErrClosed)
	_, err = d.Names()
	require.ErrorIs(t, err, fs.ErrClosed)
	_, err = d.Same("f", g)
	require.ErrorIs(t, err, fs.ErrClosed)
	if runtime.GOOS != "windows" {
		require.ErrorIs(t, d.Sync(), fs.ErrClosed)
		require.ErrorIs(t, d.SyncParent(), fs.ErrClosed)
	}
	write(t, g, 0, "an open file needs no directory")
	require.NoError(t, g.SyncData())
}

func checkConcurrentReads(t *testing.T, _ kind, fsys vfs.FS, base string) {
	d := openDir(t, fsys, filepath.Join(base, "d"))
	f := openFile(t, d, "f", create)
	head := strings.Repeat("x", 10_000)
	write(t, f, 0, head)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			buf := make([]byte, len(head))
			for range 50 {
				if _, err := f.ReadAt(buf, 0); err != nil || string(buf) != head {
					t.Error("torn read", err)
				}
				if ok, err := d.Same("f", f); !ok || err != nil {
					t.Error("not the same", err)
				}
			}
		})
	}
	for i := range 100 {
		write(t, f, int64(len(head)+i), "y")
	}
	wg.Wait()
}

func TestContext(t *testing.T) {
	t.Parallel()
	require.Equal(t, vfs.OS{}, vfs.FromContext(context.Background()))
	m := vfs.NewMem()
	require.Same(t, m, vfs.FromContext(vfs.NewContext(context.Background(), m)))
}
