//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package vfs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// The two ways of asking which inode a name leads to agree, also about symbolic links,
// which both follow, and with the inode of a file that is open.
func TestIDOfName(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	require.NoError(t, err)
	defer unix.Close(fd)
	f, err := os.Create(filepath.Join(path, "f"))
	require.NoError(t, err)
	held := &osFile{File: f}
	defer held.Close()
	require.NoError(t, held.init())
	require.NoError(t, os.WriteFile(filepath.Join(path, "other"), nil, 0o600))
	require.NoError(t, os.Symlink("f", filepath.Join(path, "link")))
	for _, ask := range []func(int, string) (fileID, error){idOfName, statID} {
		for _, name := range []string{"f", "link"} {
			id, err := ask(fd, name)
			require.NoError(t, err)
			require.Equal(t, held.id, id, name)
		}
		id, err := ask(fd, "other")
		require.NoError(t, err)
		require.NotEqual(t, held.id, id)
		_, err = ask(fd, "none")
		require.ErrorIs(t, err, os.ErrNotExist)
		_, err = ask(fd, strings.Repeat("n", 256))
		require.ErrorIs(t, err, unix.ENAMETOOLONG)
		_, err = ask(-1, "f")
		require.ErrorIs(t, err, unix.EBADF)
	}
}
