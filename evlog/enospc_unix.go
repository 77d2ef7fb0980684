//go:build unix

package evlog

import "syscall"

// errDiskQuota is ENOSPC for one user.
var errDiskQuota error = syscall.EDQUOT
