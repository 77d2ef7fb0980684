//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package vfs

import "os"

// openNonblock is not needed here: nothing in a directory blocks when opened.
const openNonblock = 0

// fileID is not used here: Same goes by os.SameFile.
type fileID struct{}

func (f *osFile) init() error { return nil }

// dirHandle is not needed here: os.Root does it all.
type dirHandle struct{}

func (h *dirHandle) open(*os.Root) error { return nil }
func (h *dirHandle) close() error        { return nil }

func (d *osDir) Same(name string, f File) (bool, error) { return d.sameGeneric(name, f) }

// Sync does nothing: Windows has no fsync of a directory, and NTFS journals
// names in order.
func (d *osDir) Sync() error { return nil }

// SyncParent does nothing, as Sync.
func (d *osDir) SyncParent() error { return nil }

func syncPath(string) error { return nil }

// LockDir does nothing: a directory cannot be locked here, and the LOCK file
// cannot be removed while it is open.
func (d *osDir) LockDir() (Lock, error) { return noLock{}, nil }
