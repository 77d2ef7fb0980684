//go:build unix

package main

import (
	"context"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// watchReader returns a context that ends with errReaderGone when nobody reads
// the pipe w any more. A follower that has nothing to write would never notice.
func watchReader(parent context.Context, w io.Writer) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	stop := func() { cancel(nil) }
	f, ok := w.(*os.File)
	if !ok {
		return ctx, stop
	}
	st, err := f.Stat()
	if err != nil || st.Mode()&(os.ModeNamedPipe|os.ModeSocket) == 0 {
		return ctx, stop
	}
	wakeR, wakeW, err := os.Pipe()
	if err != nil {
		return ctx, stop
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if brokenBeforeWake(int(f.Fd()), int(wakeR.Fd())) {
			cancel(errReaderGone)
		}
	}()
	return ctx, func() {
		cancel(nil)
		_ = wakeW.Close()
		<-done
		_ = wakeR.Close()
	}
}

// brokenBeforeWake waits until the reader of fd is gone, or the writer of wake.
func brokenBeforeWake(fd, wake int) bool {
	fds := []unix.PollFd{{Fd: int32(fd)}, {Fd: int32(wake), Events: unix.POLLIN}}
	for {
		_, err := unix.Poll(fds, -1)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil || fds[1].Revents != 0:
			return false
		case fds[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0:
			return true
		case fds[0].Revents != 0:
			return false
		}
	}
}
