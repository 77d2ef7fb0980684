package cursor

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// commitLocked stores how far the handler got. After an error it is not known
// what is stored: nothing is committed on top of that.
func (c *consumer) commitLocked() {
	if c.failed != nil || c.handled == 0 {
		return
	}
	if c.BeforeCommit != nil {
		c.failed = errPanicked
		c.failed = c.BeforeCommit(c.storeCtx)
	}
	if c.failed == nil {
		c.failed = c.store.Commit(c.storeCtx, c.name, c.committed, c.next)
	}
	switch {
	case c.failed == nil:
		c.committed, c.handled = c.next, 0
	case c.storeCtx.Err() != nil && errors.Is(c.failed, c.storeCtx.Err()):
		// Not to be taken for the stop that was asked for.
		c.failed = fmt.Errorf("consumer %q: what was handled could not be committed in %v: %v: %w",
			c.name, c.StopTimeout, c.failed, context.DeadlineExceeded) //nolint:errorlint // see above
	}
}

// finish commits what was handled and chooses the error to tell.
func (c *consumer) finish(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed == nil {
		c.commitLocked()
	}
	var handler *HandlerError
	switch {
	case err == nil, errors.Is(err, errLimit), c.failed != nil && errors.Is(err, c.failed):
		return c.failed
	case c.failed == nil:
		return err
	case errors.Is(err, context.Canceled) && !errors.As(err, &handler):
		// Why the loop ended does not matter beside what could not be stored;
		// it may have ended for just that.
		return c.failed
	}
	return errors.Join(err, c.failed)
}

// commitByTime starts the goroutine that commits at Options.CommitInterval
// while the loop waits for records, or for a slow log. stop ends it and waits.
func (c *consumer) commitByTime() (stop func()) {
	if c.CommitInterval < 0 {
		return func() {}
	}
	end, ended := make(chan struct{}), make(chan struct{})
	var panicked any
	go func() {
		defer close(ended)
		left := false
		defer func() {
			// BeforeCommit is the caller's: its panic is for the caller of Run, and
			// Run must not wait for a goroutine that it has ended.
			if panicked = recover(); !left {
				c.cancel(errPanicked)
			}
		}()
		c.commitInTime(end)
		left = true
	}()
	return func() {
		close(end)
		<-ended
		if panicked != nil {
			panic(panicked)
		}
	}
}

func (c *consumer) commitInTime(end <-chan struct{}) {
	for {
		select {
		case <-c.pending:
		case <-end:
			return
		}
		if !c.commitWhenDue(end) {
			return
		}
	}
}

// commitWhenDue waits until the oldest record handled has waited long enough,
// and commits. It returns false when nothing more is to be committed.
func (c *consumer) commitWhenDue(end <-chan struct{}) bool {
	for {
		wait, done, failed := c.commitIfDue()
		if failed != nil {
			c.cancel(failed) // the loop may be waiting for records
			return false
		}
		if done {
			return true // the next record asks for the next commit
		}
		timer, release := c.Clock.Timer(wait)
		select {
		case <-timer:
		case <-end:
			release()
			return false
		}
		release()
	}
}

// commitIfDue commits if the oldest record handled has waited long enough. wait
// is how long it still has to, and done says that there is none.
func (c *consumer) commitIfDue() (wait time.Duration, done bool, failed error) {
	c.mu.Lock()
	defer c.mu.Unlock() // also when BeforeCommit panics
	wait = c.since + c.CommitInterval - c.Clock.Elapsed()
	if c.handled > 0 && wait <= 0 {
		c.commitLocked()
	}
	return wait, c.handled == 0, c.failed
}

// outlive returns a context that ends span after ctx, and a function that ends
// it now and leaves nothing behind.
func outlive(ctx context.Context, span time.Duration) (context.Context, func()) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		t := time.NewTimer(span)
		defer t.Stop()
		select {
		case <-t.C:
			cancel()
		case <-longer.Done():
		}
	})
	return longer, func() {
		cancel()
		if !stop() {
			<-done
		}
	}
}
