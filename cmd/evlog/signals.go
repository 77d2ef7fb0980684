package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// signalError is why a context ended: the signal that asked for it.
type signalError struct {
	name   string
	number int
}

func (e *signalError) Error() string { return fmt.Sprintf("ended by %s", e.name) }

// withSignals returns a context that ends at Ctrl-C or a request to terminate.
// A second signal ends the process at once.
func withSignals(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case sig := <-caught:
			signal.Stop(caught)
			cancel(signalCause(sig))
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(caught)
		cancel(nil)
		<-done
	}
}

func signalCause(sig os.Signal) error {
	e := &signalError{name: sig.String(), number: int(syscall.SIGINT)}
	if s, ok := sig.(syscall.Signal); ok {
		e.number = int(s)
	}
	return e
}
