//go:build !unix

package evlog_test

import "os/exec"

func become(*exec.Cmd, uint32) {}

func limitFiles(uint64) error { return nil }
