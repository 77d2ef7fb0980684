package vfs

import "golang.org/x/sys/unix"

// cName is a name as system calls take it, on the stack: what golang.org/x/sys makes of
// one is on the heap.
type cName [256]byte // NAME_MAX and the NUL

func (c *cName) set(name string) error {
	if len(name) >= len(c) {
		return unix.ENAMETOOLONG
	}
	copy(c[:], name)
	return nil
}
