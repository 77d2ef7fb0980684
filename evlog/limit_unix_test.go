//go:build linux || darwin

package evlog_test

import "syscall"

// limitFiles is ulimit -n for this process.
func limitFiles(n uint64) error {
	return syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: n, Max: n})
}
