//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package vfs

import "io/fs"

// syncFileSystem exists on Linux only.
func syncFileSystem(int) error { return fs.ErrPermission }
