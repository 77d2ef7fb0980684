//go:build !unix

package evlog

import "os"

// processAlive reports whether a process with this id exists. On Windows
// finding it opens it, which fails for one that has ended.
func processAlive(pid int) bool {
	p, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	_ = p.Release()
	return true
}
