//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// openNonblock keeps the opening of a FIFO from waiting. Regular files do not
// care.
const openNonblock = unix.O_NONBLOCK

// fileID names an inode. It belongs to no other file while this one is open.
type fileID struct {
	dev, ino uint64
}

func idOf(st *unix.Stat_t) fileID {
	return fileID{dev: uint64(st.Dev), ino: uint64(st.Ino)} //nolint:unconvert // the types differ between systems
}

// statID is what idOfName is where there is no cheaper way.
func statID(dir int, name string) (fileID, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, 0); err != nil {
		return fileID{}, err
	}
	return idOf(&st), nil
}

func (f *osFile) init() error {
	var st unix.Stat_t
	if err := retry(func() error { return unix.Fstat(int(f.Fd()), &st) }); err != nil {
		return err
	}
	f.id = idOf(&st)
	return nil
}

// dirHandle is a descriptor of the directory. It stays the same one for as
// long as the directory is open: Linux reports a write error to the
// descriptors that were open when it happened, and a fresh one may miss it.
type dirHandle struct {
	// mu lets close wait for calls that use the bare descriptor number.
	mu sync.RWMutex
	f  *os.File // nil once closed
	fd int
}

func (h *dirHandle) open(root *os.Root) error {
	f, err := root.Open(".")
	if err != nil {
		return err
	}
	h.f, h.fd = f, int(f.Fd())
	return nil
}

func (h *dirHandle) close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.f == nil {
		return os.ErrClosed
	}
	f := h.f
	h.f, h.fd = nil, -1
	return f.Close()
}

// use calls fn with the descriptor, which stays open until fn returns.
func (h *dirHandle) use(fn func(fd int) error) error {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.f == nil {
		return os.ErrClosed
	}
	return fn(h.fd)
}

// Same is called once for each commit, so it makes one system call and
// allocates nothing.
func (d *osDir) Same(name string, f File) (bool, error) {
	of, ok := f.(*osFile)
	if !ok {
		return d.sameGeneric(name, f)
	}
	if err := checkName("stat", d.path, name); err != nil {
		return false, err
	}
	id, err := d.handle.idOf(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, d.wrap("stat", name, err)
	}
	return id == of.id, nil
}

func (h *dirHandle) idOf(name string) (fileID, error) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.f == nil {
		return fileID{}, os.ErrClosed
	}
	for {
		if id, err := idOfName(h.fd, name); err != unix.EINTR { //nolint:errorlint // a bare errno
			return id, err
		}
	}
}

func (h *dirHandle) stat(name string) (unix.Stat_t, error) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	var st unix.Stat_t
	if h.f == nil {
		return st, os.ErrClosed
	}
	for {
		if err := fstatat(h.fd, name, &st); err != unix.EINTR { //nolint:errorlint // a bare errno
			return st, err
		}
	}
}

func (d *osDir) Sync() error {
	return d.handle.use(func(int) error { return syncDir(d.handle.f, d.path) })
}

func (d *osDir) SyncParent() error {
	var parent *os.File
	err := d.handle.use(func(dir int) error {
		return retry(func() error {
			// os.Root refuses "..", and the path may lead elsewhere by now.
			fd, err := unix.Openat(dir, "..", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			if err == nil {
				parent = os.NewFile(uintptr(fd), filepath.Join(d.path, ".."))
			}
			return err
		})
	})
	if errors.Is(err, fs.ErrPermission) {
		// What may be searched but not read cannot be opened for fsync.
		err = d.handle.use(syncFileSystem)
		return d.wrap("sync", "..", err)
	}
	if err != nil {
		return d.wrap("sync", "..", err)
	}
	return errors.Join(syncDir(parent, parent.Name()), parent.Close())
}

// syncPath syncs the directory at path.
func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(syncDir(f, path), f.Close())
}

func syncDir(f *os.File, path string) error {
	err := f.Sync()
	// EINVAL is what Linux says of a descriptor that has nothing to sync.
	if errors.Is(err, unix.EINVAL) || errors.Is(err, ErrUnsupported) {
		return &fs.PathError{Op: "sync", Path: path, Err: fmt.Errorf("%w: %w", errNoDirSync, errors.Unwrap(err))}
	}
	return err
}

func (d *osDir) LockDir() (Lock, error) {
	// A descriptor of its own: flock belongs to the open file description, so
	// that a second call, in this process too, meets the first one's lock.
	f, err := d.root.Open(".")
	if err != nil {
		return nil, d.wrap("lock", "", err)
	}
	err = retry(func() error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) })
	switch {
	case err == nil:
		return &dirLock{f: f}, nil
	case errors.Is(err, unix.EWOULDBLOCK):
		err = ErrLocked
	case errors.Is(err, unix.EBADF), errors.Is(err, unix.EINVAL), errors.Is(err, ErrUnsupported):
		// A mount that has no such locks. EBADF is NFS, which makes of an
		// exclusive flock a lock that needs a file open for writing.
		return noLock{}, f.Close()
	}
	return nil, errors.Join(d.wrap("lock", "", err), f.Close())
}

// dirLock holds flock on a descriptor of the directory.
type dirLock struct {
	mu sync.Mutex
	f  *os.File // nil once unlocked
}

func (l *dirLock) Unlock() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil {
		return nil
	}
	f := l.f
	l.f = nil
	// Closing alone is not enough: a process that was just forked holds a copy
	// of the descriptor until it execs.
	err := unix.Flock(int(f.Fd()), unix.LOCK_UN)
	return errors.Join(err, f.Close())
}

// retry repeats a system call that a signal interrupted.
func retry(call func() error) error {
	for {
		if err := call(); err != unix.EINTR { //nolint:errorlint // a bare errno
			return err
		}
	}
}
