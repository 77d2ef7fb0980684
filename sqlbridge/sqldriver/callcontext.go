package sqldriver

import (
	"context"
	"sync"
)

// callContext is the context of a call as modernc.org/sqlite sees it. It ends with
// the program's, but not between the moment from which a commit is written, and so
// cannot be taken back, and the next statement of the same text: the call would
// report the end of the context, and the records be in the log.
type callContext struct {
	context.Context // the program's
	done            chan struct{}

	mu      sync.Mutex // guards the rest
	err     error      // why done is closed
	writing bool
}

// watchCall returns the context to hand on, and what to call when the call returns.
func (s *session) watchCall(ctx context.Context) (_ context.Context, end func()) {
	if s.log == nil || ctx.Done() == nil {
		return ctx, func() {}
	}
	c := &callContext{Context: ctx, done: make(chan struct{})}
	c.follow() // it may have ended already
	stop := context.AfterFunc(ctx, c.follow)
	s.call = c
	return c, func() {
		s.call = nil
		stop()
	}
}

// Done implements context.Context.
func (c *callContext) Done() <-chan struct{} { return c.done }

// Err implements context.Context.
func (c *callContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// follow ends the context if the program's has ended.
func (c *callContext) follow() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.Context.Err(); err != nil && c.err == nil && !c.writing {
		c.err = err
		close(c.done)
	}
}

// write keeps the context from ending. It fails if it has ended.
func (c *callContext) write() error {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.writing = true
	}
	return c.err
}

// goOn is called when the next statement is compiled.
func (c *callContext) goOn() {
	if c == nil {
		return
	}
	c.mu.Lock()
	c.writing = false
	c.mu.Unlock()
	c.follow()
}
