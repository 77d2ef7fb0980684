//go:build unix

package main

import (
	"os/signal"
	"syscall"
)

// ignoreBrokenPipes has a write to a pipe that nobody reads give an error and not
// a signal. It holds for the whole process, and for those that it starts.
func ignoreBrokenPipes() { signal.Ignore(syscall.SIGPIPE) }
