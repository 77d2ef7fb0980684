//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package vfs

// idOfName returns the inode that a name in the directory leads to.
func idOfName(dir int, name string) (fileID, error) { return statID(dir, name) }
