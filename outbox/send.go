package outbox

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/outboxrule"
)

// send appends a batch, exactly once:
//
//  1. take the append gate, so that the next offset is known;
//  2. in one synced transaction delete the batch before, and write down which
//     rows are about to be appended at which offset: the intent;
//  3. append them, and let the gate go once they are written;
//  4. wait until they are durable.
//
// From step 2 on the gate is let go only when nothing can be in doubt any more:
// the batch was written, or the transaction was not committed for certain, or the
// intent was resolved as the hook does. That ctx has ended keeps a COMMIT that was
// refused from being tried again, and gives settle a bound; nothing else.
func (r *relay) send(ctx context.Context, s *session, b batch) error {
	var first uint64
	err := r.gated(ctx, func(g *evlog.Gate) error {
		first = g.Next()
		return r.sendThrough(ctx, g, s, b)
	})
	if err == nil {
		r.event(Event{Kind: EventRelayed, Rows: len(b.rows), Offset: first})
	}
	return err
}

// gated calls f with the append gate. If f does not come back, the log is
// poisoned: nobody may append before it was opened again, with the hook.
func (r *relay) gated(ctx context.Context, f func(g *evlog.Gate) error) error {
	g, err := r.log.Gate(ctx, HookName)
	if err != nil {
		return logError(err)
	}
	back := false
	defer func() {
		if !back {
			_ = g.Abandon(fmt.Errorf("outbox: panic in the relay: %s", debug.Stack()))
		}
	}()
	err = f(g)
	back = true
	g.Release()
	return err
}

func (r *relay) sendThrough(ctx context.Context, g *evlog.Gate, s *session, b batch) error {
	rules := r.b.rules
	next := state{epoch: r.epoch, logID: r.log.ID()}
	if err := fits(g.Next(), len(b.rows)); err != nil {
		return err
	}
	next.logEnd = int64(r.log.Stats().DurableNext)
	next.intent = intent{offset: int64(g.Next()), rows: b.rows}
	if rules.Off(outboxrule.Gate) {
		g.Release()
	}
	if !rules.Off(outboxrule.Intent) {
		err := r.transactOn(ctx, s, func(t *tx) error {
			if err := r.b.remove(t, next.logID, r.done, nil); err != nil {
				return err
			}
			return t.store(next)
		})
		var unsure *unsureError
		if errors.As(err, &unsure) {
			if rules.Off(outboxrule.Settle) {
				return &passingError{err}
			}
			return afterwards(&passingError{err}, r.settle(ctx, s, g))
		}
		if err != nil {
			return err
		}
		r.done = intent{}
		r.b.waits.deleted()
	}
	if rules.Off(outboxrule.Gate) {
		var err error
		if g, err = r.log.Gate(ctx, HookName); err != nil {
			return err
		}
		defer g.Release()
	}
	ticket, err := g.Write(b.records...)
	switch {
	case errors.Is(err, evlog.ErrPoisoned), errors.Is(err, evlog.ErrClosed):
		return err // nobody appends before the log was opened again, with the hook
	case err != nil && rules.Off(outboxrule.Settle):
		return logError(err)
	case err != nil:
		return afterwards(logError(err), r.settle(ctx, s, g))
	}
	g.Release()
	if rules.Off(outboxrule.SyncFirst) {
		r.done = next.intent
		if err := r.finish(ctx); err != nil {
			return err
		}
	}
	if err := ticket.Wait(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	// Whoever follows the log goes first: what is left to do here can wait.
	runtime.Gosched()
	r.done = next.intent // not before: close deletes its rows, however the waiting ends
	if rules.Off(outboxrule.Intent) {
		if err := r.finish(ctx); err != nil {
			return err
		}
	}
	return nil
}
