// Package vfs is the only door through which evlog reaches the file system.
//
// A log works inside one directory, so the seam is one open directory ([Dir])
// and base names relative to it: a directory that is renamed under a running
// writer stays the same directory. Implementations:
//
//   - [OS]: the real thing.
//   - [Mem]: in memory, with live and synced state kept apart; it can be cut at
//     any operation and asked what a power failure would have left.
//   - [Windows]: wraps another one with the Windows rules for open files.
//   - [Inject]: wraps another one and fails chosen operations.
//
// Errors keep what [errors.Is] needs: fs.ErrNotExist, fs.ErrExist,
// syscall.ENOSPC and the like, and carry the operation and the name as an
// *fs.PathError.
package vfs

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"time"
)

// Errors of this package.
var (
	// ErrLocked: somebody else holds the lock.
	ErrLocked = errors.New("held by another open file")
	// ErrUnsupported: the file system has no such operation (Allocate on many).
	ErrUnsupported = errors.ErrUnsupported
)

// FS opens directories. Safe for concurrent use.
type FS interface {
	// MkdirAll creates path and what is missing above it, and syncs the
	// directories that got a new entry. An existing directory is no error.
	MkdirAll(path string, perm fs.FileMode) error
	// OpenDir opens an existing directory.
	OpenDir(path string) (Dir, error)
}

// Dir is one open directory. Names are base names, without separators. Safe
// for concurrent use.
type Dir interface {
	// Path is the path the directory was opened by, for messages.
	Path() string
	// OpenFile opens a regular file with os.OpenFile's flags; a directory, FIFO or
	// device of that name is an error, at once. WriteAt needs flags without
	// os.O_APPEND.
	OpenFile(name string, flag int, perm fs.FileMode) (File, error)
	Remove(name string) error
	// Rename replaces to, if it is there, in one step.
	Rename(from, to string) error
	// Names returns all names in the directory, in no order.
	Names() ([]string, error)
	Stat(name string) (fs.FileInfo, error)
	// Same reports whether name leads to the open file f. A name that is gone
	// leads nowhere: false, without an error.
	Same(name string, f File) (bool, error)
	// Chtimes sets the modification time of a file.
	Chtimes(name string, mtime time.Time) error
	// Sync makes the names in this directory durable.
	Sync() error
	// SyncParent makes this directory's own name durable in the directory above.
	SyncParent() error
	// Lock takes an exclusive advisory lock on byte 0 of the file name, which
	// is created when missing, without waiting: ErrLocked where somebody else
	// (also another open in this process) holds it. It fails if name no longer
	// leads to the locked file once the lock is held.
	Lock(name string) (Lock, error)
	// LockDir takes an exclusive advisory lock on the directory itself, without
	// waiting. Where the system has no such locks it does nothing.
	LockDir() (Lock, error)
	// Network names the network file system that the directory is on, or "".
	Network() (string, error)
	Close() error
}

// Watchable is a Dir whose changes the system tells as file events under its
// Path.
type Watchable interface {
	Dir
	Watchable()
}

// File is one open file. Reading is safe for concurrent use, also beside one
// writer; all other calls belong to that writer.
type File interface {
	io.ReaderAt
	io.WriterAt
	Stat() (fs.FileInfo, error)
	Truncate(size int64) error
	// Allocate reserves space for [off, off+n) without changing what can be
	// read or the size. ErrUnsupported where the file system cannot.
	Allocate(off, n int64) error
	// Sync makes content and metadata durable, SyncData content and size.
	// After an error nothing is known about what was written since the last
	// success.
	Sync() error
	SyncData() error
	Close() error
}

// Lock is a held advisory lock.
type Lock interface {
	// Unlock lets it go. A second call does nothing.
	Unlock() error
}

type contextKey struct{}

// NewContext returns a context in which evlog works on fsys in place of the
// real file system. It is how tests and evlogtest put another one in, without
// a name in the public API.
func NewContext(ctx context.Context, fsys FS) context.Context {
	return context.WithValue(ctx, contextKey{}, fsys)
}

// FromContext returns the file system that NewContext put in, or the real one.
func FromContext(ctx context.Context) FS {
	if fsys, ok := ctx.Value(contextKey{}).(FS); ok {
		return fsys
	}
	return OS{}
}
