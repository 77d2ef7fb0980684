//go:build unix

package evlog_test

import (
	"os/exec"
	"syscall"
)

// become runs a command as another user.
func become(cmd *exec.Cmd, uid uint32) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
}
