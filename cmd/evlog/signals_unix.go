//go:build unix

package main

import (
	"os/signal"
	"syscall"
)

func ignoreBrokenPipes() { signal.Ignore(syscall.SIGPIPE) }
