package vfs

import (
	"cmp"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// memDir is an open directory of a Mem.
type memDir struct {
	m      *Mem
	n      *node
	path   string
	closed bool // guarded by m.mu
}

func (d *memDir) Path() string { return d.path }

func (d *memDir) join(name string) string { return filepath.Join(d.path, name) }

// base is the last part of a path of either form.
func base(path string) string { return filepath.Base(path) }

// checkLocked comes first in every operation on a name.
func (d *memDir) checkLocked(op, name string) error {
	if d.closed {
		return pathErr(op, d.join(name), os.ErrClosed)
	}
	return checkName(op, d.path, name)
}

// lookupLocked returns the node that name leads to.
func (d *memDir) lookupLocked(op, name string) (*node, error) {
	if err := d.checkLocked(op, name); err != nil {
		return nil, err
	}
	n, ok := d.n.dir.entries[name]
	if !ok {
		return nil, pathErr(op, d.join(name), syscall.ENOENT)
	}
	return n, nil
}

func (d *memDir) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	d.m.mu.Lock()
	defer d.m.mu.Unlock()
	if err := d.checkLocked("open", name); err != nil {
		return nil, err
	}
	n, ok := d.n.dir.entries[name]
	var err error
	switch {
	case ok && flag&(os.O_CREATE|os.O_EXCL) == os.O_CREATE|os.O_EXCL:
		err = syscall.EEXIST
	case ok && n.isDir():
		err = syscall.EISDIR
	case !ok && flag&os.O_CREATE == 0:
		err = syscall.ENOENT
	}
	if err != nil {
		return nil, pathErr("open", d.join(name), err)
	}
	if !ok {
		if n, err = d.createLocked(name, perm); err != nil {
			return nil, err
		}
	} else if flag&os.O_TRUNC != 0 {
		if err := d.m.beginLocked("open", d.join(name)); err != nil {
			return nil, err
		}
		d.m.changeLocked(n, fileOp{pos: 0})
	}
	n.open++
	return &memFile{m: d.m, n: n, path: d.join(name), flag: flag}, nil
}

// createLocked makes an empty file under a name that is free.
func (d *memDir) createLocked(name string, perm fs.FileMode) (*node, error) {
	if err := d.m.beginLocked("open", d.join(name)); err != nil {
		return nil, err
	}
	if d.n.links == 0 {
		return nil, pathErr("open", d.join(name), syscall.ENOENT)
	}
	if d.m.roomLocked(nodeCost) < nodeCost {
		return nil, pathErr("open", d.join(name), syscall.ENOSPC)
	}
	n := d.m.newNode(perm.Perm())
	d.m.linkLocked(d.n, dirOp{to: name, node: n})
	return n, nil
}

func (d *memDir) Remove(name string) error {
	d.m.mu.Lock()
	defer d.m.mu.Unlock()
	n, err := d.lookupLocked("remove", name)
	if err != nil {
		return err
	}
	if n.isDir() && len(n.dir.entries) > 0 {
		return pathErr("remove", d.join(name), syscall.ENOTEMPTY)
	}
	if err := d.m.beginLocked("remove", d.join(name)); err != nil {
		return err
	}
	d.m.linkLocked(d.n, dirOp{from: name, node: n})
	return nil
}

func (d *memDir) Rename(from, to string) error {
	d.m.mu.Lock()
	defer d.m.mu.Unlock()
	n, err := d.lookupLocked("rename", from)
	if err != nil {
		return err
	}
	if err := checkName("rename", d.path, to); err != nil {
		return err
	}
	old := d.n.dir.entries[to]
	switch {
	case old == n:
		return nil
	case old != nil && old.isDir():
		return pathErr("rename", d.join(from), syscall.EEXIST)
	case old != nil && n.isDir():
		return pathErr("rename", d.join(from), syscall.ENOTDIR)
	}
	if err := d.m.beginLocked("rename", d.join(from)); err != nil {
		return err
	}
	d.m.linkLocked(d.n, dirOp{from: from, to: to, node: n})
	return nil
}

func (d *memDir) Names() ([]string, error) {
	d.m.mu.RLock()
	defer d.m.mu.RUnlock()
	if d.closed {
		return nil, pathErr("list", d.path, os.ErrClosed)
	}
	names := make([]string, 0, len(d.n.dir.entries))
	for name := range d.n.dir.entries {
		names = append(names, name)
	}
	// The same in each run, so that a run can be repeated, but not sorted: a
	// caller that relies on an order finds out.
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(scramble(a), scramble(b)) })
	return names, nil
}

func scramble(s string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s))
	return h.Sum64()
}

func (d *memDir) Stat(name string) (fs.FileInfo, error) {
	d.m.mu.RLock()
	defer d.m.mu.RUnlock()
	n, err := d.lookupLocked("stat", name)
	if err != nil {
		return nil, err
	}
	return n.info(name), nil
}

func (d *memDir) Same(name string, f File) (bool, error) {
	d.m.mu.RLock()
	defer d.m.mu.RUnlock()
	if err := d.checkLocked("stat", name); err != nil {
		return false, err
	}
	mf, ok := f.(*memFile)
	if ok && mf.closed {
		return false, pathErr("stat", mf.path, os.ErrClosed)
	}
	n := d.n.dir.entries[name]
	return ok && n != nil && n == mf.n, nil
}

func (d *memDir) Chtimes(name string, mtime time.Time) error {
	d.m.mu.Lock()
	defer d.m.mu.Unlock()
	n, err := d.lookupLocked("chtimes", name)
	if err != nil {
		return err
	}
	if err := d.m.beginLocked("chtimes", d.join(name)); err != nil {
		return err
	}
	n.mtime, n.mtimeDirty = mtime, true
	return nil
}

func (d *memDir) Sync() error {
	d.m.mu.Lock()
	defer d.m.mu.Unlock()
	if d.closed {
		return pathErr("sync", d.path, os.ErrClosed)
	}
	return d.m.syncDirLocked(d.n, OpDirSync, d.path)
}

func (d *memDir) SyncParent() error {
	d.m.mu.Lock()
	defer d.m.mu.Unlock()
	if d.closed {
		return pathErr("sync", d.path, os.ErrClosed)
	}
	parent := d.n.dir.parent
	if parent == nil {
		parent = d.n // as ".." of the root
	}
	return d.m.syncDirLocked(parent, OpSyncParent, filepath.Dir(d.path))
}

func (d *memDir) Lock(name string) (Lock, error) {
	d.m.mu.Lock()
	defer d.m.mu.Unlock()
	if err := d.checkLocked("lock", name); err != nil {
		return nil, err
	}
	n, ok := d.n.dir.entries[name]
	if !ok {
		var err error
		if n, err = d.createLocked(name, 0o644); err != nil {
			return nil, err
		}
	}
	return d.m.lockLocked(n, d.join(name))
}

func (d *memDir) LockDir() (Lock, error) {
	d.m.mu.Lock()
	defer d.m.mu.Unlock()
	if d.closed {
		return nil, pathErr("lock", d.path, os.ErrClosed)
	}
	return d.m.lockLocked(d.n, d.path)
}

func (d *memDir) Network() (string, error) {
	d.m.mu.RLock()
	defer d.m.mu.RUnlock()
	if d.closed {
		return "", pathErr("statfs", d.path, os.ErrClosed)
	}
	return d.m.network, nil
}

func (d *memDir) Close() error {
	d.m.mu.Lock()
	defer d.m.mu.Unlock()
	if d.closed {
		return pathErr("close", d.path, os.ErrClosed)
	}
	d.closed = true
	return nil
}

// memLock is a lock on a node, which a removed name does not end.
type memLock struct {
	m *Mem
	n *node // nil once unlocked; guarded by m.mu
}

func (m *Mem) lockLocked(n *node, path string) (Lock, error) {
	if n.locked {
		return nil, pathErr("lock", path, ErrLocked)
	}
	n.locked = true
	return &memLock{m: m, n: n}, nil
}

func (l *memLock) Unlock() error {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	if l.n != nil {
		l.n.locked = false
		l.n = nil
	}
	return nil
}
