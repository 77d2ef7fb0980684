package evlog

import (
	"errors"
	"os"
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

// Whatever changes names, or relies on them, waits for those that were found to be
// durable, once, and gets the error where they cannot be. (I5)
func TestStickyDir_SettlesBeforeAChange(t *testing.T) {
	for name, do := range map[string]func(d *stickyDir) error{
		"settle": func(d *stickyDir) error { return d.settle() },
		"sync":   func(d *stickyDir) error { return d.Sync() },
		"create": func(d *stickyDir) error {
			f, err := d.OpenFile("new", os.O_RDWR|os.O_CREATE, 0o600)
			if err != nil {
				return err
			}
			return f.Close()
		},
		"rename": func(d *stickyDir) error { return d.Rename("a", "b") },
		"remove": func(d *stickyDir) error { return d.Remove("a") },
	} {
		for _, fails := range []vfs.OpKind{0, vfs.OpDirSync, vfs.OpSyncParent} {
			t.Run(name+", fails: "+fails.String(), func(t *testing.T) {
				m := vfs.NewMem()
				require.NoError(t, m.MkdirAll("/d", 0o700))
				held := make(chan struct{})
				trace := vfs.NewTrace(vfs.OpCreate | vfs.OpRename | vfs.OpRemove | vfs.OpAnySync)
				inner, err := vfs.Inject(m, func(op vfs.Op) error {
					if op.Kind == vfs.OpDirSync {
						<-held
					}
					if op.Kind == fails {
						return syscall.EIO
					}
					return nil
				}).After(trace.Record).OpenDir("/d")
				require.NoError(t, err)
				f, err := inner.OpenFile("a", os.O_RDWR|os.O_CREATE, 0o600)
				require.NoError(t, err)
				require.NoError(t, f.Close())
				before := trace.Strings()
				d := &stickyDir{Dir: inner}
				d.find()
				done := make(chan error, 1)
				go func() { done <- do(d) }()
				close(held)
				err = <-done
				ops := trace.Strings()[len(before):]
				if fails != 0 {
					require.ErrorIs(t, err, syscall.EIO)
					require.True(t, errors.Is(do(d), syscall.EIO) && errors.Is(d.Sync(), syscall.EIO), "for good")
					require.NotContains(t, trace.Strings(), "syncparent")
					require.LessOrEqual(t, len(ops), 1, "changed all the same: %q", ops)
				} else {
					require.NoError(t, err)
					require.GreaterOrEqual(t, len(ops), 2)
					require.Equal(t, []string{"dirsync", "syncparent"}, ops[:2])
					require.NoError(t, d.settle())
					require.Equal(t, len(ops), len(trace.Strings())-len(before), "settled again")
				}
				require.NoError(t, d.Close())
			})
		}
	}
}
