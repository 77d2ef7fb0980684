//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package vfs

import "golang.org/x/sys/unix"

// readName is four system calls, and nothing for the garbage collector.
func (d *osDir) readName(name string, b []byte, off int64) bool {
	if checkName("open", d.path, name) != nil {
		return false
	}
	read := -1
	_ = d.handle.use(func(dir int) error {
		// A symbolic link is os.Root's business.
		fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|openNonblock, 0)
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG {
			read, _ = unix.Pread(fd, b, off)
		}
		return unix.Close(fd)
	})
	return read == len(b)
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
