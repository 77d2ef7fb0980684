//go:build linux && (amd64 || arm64)

package vfs

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// fstatat is unix.Fstatat without the copy of the name on the heap.
func fstatat(dir int, name string, st *unix.Stat_t) error {
	var c cName
	if err := c.set(name); err != nil {
		return err
	}
	_, _, errno := unix.Syscall6(unix.SYS_NEWFSTATAT, uintptr(dir),
		uintptr(unsafe.Pointer(&c[0])), uintptr(unsafe.Pointer(st)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
