//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package vfs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

func (d *osDir) Lock(name string) (Lock, error) {
	if err := checkName("lock", d.path, name); err != nil {
		return nil, err
	}
	f, err := d.openRegular(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, d.wrap("lock", name, err)
	}
	err = retry(func() error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) })
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = ErrLocked
	}
	if err == nil {
		err = d.leadsTo(name, f.Stat)
	}
	if err != nil {
		// What closes the only descriptor gives the lock up as well.
		return nil, errors.Join(d.wrap("lock", name, err), f.Close())
	}
	return &dirLock{f: f}, nil
}
