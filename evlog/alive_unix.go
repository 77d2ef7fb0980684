//go:build unix

package evlog

import (
	"errors"

	"golang.org/x/sys/unix"
)

// processAlive reports whether a process with this id exists.
func processAlive(pid int) bool {
	err := unix.Kill(pid, 0)
	return err == nil || errors.Is(err, unix.EPERM)
}
