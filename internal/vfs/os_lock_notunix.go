//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package vfs

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/gofrs/flock"
)

func (d *osDir) Lock(name string) (Lock, error) {
	if err := checkName("lock", d.path, name); err != nil {
		return nil, err
	}
	// flock works by path. Creating the file here first, relative to the
	// directory, means that it never creates one in a directory that has taken
	// this one's place.
	f, err := d.openRegular(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, d.wrap("lock", name, err)
	}
	if err := f.Close(); err != nil {
		return nil, d.wrap("lock", name, err)
	}
	dir, err := d.where()
	if err != nil {
		return nil, d.wrap("lock", name, err)
	}
	lock := flock.New(filepath.Join(dir, name), flock.SetFlag(os.O_RDWR), flock.SetPermissions(0o600))
	locked, err := lock.TryLock()
	if err != nil {
		return nil, d.wrap("lock", name, err)
	}
	if !locked {
		return nil, d.wrap("lock", name, ErrLocked)
	}
	if err := d.leadsTo(name, lock.Stat); err != nil {
		return nil, errors.Join(d.wrap("lock", name, err), lock.Unlock())
	}
	return lock, nil
}

// where returns the path that the directory was opened by, if it leads there still.
func (d *osDir) where() (string, error) {
	self, err := d.root.Stat(".")
	if err != nil {
		return "", err
	}
	if info, err := os.Stat(d.abs); err != nil || !os.SameFile(self, info) {
		return "", errMoved
	}
	return d.abs, nil
}

var errMoved = errors.New("the directory is no longer at the path it was opened by")
