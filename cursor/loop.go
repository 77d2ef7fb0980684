package cursor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/strict"
)

// Run delivers the records of log to handle, in order and one at a time, from
// the offset that store has for the consumer name, and commits in store what was
// handled. A record is valid during the call only: see evlog.Record.Clone.
//
// Delivery is at least once. After a crash the records handled since the last
// commit come again; none is left out. Two consumers under one name do not share
// the work: the one that commits second ends with a *MovedError.
//
// Run ends, after committing what was handled,
//   - with the context's error when ctx ends. The record being handled may be
//     finished; the context that the handler gets ends too.
//   - with a *HandlerError when handle returns an error. That record does not
//     count as handled.
//   - with the log's error, such as *evlog.CorruptError or evlog.ErrClosed, and
//     where Reset is Fail with a *RangeError when retention has removed what
//     comes next.
//   - with nil at Options.UntilEnd or Options.Limit.
//
// An error of the store or of BeforeCommit ends it without another commit, and
// so does a panic in handle or BeforeCommit, which goes on to the caller. Nothing of Run runs
// any more when it has returned.
func Run(ctx context.Context, log Log, store Store, name string, handle func(ctx context.Context, rec evlog.Record) error, opts *Options) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if handle == nil {
		return fmt.Errorf("cursor: run: no handler: %w", evlog.ErrBadOptions)
	}
	o, err := opts.withDefaults()
	if err != nil {
		return err
	}
	storeCtx, release := outlive(ctx, o.StopTimeout)
	defer release()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c := &consumer{
		Options: o, log: log, store: store, name: name, handle: handle,
		storeCtx: storeCtx, cancel: cancel, pending: make(chan struct{}, 1),
	}
	return c.run(ctx)
}

// consumer is one Run. The goroutine of Run reads and handles; a second one
// (see commitByTime) commits while the first one waits for records.
type consumer struct {
	Options
	log      Log
	store    Store
	name     string
	handle   func(ctx context.Context, rec evlog.Record) error
	storeCtx context.Context // outlives the context of Run by StopTimeout
	cancel   context.CancelCauseFunc
	pending  chan struct{} // has an element when a commit by time falls due

	// mu guards the rest. It is held while the handler runs, and across a
	// commit, so that what BeforeCommit flushes is exactly what was handled.
	mu        sync.Mutex
	committed uint64        // what the store has
	next      uint64        // the first offset that is not handled
	handled   int           // records since the last commit
	since     time.Duration // when the first of them was handled
	total     uint64        // records handled in this run
	failed    error         // of the store or BeforeCommit: nothing is committed any more
}

var (
	// errLimit ends the reading at Options.Limit.
	errLimit = errors.New("limit reached")
	// errPanicked stands in failed while the handler or BeforeCommit runs. Whoever
	// finds it there came after one that never returned: what it left half done
	// must not be flushed or committed.
	errPanicked = errors.New("the handler or BeforeCommit panicked, or left its goroutine")
)

func (c *consumer) run(ctx context.Context) error {
	if err := c.resume(ctx); err != nil {
		return err
	}
	stop := c.commitByTime()
	err := func() error {
		defer stop() // also when the handler panics
		return c.consume(ctx)
	}()
	return c.finish(err)
}

// consume reads until an error or the end. Where retention has removed what
// comes next, the policy decides.
func (c *consumer) consume(ctx context.Context) error {
	for tries := 0; ; tries++ {
		before := c.next
		err := c.read(ctx)
		var handler *HandlerError
		if errors.As(err, &handler) || !errors.Is(err, evlog.ErrOffsetOutOfRange) {
			return err
		}
		if c.next > before {
			tries = 0
		}
		moved, rerr := c.overtaken(ctx)
		switch {
		case rerr != nil:
			return rerr
		case !moved && tries > 2:
			return err // the log cannot make up its mind
		}
	}
}

// overtaken decides about a log that no longer has what comes next. moved is
// false where it has it after all.
func (c *consumer) overtaken(ctx context.Context) (moved bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, err := Resolve(ctx, c.log, c.name, c.next, c.log.ID(), c.Reset)
	if err != nil || s.Reset == nil {
		return false, err
	}
	// What was handled is committed before anything is skipped.
	if c.commitLocked(); c.failed != nil {
		return false, c.failed
	}
	return true, c.resetLocked(ctx, s)
}

// read handles what the log yields. Nil: the end, where that is asked for.
func (c *consumer) read(ctx context.Context) error {
	records := c.log.Follow
	if c.UntilEnd {
		records = c.log.Records
	}
	for rec, err := range records(strict.Context(ctx), c.next) {
		if err == nil {
			err = c.take(ctx, rec)
		}
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

// take handles one record, and commits when it is time.
func (c *consumer) take(ctx context.Context, rec evlog.Record) error {
	c.mu.Lock()
	defer c.mu.Unlock() // also when the handler panics
	// The loop may have been told to end while it waited for a commit by time.
	if err := ctx.Err(); err != nil {
		return err
	}
	c.failed = errPanicked
	err := c.handle(ctx, rec)
	c.failed = nil
	switch {
	case err == nil:
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return ctx.Err() // nothing is wrong with the record
	default:
		return &HandlerError{Name: c.name, Offset: rec.Offset, Err: err}
	}
	c.next = rec.Offset + 1
	c.total++
	if c.countLocked() {
		c.commitLocked()
	}
	if c.failed == nil && c.total >= c.Limit {
		return errLimit
	}
	return c.failed
}

// countLocked counts a handled record. It reports whether it is time to commit.
func (c *consumer) countLocked() bool {
	c.handled++
	now := c.Clock.Elapsed()
	if c.handled == 1 {
		c.since = now
		select {
		case c.pending <- struct{}{}:
		default:
		}
	}
	return c.CommitRecords > 0 && c.handled >= c.CommitRecords ||
		c.CommitInterval > 0 && now-c.since >= c.CommitInterval
}
