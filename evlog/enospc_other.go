//go:build !unix

package evlog

import "syscall"

// errDiskQuota is what Windows says on a full disk: ERROR_DISK_FULL.
var errDiskQuota error = syscall.Errno(112)
