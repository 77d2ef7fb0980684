package vfs

import (
	"errors"

	"golang.org/x/sys/unix"
)

// names lists the directory on a descriptor of its own: the read position belongs to
// this call.
func (d *osDir) names() (names []string, err error) {
	fd := -1
	err = d.handle.use(func(dir int) error {
		return retry(func() (err error) {
			fd, err = unix.Openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	buf := make([]byte, 8<<10)
	for {
		n := 0
		err = retry(func() (err error) {
			n, err = unix.ReadDirent(fd, buf)
			return err
		})
		if err != nil || n <= 0 {
			return names, errors.Join(err, unix.Close(fd))
		}
		_, _, names = unix.ParseDirent(buf[:n], -1, names)
	}
}
