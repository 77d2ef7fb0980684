package vfs

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
)

// What Windows says of a file that somebody else has open, and of bytes that
// somebody else has locked.
var (
	errInUse      = fmt.Errorf("used by another open file: %w", fs.ErrPermission)
	errByteLocked = fmt.Errorf("byte 0 is locked by another open file: %w", fs.ErrPermission)
)

// Windows wraps fsys with the rules that Windows has for open files, so that
// what would break there breaks in a test:
//
//   - What is open, by anybody through the wrapper, cannot be removed, renamed
//     or replaced by a rename. That holds for files, open directories,
//     directories with open files, and the file of a held Lock.
//   - Reading or writing byte 0 of a file whose Lock is held fails.
//   - LockDir locks nothing, Allocate is unsupported, and the names that
//     Windows refuses are refused.
//
// The errors are fs.ErrPermission. Syncing a directory is passed on, though
// Windows has no such thing, for the sake of what is wrapped.
//
// A directory must always be opened by the same path: files are told apart by
// path. These are the rules for handles without FILE_SHARE_DELETE; those of
// os.Root share it, but those of other programs may not.
func Windows(fsys FS) FS {
	return &windowsFS{fsys: fsys, open: map[string]int{}, locked: map[string]bool{}}
}

type windowsFS struct {
	fsys FS

	// mu guards the rest. It is held across an operation that depends on it,
	// so that nothing is opened between check and act.
	mu     sync.Mutex
	open   map[string]int  // open files, directories and locks by path
	locked map[string]bool // byte 0, by path
}

func (w *windowsFS) MkdirAll(path string, perm fs.FileMode) error {
	return w.fsys.MkdirAll(path, perm)
}

func (w *windowsFS) OpenDir(path string) (Dir, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	d, err := w.fsys.OpenDir(path)
	if err != nil {
		return nil, err
	}
	return &windowsDir{Dir: d, w: w, key: filepath.Clean(path), release: w.holdLocked(filepath.Clean(path))}, nil
}

// holdLocked counts one more open thing at key, until the returned function is
// called for the first time.
func (w *windowsFS) holdLocked(key string) func() {
	w.open[key]++
	return sync.OnceFunc(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.open[key]--
		if w.open[key] == 0 {
			delete(w.open, key)
		}
	})
}

// inUseLocked reports whether what is at key, or below it, is open.
func (w *windowsFS) inUseLocked(key string) bool {
	for open := range w.open {
		if open == key || strings.HasPrefix(open, key+string(filepath.Separator)) {
			return true
		}
	}
	return false
}

type windowsDir struct {
	Dir
	w       *windowsFS
	key     string
	release func()
}

func (d *windowsDir) join(name string) string { return filepath.Join(d.key, name) }

// checkName refuses what no file can be called on Windows.
func (d *windowsDir) checkName(op, name string) error {
	if err := checkName(op, d.key, name); err != nil {
		return err
	}
	if strings.ContainsAny(name, `<>:"/\|?*`) || strings.HasSuffix(name, ".") || strings.HasSuffix(name, " ") {
		return pathErr(op, d.join(name), fs.ErrInvalid)
	}
	return nil
}

func (d *windowsDir) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	if err := d.checkName("open", name); err != nil {
		return nil, err
	}
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	f, err := d.Dir.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &windowsFile{File: f, w: d.w, key: d.join(name), release: d.w.holdLocked(d.join(name))}, nil
}

func (d *windowsDir) Remove(name string) error {
	if err := checkName("remove", d.key, name); err != nil {
		return err
	}
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	if d.w.inUseLocked(d.join(name)) {
		return pathErr("remove", d.join(name), errInUse)
	}
	return d.Dir.Remove(name)
}

func (d *windowsDir) Rename(from, to string) error {
	if err := checkName("rename", d.key, from); err != nil {
		return err
	}
	if err := d.checkName("rename", to); err != nil {
		return err
	}
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	for _, name := range []string{from, to} {
		if d.w.inUseLocked(d.join(name)) {
			return pathErr("rename", d.join(name), errInUse)
		}
	}
	return d.Dir.Rename(from, to)
}

func (d *windowsDir) Same(name string, f File) (bool, error) {
	if wrapped, ok := f.(*windowsFile); ok {
		f = wrapped.File
	}
	return d.Dir.Same(name, f)
}

func (d *windowsDir) Lock(name string) (Lock, error) {
	if err := d.checkName("lock", name); err != nil {
		return nil, err
	}
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	lock, err := d.Dir.Lock(name)
	if err != nil {
		return nil, err
	}
	key := d.join(name)
	d.w.locked[key] = true
	return &windowsLock{Lock: lock, w: d.w, key: key, release: d.w.holdLocked(key)}, nil
}

func (d *windowsDir) LockDir() (Lock, error) { return noLock{}, nil }

func (d *windowsDir) Close() error {
	defer d.release()
	return d.Dir.Close()
}

type windowsFile struct {
	File
	w       *windowsFS
	key     string
	release func()
}

// checkByte refuses to touch a byte that a Lock holds. Nobody reads or writes
// through the handle that locks, so every File is another one.
func (f *windowsFile) checkByte(op string, n int, off int64) error {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	if n > 0 && off == 0 && f.w.locked[f.key] {
		return pathErr(op, f.key, errByteLocked)
	}
	return nil
}

func (f *windowsFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.checkByte("read", len(p), off); err != nil {
		return 0, err
	}
	return f.File.ReadAt(p, off)
}

func (f *windowsFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.checkByte("write", len(p), off); err != nil {
		return 0, err
	}
	return f.File.WriteAt(p, off)
}

func (f *windowsFile) Allocate(_, _ int64) error {
	return pathErr("allocate", f.key, ErrUnsupported)
}

func (f *windowsFile) Close() error {
	defer f.release()
	return f.File.Close()
}

type windowsLock struct {
	Lock
	w        *windowsFS
	key      string
	release  func()
	unlocked bool // guarded by w.mu
}

func (l *windowsLock) Unlock() error {
	defer l.release() // after mu
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	if l.unlocked {
		return nil
	}
	l.unlocked = true
	delete(l.w.locked, l.key)
	return l.Lock.Unlock()
}
