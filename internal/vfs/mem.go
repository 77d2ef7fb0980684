package vfs

import (
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// ErrCut is the error of every operation on a [Mem] that would change
// something, once it has been cut.
var ErrCut = errors.New("cut off by the test")

// nodeCost is what a file or directory itself takes of a Mem's capacity, so
// that creating one on a full disk fails.
const nodeCost = 512

// Mem is a file system in memory, for tests. It keeps apart what a running
// process sees (live state) and what has been synced, so that it can tell what
// a power failure would leave: see [Mem.Crash].
//
// What is durable: File.Sync makes content, size and modification time of one
// file durable, SyncData its content and size. Neither does anything for the
// file's name: that takes Dir.Sync (or SyncParent, for a directory's own name).
//
// Paths are slash-separated from one root that is always there; a relative
// path starts at it too. A removed file can be read through an open File.
// Names returns the names in an order that is the same in every run, but not
// sorted. O_SYNC and file modes have no effect. Safe for concurrent use.
type Mem struct {
	// mu guards everything below, all nodes that hang from root, and the state
	// of every File, Dir and Lock. Reading a file takes it shared.
	mu      sync.RWMutex
	root    *node
	lastID  uint64
	now     func() time.Time
	network string

	used     int64
	capacity int64 // of used; -1 for none

	ops     int64
	cutAt   int64 // value of ops at which nothing more is done; -1 for never
	cutKeep int   // bytes kept of a write that meets the cut
	cut     bool  // something has met the cut

	failures []*memFailure
}

// NewMem returns an empty file system.
func NewMem() *Mem {
	m := &Mem{now: time.Now, capacity: -1, cutAt: -1}
	m.root = m.newNode(fs.ModeDir | 0o755)
	m.root.links = 1
	return m
}

// SetNow sets the clock that modification times are taken from.
func (m *Mem) SetNow(now func() time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now = now
}

// SetNetwork sets what Network returns for every directory.
func (m *Mem) SetNetwork(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.network = name
}

// SetCapacity limits the bytes that Used counts; negative means no limit. When
// it is reached, creating files, Allocate and extending Truncate fail with
// ENOSPC and do nothing, and WriteAt writes what fits before it fails.
func (m *Mem) SetCapacity(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.capacity = max(bytes, -1)
}

// Used returns the bytes taken: for each file its size or the end of what was
// allocated, whichever is higher (holes count), and 512 for each file and
// directory itself. A removed file counts until its last File is closed.
func (m *Mem) Used() int64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.used
}

// Ops returns how many operations that change something have been begun: live
// state (create, write, truncate, allocate, rename, remove, chtimes, mkdir) or
// synced state (all kinds of sync; MkdirAll syncs too). What a cut refused is
// not counted.
func (m *Mem) Ops() int64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.ops
}

// SetCut lets n more operations of those that Ops counts pass. All that follow
// fail with ErrCut and change nothing. A negative n takes the cut away.
func (m *Mem) SetCut(n int64) { m.SetTornCut(n, 0) }

// SetTornCut is SetCut, but if the first operation that is refused is a
// WriteAt, its first keep bytes are written all the same.
func (m *Mem) SetTornCut(n int64, keep int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cut, m.cutAt, m.cutKeep = false, -1, keep
	if n >= 0 {
		m.cutAt = m.ops + n
	}
}

// WasCut reports whether an operation has met the cut.
func (m *Mem) WasCut() bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.cut
}

// beginLocked counts an operation that changes something, or refuses it.
func (m *Mem) beginLocked(op, path string) error {
	if m.cutAt >= 0 && m.ops >= m.cutAt {
		m.cut = true
		return pathErr(op, path, ErrCut)
	}
	m.ops++
	return nil
}

// roomLocked returns how many of n more bytes there is room for.
func (m *Mem) roomLocked(n int64) int64 {
	if m.capacity < 0 || n <= 0 {
		return n
	}
	return min(n, max(0, m.capacity-m.used))
}

// memFailure makes one sync fail.
type memFailure struct {
	kinds   OpKind
	pattern string
	left    int // matching syncs until it fails
	err     error
}

// FailSync makes the n-th sync (from 1, counted from now on) of one of kinds
// and of a name that matches pattern fail with err. The kinds are OpSync,
// OpSyncData, OpDirSync and OpSyncParent; pattern is path.Match's on the
// file's or, for the last two, the synced directory's base name; "" matches all.
//
// As on Linux, what the failed sync covered is no longer waiting to be written
// and is lost: it can still be read, but no later sync covers it and Crash
// never keeps it. Only what is written once more after that (the same bytes, the
// same names) is covered again.
func (m *Mem) FailSync(kinds OpKind, pattern string, n int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failures = append(m.failures, &memFailure{kinds: kinds, pattern: pattern, left: n, err: err})
}

// failLocked returns the error that a sync of name is to fail with.
func (m *Mem) failLocked(kind OpKind, name string) error {
	var failed error
	m.failures = slices.DeleteFunc(m.failures, func(f *memFailure) bool {
		if !matches(f.kinds, f.pattern, kind, name) {
			return false
		}
		f.left--
		if f.left == 0 {
			failed = f.err
		}
		return f.left <= 0
	})
	return failed
}

// MkdirAll implements [FS], and syncs as OS does.
func (m *Mem) MkdirAll(name string, _ fs.FileMode) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, dir := "/", m.root
	var made bool
	for _, part := range parts(name) {
		next, ok := dir.dir.entries[part]
		if ok && !next.isDir() {
			return pathErr("mkdir", name, syscall.ENOTDIR)
		}
		if !ok {
			if !made && dir.dir.parent != nil {
				if err := m.syncDirLocked(dir.dir.parent, OpDirSync, path.Dir(at)); err != nil {
					return err
				}
			}
			made = true
			var err error
			if next, err = m.mkdirLocked(dir, at, part); err != nil {
				return err
			}
		}
		at, dir = path.Join(at, part), next
	}
	return nil
}

// mkdirLocked creates the directory name in dir, whose path is at, and makes
// its name durable.
func (m *Mem) mkdirLocked(dir *node, at, name string) (*node, error) {
	if err := m.beginLocked("mkdir", path.Join(at, name)); err != nil {
		return nil, err
	}
	if m.roomLocked(nodeCost) < nodeCost {
		return nil, pathErr("mkdir", path.Join(at, name), syscall.ENOSPC)
	}
	next := m.newNode(fs.ModeDir | 0o755)
	next.dir.parent = dir
	m.linkLocked(dir, dirOp{to: name, node: next})
	return next, m.syncDirLocked(dir, OpDirSync, at)
}

// OpenDir implements [FS].
func (m *Mem) OpenDir(name string) (Dir, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	n := m.root
	for _, part := range parts(name) {
		if !n.isDir() {
			return nil, pathErr("open", name, syscall.ENOTDIR)
		}
		next, ok := n.dir.entries[part]
		if !ok {
			return nil, pathErr("open", name, syscall.ENOENT)
		}
		n = next
	}
	if !n.isDir() {
		return nil, pathErr("open", name, syscall.ENOTDIR)
	}
	return &memDir{m: m, n: n, path: name}, nil
}

// parts splits a path into the names on the way from the root.
func parts(name string) []string {
	name = path.Clean("/" + filepath.ToSlash(name))
	return strings.FieldsFunc(name, func(r rune) bool { return r == '/' })
}

func pathErr(op, path string, err error) error {
	return &fs.PathError{Op: op, Path: path, Err: err}
}
