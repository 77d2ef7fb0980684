package vfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// memFile is an open file of a Mem.
type memFile struct {
	m      *Mem
	n      *node
	path   string
	flag   int
	closed bool // guarded by m.mu
}

var (
	errNegative   = errors.New("negative offset")
	errAppendMode = errors.New("invalid use of WriteAt on file opened with O_APPEND")
)

// checkLocked comes first in every operation; write asks for the right to.
func (f *memFile) checkLocked(op string, write bool) error {
	const access = os.O_RDONLY | os.O_WRONLY | os.O_RDWR
	switch {
	case f.closed:
		return pathErr(op, f.path, os.ErrClosed)
	case write && f.flag&access == os.O_RDONLY:
		return pathErr(op, f.path, syscall.EBADF)
	case op == "read" && f.flag&access == os.O_WRONLY:
		return pathErr(op, f.path, syscall.EBADF)
	}
	return nil
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	f.m.mu.RLock()
	defer f.m.mu.RUnlock()
	if err := f.checkLocked("read", false); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, pathErr("read", f.path, errNegative)
	}
	n, err := f.n.live.readAt(p, off)
	if err != nil {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.checkLocked("write", true); err != nil {
		return 0, err
	}
	switch {
	case f.flag&os.O_APPEND != 0:
		return 0, errAppendMode
	case off < 0:
		return 0, pathErr("write", f.path, errNegative)
	case len(p) == 0:
		return 0, nil
	case off > maxFileSize-int64(len(p)):
		return 0, pathErr("write", f.path, syscall.EFBIG)
	}
	first := !f.m.cut
	if err := f.m.beginLocked("write", f.path); err != nil {
		if !first {
			return 0, err
		}
		n, _ := f.writeLocked(p[:min(len(p), f.m.cutKeep)], off)
		return n, err
	}
	return f.writeLocked(p, off)
}

// writeLocked writes what there is room for.
func (f *memFile) writeLocked(p []byte, off int64) (int, error) {
	more := off + int64(len(p)) - f.n.charge()
	missing := more - f.m.roomLocked(more)
	fits := int(max(0, int64(len(p))-missing))
	if fits > 0 {
		f.m.changeLocked(f.n, fileOp{pos: off, data: append([]byte(nil), p[:fits]...)})
	}
	if fits < len(p) {
		return fits, pathErr("write", f.path, syscall.ENOSPC)
	}
	return fits, nil
}

func (f *memFile) Stat() (fs.FileInfo, error) {
	f.m.mu.RLock()
	defer f.m.mu.RUnlock()
	if err := f.checkLocked("stat", false); err != nil {
		return nil, err
	}
	return f.n.info(base(f.path)), nil
}

func (f *memFile) Truncate(size int64) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.checkLocked("truncate", true); err != nil {
		return err
	}
	switch {
	case size < 0:
		return pathErr("truncate", f.path, syscall.EINVAL)
	case size > maxFileSize:
		return pathErr("truncate", f.path, syscall.EFBIG)
	}
	if err := f.m.beginLocked("truncate", f.path); err != nil {
		return err
	}
	more := size - f.n.charge()
	if f.m.roomLocked(more) < more {
		return pathErr("truncate", f.path, syscall.ENOSPC)
	}
	f.m.changeLocked(f.n, fileOp{pos: size})
	return nil
}

func (f *memFile) Allocate(off, n int64) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.checkLocked("allocate", true); err != nil {
		return err
	}
	switch {
	case off < 0 || n <= 0:
		return pathErr("allocate", f.path, syscall.EINVAL)
	case off > maxFileSize-n:
		return pathErr("allocate", f.path, syscall.EFBIG)
	}
	if err := f.m.beginLocked("allocate", f.path); err != nil {
		return err
	}
	more := off + n - f.n.charge()
	if f.m.roomLocked(more) < more {
		return pathErr("allocate", f.path, syscall.ENOSPC)
	}
	f.m.used += max(0, more)
	f.n.reserved = max(f.n.reserved, off+n)
	return nil
}

func (f *memFile) Sync() error { return f.sync(OpSync) }

func (f *memFile) SyncData() error { return f.sync(OpSyncData) }

func (f *memFile) sync(kind OpKind) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.checkLocked("sync", false); err != nil {
		return err
	}
	return f.m.syncFileLocked(f.n, kind, f.path)
}

func (f *memFile) Close() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if f.closed {
		return pathErr("close", f.path, os.ErrClosed)
	}
	f.closed = true
	f.n.open--
	f.m.freeLocked(f.n)
	return nil
}
