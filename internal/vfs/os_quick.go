//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package vfs

import (
	"errors"

	"golang.org/x/sys/unix"
)

// readName is four system calls, and nothing for the garbage collector.
func (d *osDir) readName(name string, b []byte, off int64) (n int, ok bool) {
	if checkName("open", d.path, name) != nil {
		return 0, false
	}
	_ = d.handle.use(func(dir int) error {
		// A symbolic link is os.Root's business.
		fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|openNonblock, 0)
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG {
			n, err = unix.Pread(fd, b, off)
			ok = err == nil && int64(n) == max(0, min(int64(len(b)), st.Size-off))
		}
		return unix.Close(fd)
	})
	return n, ok
}

func (d *osDir) stamp(name string) (Stamp, bool) {
	if checkName("stat", d.path, name) != nil {
		return Stamp{}, false
	}
	st, err := d.handle.stat(name)
	if err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return Stamp{}, false
	}
	return Stamp{Size: st.Size, Modified: st.Mtim.Nano()}, true
}

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
