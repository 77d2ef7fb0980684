//go:build !linux

package vfs

// SyncData is the full sync: F_FULLFSYNC on macOS, which an fdatasync there
// would not be, and FlushFileBuffers on Windows.
func (f *osFile) SyncData() error { return f.Sync() }

// Allocate exists on Linux only.
func (f *osFile) Allocate(_, _ int64) error { return f.wrap("allocate", ErrUnsupported) }
