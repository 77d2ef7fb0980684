package evlog

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/internal/vfs"
)

// After one directory sync has failed none succeeds any more, whoever asks: the
// next might report success for what the first has lost. (D6, I5)
func TestStickyDir_FailsForGood(t *testing.T) {
	m := vfs.NewMem()
	require.NoError(t, m.MkdirAll("/d", 0o700))
	syncs := 0
	d, err := vfs.Inject(m, func(op vfs.Op) error {
		if op.Kind != vfs.OpDirSync {
			return nil
		}
		if syncs++; syncs == 2 {
			return syscall.EIO
		}
		return nil
	}).OpenDir("/d")
	require.NoError(t, err)
	sticky := &stickyDir{Dir: d}
	require.NoError(t, sticky.Sync())
	for range 3 {
		require.ErrorIs(t, sticky.Sync(), syscall.EIO)
	}
	require.Equal(t, 2, syncs, "the disk is not asked again")
}
