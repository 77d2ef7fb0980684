//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package vfs

import "golang.org/x/sys/unix"

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
