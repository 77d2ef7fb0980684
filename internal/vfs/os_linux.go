package vfs

import "golang.org/x/sys/unix"

// SyncData is fdatasync: content and size, without the times.
func (f *osFile) SyncData() error {
	err := retry(func() error { return unix.Fdatasync(int(f.Fd())) })
	return f.wrap("fdatasync", err)
}

// Allocate keeps the size: space behind the end that reads as nothing.
func (f *osFile) Allocate(off, n int64) error {
	err := retry(func() error {
		return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, off, n)
	})
	// EOPNOTSUPP and ENOSYS are ErrUnsupported to errors.Is.
	return f.wrap("fallocate", err)
}

// syncFileSystem makes everything durable that is on the directory's file
// system, and so its own name. Slow where others write a lot.
func syncFileSystem(dir int) error {
	return retry(func() error { return unix.Syncfs(dir) })
}

// networkTypes are the file systems whose fsync and flock depend on another
// machine. FUSE is not among them: statfs cannot tell sshfs from a local one.
var networkTypes = map[uint32]string{
	unix.NFS_SUPER_MAGIC:  "nfs",
	unix.SMB_SUPER_MAGIC:  "smb",
	unix.CIFS_SUPER_MAGIC: "cifs",
	unix.SMB2_SUPER_MAGIC: "smb2",
	unix.V9FS_MAGIC:       "9p",
	unix.AFS_SUPER_MAGIC:  "afs",
	unix.AFS_FS_MAGIC:     "afs",
	unix.CEPH_SUPER_MAGIC: "ceph",
	unix.CODA_SUPER_MAGIC: "coda",
	unix.NCP_SUPER_MAGIC:  "ncp",
	0x0bd00bd0:            "lustre",
}

func (d *osDir) Network() (string, error) {
	var st unix.Statfs_t
	err := d.handle.use(func(fd int) error {
		return retry(func() error { return unix.Fstatfs(fd, &st) })
	})
	if err != nil {
		return "", d.wrap("statfs", "", err)
	}
	// The type is signed and of different widths; the numbers have 32 bits.
	return networkTypes[uint32(st.Type)], nil
}
