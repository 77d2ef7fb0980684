package vfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// OS is the real file system. Everything goes through an [os.Root], so it
// stays in the directory that was opened: symbolic links that leave it are
// refused, and a rename of the directory changes nothing.
type OS struct{}

// MkdirAll implements [FS]. Each new directory's name is durable before
// anything is created inside it, so a crash leaves no unsynced name above a
// directory that is there.
func (OS) MkdirAll(path string, perm fs.FileMode) error {
	missing, err := missingDirs(path)
	if err != nil || len(missing) == 0 {
		return err
	}
	// The directory that the first new one goes into may itself be what a
	// process that died between its mkdir and its fsync has left. Where the one
	// above cannot be read or synced, it was hardly made by one.
	above := filepath.Dir(filepath.Dir(missing[0]))
	if err := syncPath(above); err != nil && !errors.Is(err, fs.ErrPermission) && !errors.Is(err, errNoDirSync) {
		return err
	}
	for _, dir := range missing {
		if err := os.Mkdir(dir, perm); err != nil {
			// Another process may have been faster; its name is synced all the same.
			if info, serr := os.Stat(dir); serr != nil || !info.IsDir() {
				return err
			}
		}
		if err := syncPath(filepath.Dir(dir)); err != nil {
			return err
		}
	}
	return nil
}

// missingDirs lists the directories on the way to path that do not exist, the
// topmost first.
func missingDirs(path string) ([]string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	var missing []string
	for {
		info, err := os.Stat(path)
		switch {
		case err == nil && !info.IsDir():
			return nil, &fs.PathError{Op: "mkdir", Path: path, Err: errNotDir}
		case err == nil:
			return missing, nil
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
		// A directory was made by somebody else in between.
		if info, err := os.Lstat(path); err == nil && !info.IsDir() {
			return nil, &fs.PathError{Op: "mkdir", Path: path, Err: errDangling}
		}
		up := filepath.Dir(path)
		if up == path {
			return nil, err // a volume that is not there
		}
		missing = append([]string{path}, missing...)
		path = up
	}
}

// OpenDir implements [FS].
func (OS) OpenDir(path string) (Dir, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	// A FIFO would block until somebody opens its other end.
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		return nil, &fs.PathError{Op: "open", Path: path, Err: errNotDir}
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	d := &osDir{root: root, path: path, abs: abs}
	if err := d.handle.open(root); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return d, nil
}

// osDir is an open directory. Calls that os.Root has no word for use handle,
// which is what the platform needs for them.
type osDir struct {
	root   *os.Root
	path   string // as opened, for messages
	abs    string // path, independent of the working directory
	handle dirHandle
}

func (d *osDir) Path() string { return d.path }

func (d *osDir) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	if err := checkName("open", d.path, name); err != nil {
		return nil, err
	}
	f, err := d.openRegular(name, flag, perm)
	if err != nil {
		return nil, d.wrap("open", name, err)
	}
	file := &osFile{File: f}
	if err := file.init(); err != nil {
		return nil, errors.Join(d.wrap("open", name, err), f.Close())
	}
	return file, nil
}

// openRegular opens a file and nothing else: a FIFO would block until somebody
// opens its other end, and a device have no end.
func (d *osDir) openRegular(name string, flag int, perm fs.FileMode) (*os.File, error) {
	return regular(d.root.OpenFile(name, flag|openNonblock, perm))
}

// OpenRegular opens the file at path for reading, if it is a regular one.
func OpenRegular(path string) (*os.File, error) {
	f, err := regular(os.OpenFile(path, os.O_RDONLY|openNonblock, 0))
	if errors.Is(err, errNotRegular) || errors.Is(err, syscall.EISDIR) {
		err = &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return f, err
}

// regular closes what was opened and is no regular file.
func regular(f *os.File, err error) (*os.File, error) {
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case info.IsDir():
		err = syscall.EISDIR
	case !info.Mode().IsRegular():
		err = errNotRegular
	default:
		return f, nil
	}
	return nil, errors.Join(err, f.Close())
}

func (d *osDir) Remove(name string) error {
	if err := checkName("remove", d.path, name); err != nil {
		return err
	}
	return d.wrap("remove", name, d.root.Remove(name))
}

func (d *osDir) Rename(from, to string) error {
	if err := checkName("rename", d.path, from); err != nil {
		return err
	}
	if err := checkName("rename", d.path, to); err != nil {
		return err
	}
	return d.wrap("rename", from, d.root.Rename(from, to))
}

func (d *osDir) Names() ([]string, error) {
	names, err := d.names()
	return names, d.wrap("list", "", err)
}

func (d *osDir) Stat(name string) (fs.FileInfo, error) {
	if err := checkName("stat", d.path, name); err != nil {
		return nil, err
	}
	info, err := d.root.Stat(name)
	return info, d.wrap("stat", name, err)
}

func (d *osDir) Chtimes(name string, mtime time.Time) error {
	if err := checkName("chtimes", d.path, name); err != nil {
		return err
	}
	// The zero time leaves the access time as it is.
	return d.wrap("chtimes", name, d.root.Chtimes(name, time.Time{}, mtime))
}

// leadsTo checks that name, seen from the open directory, is the locked file. A lock
// on a file that nobody else will find keeps nobody out.
func (d *osDir) leadsTo(name string, locked func() (fs.FileInfo, error)) error {
	held, err := locked()
	if err != nil {
		return err
	}
	named, err := d.root.Stat(name)
	if err == nil && !os.SameFile(held, named) {
		err = errReplaced
	}
	return err
}

func (d *osDir) Close() error {
	return errors.Join(d.handle.close(), d.root.Close())
}

// sameGeneric is Same for a file that is not from OS, and for systems without
// a quicker way.
func (d *osDir) sameGeneric(name string, f File) (bool, error) {
	info, err := d.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	open, err := f.Stat()
	if err != nil {
		return false, err
	}
	return os.SameFile(info, open), nil
}

// wrap gives err the form that the package comment promises: the operation and
// the whole path around the system's own error.
func (d *osDir) wrap(op, name string, err error) error {
	if err == nil {
		return nil
	}
	var pathErr *fs.PathError
	var linkErr *os.LinkError
	if errors.As(err, &pathErr) {
		err = pathErr.Err
	} else if errors.As(err, &linkErr) {
		err = linkErr.Err
	}
	return &fs.PathError{Op: op, Path: filepath.Join(d.path, name), Err: err}
}

// osFile is an open file: os.File already retries interrupted and short calls.
type osFile struct {
	*os.File
	id fileID // what Same compares
}

func (f *osFile) wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: f.Name(), Err: err}
}

var (
	errNotDir     = errors.New("not a directory")
	errDangling   = errors.New("a symbolic link that leads nowhere")
	errNotRegular = errors.New("not a regular file")
	// errNoDirSync explains the errors by which systems say so.
	errNoDirSync = errors.New("the file system cannot sync directories")
	errReplaced  = errors.New("the name no longer leads to the locked file")
)

// checkName refuses what is not a base name, before os.Root would follow it
// into a subdirectory.
func checkName(op, dir, name string) error {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") ||
		runtime.GOOS == "windows" && strings.ContainsAny(name, `\:`) {
		return &fs.PathError{Op: op, Path: filepath.Join(dir, name), Err: fs.ErrInvalid}
	}
	return nil
}

// noLock is the lock of a system that has none of the kind.
type noLock struct{}

func (noLock) Unlock() error { return nil }

// Watchable says that the system has file events for this directory.
func (d *osDir) Watchable() {}
