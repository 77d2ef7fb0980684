package outbox

import (
	"context"
	"time"

	"github.com/evlog-go/evlog/internal/outboxrule"
)

// idleFor is how long the rows of the last batch wait for the next intent to be
// deleted with. After that they are deleted alone, and at once if somebody is in
// Wait.
const idleFor = 10 * time.Millisecond

// idle waits until there may be rows.
func (r *relay) idle(ctx context.Context) error {
	if len(r.done.rows) > 0 {
		if !r.b.waits.any() {
			woken, err := r.waitFor(ctx, idleFor)
			if woken || err != nil {
				return err
			}
		}
		return r.finish(ctx)
	}
	for {
		if r.pruneDue() {
			return nil
		}
		woken, err := r.waitFor(ctx, r.b.opts.PollInterval)
		if woken || err != nil {
			return err
		}
		if err := r.b.present(); err != nil {
			return err
		}
		changed, err := r.changed(ctx)
		if changed || err != nil {
			return err
		}
	}
}

func (r *relay) waitFor(ctx context.Context, d time.Duration) (woken bool, err error) {
	timer, stop := r.b.clock.Timer(d)
	defer stop()
	select {
	case <-r.b.wake:
		r.woken = true
		return true, nil
	case <-timer:
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// changed reports whether another connection has committed since the rows were
// read last. Without a connection of its own the relay cannot tell.
func (r *relay) changed(ctx context.Context) (bool, error) {
	if r.b.rules.Off(outboxrule.Poll) {
		return false, nil
	}
	if r.s == nil || !r.known {
		return true, nil
	}
	was := r.version
	err := r.use(ctx, func(s *session) error { return r.look(ctx, s) })
	return r.version != was, err
}

// look notes the version of the database. Values of two connections cannot be
// compared.
func (r *relay) look(ctx context.Context, s *session) error {
	if s != r.s {
		return nil
	}
	err := s.QueryRowContext(context.WithoutCancel(ctx), `PRAGMA data_version`).Scan(&r.version)
	r.known = err == nil
	return err
}

// finish deletes the last batch and closes its intent.
func (r *relay) finish(ctx context.Context) error {
	err := r.transact(ctx, func(t *tx) error {
		s, err := t.state()
		if err != nil {
			return err
		}
		if err := r.b.remove(t, r.log.ID(), r.done, nil); err != nil {
			return err
		}
		s.intent, s.logEnd = intent{}, int64(r.log.Stats().DurableNext)
		return t.store(s)
	})
	if err == nil {
		r.done = intent{}
		r.b.waits.deleted()
	}
	return err
}
