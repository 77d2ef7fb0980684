package evlog

import (
	"fmt"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"

	"github.com/evlog-go/evlog/internal/vfs"
)

// stickyDir is the directory as a writer has it: one for everything that it does.
//
// Its syncs fail for good after one failed. A failed sync may have lost names that
// others made and have not synced yet, and the next one would report success (D6):
// who syncs last would believe in a name that is not there (I5).
//
// Names that were found at opening are no evidence either, until they were synced.
// That goes on beside the rest of opening, and for a moment after it where the log
// was closed cleanly: no name is changed before, and nothing published.
type stickyDir struct {
	vfs.Dir
	found  atomic.Bool    // names were found that are not known to be durable
	beside sync.WaitGroup // of who settles them

	mu  sync.Mutex // held across a sync; guards err
	err error
}

// Unwrap is for what only reads.
func (d *stickyDir) Unwrap() vfs.Dir { return d.Dir }

// Sync makes the names in the directory durable.
func (d *stickyDir) Sync() error {
	if err := d.settle(); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err == nil {
		d.err = d.Dir.Sync()
	}
	return d.err
}

// find says that the directory's names come from somebody else, and begins to make
// them durable. Close waits for that.
func (d *stickyDir) find() {
	d.found.Store(true)
	d.beside.Go(func() { _ = d.settle() }) // whoever needs it gets the error
}

// settle returns when the names that were found are durable, the directory's own
// among them.
func (d *stickyDir) settle() error {
	if !d.found.Load() {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil || !d.found.Load() {
		return d.err
	}
	err := d.Dir.Sync()
	if err == nil {
		err = d.SyncParent()
	}
	if err != nil {
		d.err = fmt.Errorf("make the names that opening found durable: %w: %w", errSyncDir, err)
		return d.err
	}
	d.found.Store(false)
	return nil
}

// OpenFile settles first where it may create the file: a change that becomes
// durable before an older one would leave what no order of steps allows for.
func (d *stickyDir) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	if flag&os.O_CREATE != 0 {
		if err := d.settle(); err != nil {
			return nil, err
		}
	}
	return d.Dir.OpenFile(name, flag, perm)
}

// Lock creates the file where it is missing.
func (d *stickyDir) Lock(name string) (vfs.Lock, error) {
	if err := d.settle(); err != nil {
		return nil, err
	}
	return d.Dir.Lock(name)
}

func (d *stickyDir) Remove(name string) error {
	if err := d.settle(); err != nil {
		return err
	}
	return d.Dir.Remove(name)
}

func (d *stickyDir) Rename(from, to string) error {
	if err := d.settle(); err != nil {
		return err
	}
	return d.Dir.Rename(from, to)
}

func (d *stickyDir) Close() error {
	d.beside.Wait()
	return d.Dir.Close()
}
