//go:build darwin || freebsd

package vfs

import "golang.org/x/sys/unix"

// Network goes by the flag that the kernel gives to mounts of local storage.
func (d *osDir) Network() (string, error) {
	var st unix.Statfs_t
	err := d.handle.use(func(fd int) error {
		return retry(func() error { return unix.Fstatfs(fd, &st) })
	})
	if err != nil {
		return "", d.wrap("statfs", "", err)
	}
	if st.Flags&unix.MNT_LOCAL != 0 {
		return "", nil
	}
	return unix.ByteSliceToString(st.Fstypename[:]), nil
}
