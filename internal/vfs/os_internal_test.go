package vfs

import (
	"path/filepath"
	"testing"

	"github.com/gofrs/flock"
	"github.com/stretchr/testify/require"
)

// TestLeadsTo: between opening LOCK by path and locking it, the name may be
// given to another file. A lock on the old one would keep nobody out.
func TestLeadsTo(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	opened, err := OS{}.OpenDir(path)
	require.NoError(t, err)
	d := opened.(*osDir)
	defer d.Close()

	lock := flock.New(filepath.Join(path, "LOCK"))
	locked, err := lock.TryLock()
	require.NoError(t, err)
	require.True(t, locked)
	require.NoError(t, d.leadsTo("LOCK", lock.Stat))
	other := flock.New(filepath.Join(path, "other"))
	locked, err = other.TryLock()
	require.NoError(t, err)
	require.True(t, locked)
	require.ErrorIs(t, d.leadsTo("LOCK", other.Stat), errReplaced)
	require.NoError(t, lock.Unlock())
	require.NoError(t, other.Unlock())
}
