package vfs_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/internal/vfs"
)

const (
	readWrite = os.O_RDWR
	create    = os.O_RDWR | os.O_CREATE
)

// openDir makes and opens a directory.
func openDir(t *testing.T, fsys vfs.FS, path string) vfs.Dir {
	t.Helper()
	require.NoError(t, fsys.MkdirAll(path, 0o755))
	d, err := fsys.OpenDir(path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// openFile opens a file until the end of the test.
func openFile(t *testing.T, d vfs.Dir, name string, flag int) vfs.File {
	t.Helper()
	f, err := d.OpenFile(name, flag, 0o644)
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func write(t *testing.T, f vfs.File, off int64, data string) {
	t.Helper()
	n, err := f.WriteAt([]byte(data), off)
	require.NoError(t, err)
	require.Equal(t, len(data), n)
}

// writeFile creates a file with content, synced if asked; its name is not.
func writeFile(t *testing.T, d vfs.Dir, name, data string, sync bool) {
	t.Helper()
	f, err := d.OpenFile(name, create|os.O_TRUNC, 0o644)
	require.NoError(t, err)
	write(t, f, 0, data)
	if sync {
		require.NoError(t, f.SyncData())
	}
	require.NoError(t, f.Close())
}

func content(t *testing.T, f vfs.File) string {
	t.Helper()
	info, err := f.Stat()
	require.NoError(t, err)
	buf := make([]byte, info.Size())
	n, err := f.ReadAt(buf, 0)
	if !errors.Is(err, io.EOF) {
		require.NoError(t, err)
	}
	require.Equal(t, len(buf), n)
	return string(buf)
}

const missing = "(missing)"

// read returns a file's content, or missing.
func read(t *testing.T, d vfs.Dir, name string) string {
	t.Helper()
	f, err := d.OpenFile(name, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return missing
	}
	require.NoError(t, err)
	defer f.Close()
	return content(t, f)
}

// readIn is read in another image of the file system.
func readIn(t *testing.T, fsys vfs.FS, dir, name string) string {
	t.Helper()
	d, err := fsys.OpenDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return missing
	}
	require.NoError(t, err)
	defer d.Close()
	return read(t, d, name)
}

func names(t *testing.T, d vfs.Dir) []string {
	t.Helper()
	list, err := d.Names()
	require.NoError(t, err)
	slices.Sort(list)
	return list
}

// requirePathError checks what the package comment says of errors.
func requirePathError(t *testing.T, err, target error, name string) {
	t.Helper()
	require.ErrorIs(t, err, target)
	requireNamed(t, err, name)
}

// requireNamed requires an error that names the file.
func requireNamed(t *testing.T, err error, name string) {
	t.Helper()
	var pathErr *fs.PathError
	require.ErrorAs(t, err, &pathErr)
	require.Equal(t, name, filepath.Base(pathErr.Path))
}

// outcomes are the different results of fn over many crashes.
func outcomes(m *vfs.Mem, fn func(image *vfs.Mem) string) map[string]int {
	seen := map[string]int{}
	for seed := range uint64(400) {
		seen[fn(m.Crash(seed))]++
	}
	return seen
}

func keys(m map[string]int) []string {
	var list []string
	for k := range m {
		list = append(list, k)
	}
	slices.Sort(list)
	return list
}
