//go:build (linux && !amd64 && !arm64) || darwin || freebsd || netbsd || openbsd || dragonfly

package vfs

import "golang.org/x/sys/unix"

// fstatat allocates a copy of the name.
func fstatat(dir int, name string, st *unix.Stat_t) error {
	return unix.Fstatat(dir, name, st, 0)
}
