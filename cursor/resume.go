package cursor

import (
	"context"
	"errors"

	"github.com/evlog-go/evlog/evlog"
)

// resume finds out where the consumer goes on, and has it stored, so that from
// here on its name is known and a second one under it is noticed. It also keeps
// the promise of Latest: a consumer that dies before its first record does not
// start behind even later ones.
func (c *consumer) resume(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	pos, err := c.store.Load(ctx, c.name)
	if err := c.sameLog(pos); err != nil {
		return err
	}
	var wrong *LogError
	switch {
	case errors.Is(err, ErrUnknownConsumer):
		return c.registerLocked(ctx)
	case errors.As(err, &wrong):
		pos.Next, pos.LogID = wrong.Cursor, wrong.CursorsLogID
	case err != nil:
		return err
	}
	s, rerr := Resolve(ctx, c.log, c.name, pos.Next, pos.LogID, c.Reset)
	switch {
	case rerr != nil:
		return rerr
	case s.Reset == nil && wrong != nil:
		return err // the store knows better than the log
	}
	c.committed, c.next = pos.Next, s.Next
	if s.Reset != nil {
		return c.resetLocked(ctx, s)
	}
	return nil
}

// sameLog refuses a store that is another log's, whatever it has under the name:
// no policy decides about two things that do not belong together.
func (c *consumer) sameLog(pos Position) error {
	stores, id := pos.LogID, c.log.ID()
	if s, ok := c.store.(Bound); ok {
		stores = s.LogID()
	}
	if stores == "" || id == "" || stores == id {
		return nil
	}
	return &LogError{Name: c.name, Cursor: pos.Next, LogID: id, CursorsLogID: stores}
}

// registerLocked starts a consumer that never committed.
func (c *consumer) registerLocked(ctx context.Context) error {
	first, next, err := c.log.Bounds(ctx)
	if err != nil {
		return err
	}
	c.next = first
	if c.New == Latest {
		c.next = next
	}
	if err := c.store.Commit(ctx, c.name, 0, c.next); err != nil {
		return err
	}
	c.committed = c.next
	return nil
}

// resetLocked tells and stores that the consumer goes on elsewhere. It is told
// first: a crash in between has it told twice, and never not at all.
func (c *consumer) resetLocked(ctx context.Context, s Start) error {
	c.Logger.Warn("cursor reset", "consumer", c.name, "going_on_at", s.Next,
		"lost_from", s.Lost.From, "lost_to", s.Lost.To, "err", s.Reset)
	if c.OnReset != nil {
		c.OnReset(s)
	}
	if c.failed = c.storeReset(ctx, s); c.failed != nil {
		return c.failed
	}
	c.committed, c.next = s.Next, s.Next
	return nil
}

func (c *consumer) storeReset(ctx context.Context, s Start) error {
	if r, ok := c.store.(Resetter); ok {
		return r.Reset(ctx, c.name, c.committed, s.Next)
	}
	if errors.Is(s.Reset, ErrBehind) {
		return c.store.Commit(ctx, c.name, c.committed, s.Next)
	}
	if err := c.store.Remove(ctx, c.name); err != nil {
		return err
	}
	return c.store.Commit(ctx, c.name, 0, s.Next)
}

var _ Log = (*evlog.Reader)(nil)
