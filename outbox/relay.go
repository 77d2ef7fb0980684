package outbox

import (
	"context"
	"time"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/outboxrule"
)

// relay is one Run. It belongs to one goroutine.
type relay struct {
	b     *Box
	log   *evlog.Log
	epoch int64 // of its hold on the outbox
	s     *session
	// done is the open intent, if its records are durable: the next transaction
	// deletes its rows.
	done    intent
	version int64 // of the database before the last read, as the pinned connection saw it
	known   bool  // version is known
	woken   bool  // by Notify: there are rows, whatever the version is
	prunes  pruning
	took    time.Duration // by the last transaction, syncs and all
	trouble
	rows   int     // most in the next batch, after one that found no room; 0: as many as allowed
	untold []Event // OnEvent is not told while the relay holds anything
}

func (r *relay) close() {
	if len(r.done.rows) > 0 && r.took < closeFor/2 {
		// Leave nothing open where that is a matter of a moment. If not, whoever
		// comes next does it: the database is to be free.
		ctx, cancel := context.WithTimeout(context.Background(), closeFor)
		defer cancel()
		if err := r.finish(ctx); err != nil {
			r.b.logger.Debug("outbox: the last batch stays in the table until the next start", "err", err)
		}
	}
	r.unpin()
}

// closeFor bounds what a relay that was told to stop still does.
const closeFor = 50 * time.Millisecond

func (r *relay) unpin() {
	if r.s != nil {
		r.s.close()
		r.s, r.known = nil, false
	}
}

// use calls f with the relay's connection, which is kept where the pool has more
// than one.
func (r *relay) use(ctx context.Context, f func(s *session) error) error {
	if r.s != nil {
		err := f(r.s)
		if broken(err) {
			r.unpin()
		}
		return err
	}
	s, err := r.b.session(ctx)
	if err != nil {
		return err
	}
	if r.b.db.Stats().MaxOpenConnections != 1 || r.b.rules.Off(outboxrule.NoPin) {
		s.keeps = true
		r.s = s
		return r.use(ctx, f)
	}
	defer s.close()
	return f(s)
}

// transact is a transaction on the relay's connection, while the relay holds the
// outbox.
func (r *relay) transact(ctx context.Context, f func(t *tx) error) error {
	return r.use(ctx, func(s *session) error { return r.transactOn(ctx, s, f) })
}

func (r *relay) transactOn(ctx context.Context, s *session, f func(t *tx) error) error {
	start := r.b.clock.Elapsed()
	err := r.b.transact(ctx, &s.connection, func(t *tx) error {
		if err := r.b.fence(t, r.epoch); err != nil {
			return err
		}
		return f(t)
	})
	r.took = r.b.clock.Elapsed() - start
	return err
}

// start takes the outbox over and resolves what a run before on the same log has
// left.
func (r *relay) start(ctx context.Context) error {
	b := r.b
	b.mu.Lock()
	was := b.opened
	b.mu.Unlock()
	if was.reader == nil || was.reader != r.log.Reader() {
		return ErrNoHook
	}
	var s state
	err := r.use(ctx, func(c *session) error {
		return b.transact(ctx, &c.connection, func(t *tx) (err error) {
			if err := tables.Check(t.ctx, t); err != nil {
				return err
			}
			if err := b.fence(t, was.epoch); err != nil {
				return err
			}
			if s, err = t.state(); err != nil {
				return err
			}
			s.epoch++
			return t.store(s)
		})
	})
	if err != nil {
		return err
	}
	r.epoch = s.epoch
	b.mu.Lock()
	b.opened.epoch = s.epoch
	b.mu.Unlock()
	if err := r.log.RequireHook(ctx, note{s.box, s.epoch}.String()); err != nil {
		return logError(err)
	}
	if len(s.rows) == 0 {
		return nil
	}
	return r.use(ctx, func(s *session) error {
		return r.gated(ctx, func(g *evlog.Gate) error { return r.settle(ctx, s, g) })
	})
}

func (r *relay) loop(ctx context.Context) error {
	for {
		n, err := r.step(ctx)
		if err == nil {
			r.well()
			r.tell()
			err = r.prune(ctx)
		}
		if err == nil {
			err = r.rest(ctx, n)
		}
		if err == nil {
			continue
		}
		if err = r.retry(ctx, err); err != nil {
			return err
		}
	}
}

// rest comes after a step that has dealt with n rows.
func (r *relay) rest(ctx context.Context, n int) error {
	if n == 0 && (len(r.done.rows) > 0 || !r.prunes.underWay) {
		return r.idle(ctx)
	}
	return ctx.Err()
}

// event counts at once what has happened, and has it told when the relay holds
// nothing: OnEvent may append to the log and use the database.
func (r *relay) event(e Event) {
	r.b.rec.count(e)
	if k := len(r.untold) - 1; k >= 0 && e.Kind == EventRetry && r.untold[k].Kind == EventRetry {
		r.untold[k] = e // a disk can be full for long
		return
	}
	r.untold = append(r.untold, e)
}

func (r *relay) tell() {
	for len(r.untold) > 0 {
		e := r.untold[0]
		r.untold = r.untold[1:]
		r.b.rec.tell(e)
	}
}

// step relays one batch and returns how many rows it dealt with.
func (r *relay) step(ctx context.Context) (int, error) {
	rows, err := r.read(ctx)
	if err != nil || len(rows) == 0 {
		return 0, err
	}
	batch, bad := r.encode(rows)
	if len(bad) > 0 {
		if err := r.park(ctx, bad); err != nil {
			return 0, err
		}
	}
	if len(batch.records) == 0 {
		return len(rows), nil
	}
	err = r.use(ctx, func(s *session) error { return r.send(ctx, s, batch) })
	r.fit(len(batch.rows), err)
	return len(rows), err
}

// most is how many rows the next batch may have.
func (r *relay) most() int {
	if r.rows == 0 {
		return r.b.opts.BatchRows
	}
	return min(r.rows, r.b.opts.BatchRows)
}

// fit halves the batch that found no room, for as much of it as there is room
// for, and doubles it again after one that did.
func (r *relay) fit(n int, err error) {
	switch {
	case err != nil && passing(err):
		r.rows = max(1, n/2)
	case err == nil && r.rows >= r.b.opts.BatchRows:
		r.rows = 0
	case err == nil:
		r.rows *= 2
	}
}
