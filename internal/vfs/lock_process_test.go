package vfs_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/internal/vfs"
)

// lockDirEnv tells the child process of TestOS_LockDiesWithItsProcess what to
// lock.
const lockDirEnv = "EVLOG_TEST_LOCK_DIR"

func TestOS_LockDiesWithItsProcess(t *testing.T) {
	if path := os.Getenv(lockDirEnv); path != "" {
		holdLocks(path)
	}
	path := t.TempDir()
	d := openDir(t, vfs.OS{}, path)

	child := exec.Command(os.Args[0], "-test.run=^TestOS_LockDiesWithItsProcess$")
	child.Env = append(os.Environ(), lockDirEnv+"="+path)
	child.Stderr = os.Stderr
	stdin, err := child.StdinPipe() // keeps the child waiting
	require.NoError(t, err)
	defer stdin.Close()
	stdout, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "locked\n", line)

	_, err = d.Lock("LOCK")
	require.ErrorIs(t, err, vfs.ErrLocked)
	if _, err = d.LockDir(); err != nil { // nil where there are no such locks
		require.ErrorIs(t, err, vfs.ErrLocked)
	}

	require.NoError(t, child.Process.Kill())
	_ = child.Wait()
	lock, err := d.Lock("LOCK")
	require.NoError(t, err)
	require.NoError(t, lock.Unlock())
	lock, err = d.LockDir()
	require.NoError(t, err)
	require.NoError(t, lock.Unlock())
}

// holdLocks is the child: it takes both locks and waits to be killed.
func holdLocks(path string) {
	d, err := vfs.OS{}.OpenDir(path)
	if err == nil {
		_, err = d.Lock("LOCK")
	}
	if err == nil {
		_, err = d.LockDir()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("locked")
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}
