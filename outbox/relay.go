package outbox

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/outboxrule"
)

// Run relays the outbox into log, which was opened with Hook, until ctx ends. It
// drains what is there at once, batch after batch, and then waits for Notify or
// for another connection's commit.
//
// It goes on by itself, with growing pauses, while the database is locked or a
// disk is full: the rows stay. It ends
//   - with the context's error when ctx ends;
//   - with the log's error when the log was closed (evlog.ErrClosed) or a write to
//     it has failed (evlog.ErrPoisoned): close it, open it again with Hook, and
//     call Run again, or let RunOpening do that;
//   - with ErrFenced, ErrRelayRunning, ErrNoHook, ErrDatabaseGone or ErrUnsafe;
//   - with any other error of the database.
//
// Nothing of Run runs any more when it has returned. However it ends, and if the
// process is killed, what is committed and not yet in the log will be relayed
// later, once.
//
// While it runs it holds one connection of the pool, except where the pool has
// only one: then it takes that for a moment at a time. A transaction that holds
// it must not append to the log.
func (b *Box) Run(ctx context.Context, log *evlog.Log) error {
	release, err := b.register()
	if err != nil {
		return err
	}
	defer release()
	b.rec.running(true)
	defer b.rec.running(false)
	r := &relay{b: b, log: log}
	defer r.close()
	// The first steps are tried again as the later ones are.
	for {
		if err = r.start(ctx); err == nil {
			break
		}
		if err = r.retry(ctx, err); err != nil {
			return wrap("relay", err)
		}
	}
	return wrap("relay", r.loop(ctx))
}

// RunOpening opens the log with open, relays into it, and closes it at the end.
// When the log is poisoned, it closes it and opens it again, with growing pauses
// of up to a minute while that fails. An error of the first opening is returned,
// and so is a later one that would come again: a *MismatchError, a log that
// somebody else has open, a database without the tables. When RunOpening returns,
// or panics, the log is closed.
//
// open passes Hook in the log's options; it is the place to tell the rest of the
// application which log is the present one.
func (b *Box) RunOpening(ctx context.Context, open func(context.Context) (*evlog.Log, error)) error {
	var wait time.Duration
	for first := true; ; first = false {
		log, err := open(ctx)
		if err == nil {
			if err = b.runAndClose(ctx, log); !errors.Is(err, evlog.ErrPoisoned) {
				return err
			}
			wait = 0
		} else if first || ctx.Err() != nil || lasting(err) {
			return err
		}
		wait = min(max(reopenFirst, 2*wait), reopenMax)
		b.logger.Warn("outbox: the log has to be opened again", "err", err, "wait", wait)
		b.rec.event(Event{Kind: EventRetry, Err: err, Wait: wait})
		if err := b.sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// runAndClose closes the log in a panic too.
func (b *Box) runAndClose(ctx context.Context, log *evlog.Log) (err error) {
	defer func() { err = join(err, log.Close()) }()
	return b.Run(ctx, log)
}

// lasting tells errors of opening a log that the next opening would have too.
func lasting(err error) bool {
	var mismatch *MismatchError
	if errors.As(err, &mismatch) {
		return true
	}
	for _, e := range []error{
		evlog.ErrLocked, evlog.ErrVersion, evlog.ErrBadOptions, evlog.ErrHookRequired,
		ErrNoTables, ErrUnsafe, ErrDatabaseGone, ErrRelayRunning,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

const (
	reopenFirst = 100 * time.Millisecond
	reopenMax   = time.Minute
)

// relay is one Run. It belongs to one goroutine.
type relay struct {
	b     *Box
	log   *evlog.Log
	epoch int64 // 0: not started
	s     *session
	// done is the open intent, if its records are durable: the next transaction
	// deletes its rows.
	done    intent
	version int64 // of the database before the last read, as the pinned connection saw it
	known   bool  // version is known
	woken   bool  // by Notify: there are rows, whatever the version is
	pruned  time.Duration
	took    time.Duration // by the last transaction, syncs and all
	trouble
	rows int // most in the next batch, after one that found no room; 0: as many as allowed
}

func (r *relay) close() {
	if r.epoch != 0 && len(r.done.rows) > 0 && r.took < closeFor/2 {
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
		s.prepared = map[string]*sql.Stmt{}
		r.s = s
		return r.use(ctx, f)
	}
	defer s.close()
	return f(s)
}

// transact is a transaction on the relay's connection.
func (r *relay) transact(ctx context.Context, f func(t *tx) error) error {
	return r.use(ctx, func(s *session) error { return r.transactOn(ctx, s, f) })
}

func (r *relay) transactOn(ctx context.Context, s *session, f func(t *tx) error) error {
	start := r.b.clock.Elapsed()
	err := r.b.transact(ctx, &s.connection, f)
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
	err := r.transact(ctx, func(t *tx) (err error) {
		if err := tables.Check(t.ctx, t); err != nil {
			return err
		}
		if s, err = t.state(); err != nil {
			return err
		}
		s.epoch = was.epoch + 1
		return b.store(t, was.epoch, s)
	})
	if err != nil {
		return err
	}
	b.mu.Lock()
	b.opened.epoch = s.epoch
	b.mu.Unlock()
	if err := r.log.RequireHook(ctx, note{s.box, s.epoch}.String()); err != nil {
		return logError(err)
	}
	r.epoch = s.epoch
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
			if n == 0 {
				err = r.idle(ctx)
			} else {
				err = ctx.Err()
			}
		}
		if err == nil {
			continue
		}
		if err = r.retry(ctx, err); err != nil {
			return err
		}
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
