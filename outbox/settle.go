package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/evlog-go/evlog/evlog"
)

// giveUpAfter is how long settle goes on after an error that nobody mends by
// making room, or after the relay was told to stop.
const giveUpAfter = 5 * time.Second

// settle resolves the intent that the database has, under the gate: what is in
// doubt must be settled before anybody else appends. It goes on as long as a disk
// is full, since a full disk gets room again. If the database stays locked or
// fails otherwise, or ctx has ended, it gives up after a while, and at once if the
// error would come again: it poisons the log, so that the next opening, with the
// hook, settles it. Nobody else can append meanwhile, and who has the database's
// lock may be waiting for the gate.
func (r *relay) settle(ctx context.Context, s *session, g *evlog.Gate) error {
	r.done = intent{}
	nc := context.WithoutCancel(ctx)
	end, err := g.End(nc) // it stays there: the gate is held
	if err != nil {
		return err
	}
	var since time.Duration // when what has a bound began; 0: it has not
	for wait := busyFirstWait; ; wait = min(2*wait, time.Second) {
		err := r.resolveUpTo(nc, s, end)
		if err == nil || errors.Is(err, ErrFenced) {
			return err // whoever took over has decided what becomes of the rows
		}
		if broken(err) {
			if other := r.b.renew(nc, s); other != nil {
				err = other
			}
		}
		now := r.b.clock.Elapsed()
		switch {
		case ctx.Err() == nil && passing(err):
			since = 0
		case since == 0:
			since = max(1, now)
		}
		if lasting(err) || since != 0 && now-since > giveUpAfter {
			return g.Abandon(fmt.Errorf("an append has failed, and the database does not take what became of it: %w", err))
		}
		r.failing(err, wait)
		_ = r.b.sleep(nc, jitter(wait))
	}
}

// resolveUpTo resolves the intent of the database for a log that ends at end. In
// a file that is not the database's any more it would mean nothing to anybody.
func (r *relay) resolveUpTo(ctx context.Context, s *session, end uint64) error {
	if err := r.b.present(); err != nil {
		return err
	}
	var did resolution
	err := r.transactOn(ctx, s, func(t *tx) error {
		st, err := t.state()
		if err != nil {
			return err
		}
		if did, err = r.b.resolve(t, st, func(i int) bool { return st.in(i, end, nil) }); err != nil {
			return err
		}
		return t.store(state{epoch: r.epoch, logID: r.log.ID(), logEnd: int64(end)})
	})
	if err == nil {
		r.b.waits.deleted()
		r.event(did.event())
	}
	return err
}

// afterwards is the error of a batch that was not appended, or is not known to
// have been, once that is settled: what is settled can be tried again.
func afterwards(err, settled error) error {
	if settled == nil {
		return err
	}
	var passing *passingError
	if errors.As(err, &passing) {
		err = passing.err // no more: it is not settled
	}
	return join(settled, err)
}
