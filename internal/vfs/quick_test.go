package vfs_test

import (
	"bytes"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/internal/vfs"
)

// The shorter ways say what the long ones do, of whatever is there.
func TestQuick_SaysWhatOpenFileAndStatDo(t *testing.T) {
	path := t.TempDir()
	content := bytes.Repeat([]byte("0123456789"), 1000)
	require.NoError(t, os.WriteFile(filepath.Join(path, "file"), content, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(path, "empty"), nil, 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(path, "dir"), 0o700))
	names := []string{"file", "empty", "dir", "none", "../x", ""}
	if runtime.GOOS != "windows" {
		require.NoError(t, os.Symlink("file", filepath.Join(path, "link")))
		require.NoError(t, os.Symlink(os.DevNull, filepath.Join(path, "out")))
		names = append(names, "link", "out")
	}
	d, err := vfs.OS{}.OpenDir(path)
	require.NoError(t, err)
	defer d.Close()
	long := struct{ vfs.Dir }{d} // hides the shorter ways
	for _, name := range names {
		for _, off := range []int64{0, 4000, 9900, 9999, 10000, 20000} {
			want, got := make([]byte, 100), make([]byte, 100)
			wantErr := vfs.ReadName(long, name, want, off)
			err := vfs.ReadName(d, name, got, off)
			require.Equal(t, wantErr, err, "%s at %d", name, off)
			require.Equal(t, want, got, "%s at %d", name, off)
		}
		for _, size := range []int{0, 100, 9999, 10000, 10001} {
			want, got := make([]byte, size), make([]byte, size)
			wantN, wantErr := vfs.ReadStart(long, name, want)
			n, err := vfs.ReadStart(d, name, got)
			require.Equal(t, wantErr, err, "%d of %s", size, name)
			require.Equal(t, wantN, n, "%d of %s", size, name)
			require.Equal(t, want, got, "%d of %s", size, name)
		}
		wantStamp, wantErr := vfs.StampOf(long, name)
		stamp, err := vfs.StampOf(d, name)
		require.Equal(t, wantErr, err, name)
		require.Equal(t, wantStamp, stamp, name)
	}

	b := make([]byte, 10)
	require.NoError(t, vfs.ReadName(d, "file", b, 5))
	require.Equal(t, "5678901234", string(b))
	require.ErrorIs(t, vfs.ReadName(d, "file", b, 9995), io.ErrUnexpectedEOF)
	require.ErrorIs(t, vfs.ReadName(d, "none", b, 0), fs.ErrNotExist)
	for _, n := range []int{10, 10000, 10001} {
		read, err := vfs.ReadStart(d, "file", make([]byte, n))
		require.NoError(t, err)
		require.Equal(t, min(n, 10000), read)
	}
	require.NoError(t, d.Close())
	require.ErrorIs(t, vfs.ReadName(d, "file", b, 0), fs.ErrClosed)
	_, err = vfs.StampOf(d, "file")
	require.ErrorIs(t, err, fs.ErrClosed)
}

// A file that was written to or replaced has another stamp.
func TestStamp(t *testing.T) {
	path := t.TempDir()
	name := filepath.Join(path, "file")
	require.NoError(t, os.WriteFile(name, []byte("a"), 0o600))
	at := time.Unix(1_700_000_000, 123_456_700) // as exact as NTFS is
	require.NoError(t, os.Chtimes(name, at, at))
	d, err := vfs.OS{}.OpenDir(path)
	require.NoError(t, err)
	defer d.Close()
	stamp := func() vfs.Stamp {
		s, err := vfs.StampOf(d, "file")
		require.NoError(t, err)
		return s
	}
	require.Equal(t, vfs.Stamp{Size: 1, Modified: at.UnixNano()}, stamp())
	require.NoError(t, os.WriteFile(name, []byte("ab"), 0o600))
	require.NoError(t, os.Chtimes(name, at, at))
	require.Equal(t, vfs.Stamp{Size: 2, Modified: at.UnixNano()}, stamp())
	require.NoError(t, os.Chtimes(name, at, at.Add(time.Second)))
	require.Equal(t, vfs.Stamp{Size: 2, Modified: at.Add(time.Second).UnixNano()}, stamp())
}
