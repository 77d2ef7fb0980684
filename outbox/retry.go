package outbox

import (
	"context"
	"errors"
	"time"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/outboxrule"
	"github.com/evlog-go/evlog/internal/sqldb"
)

// trouble is a series of failures. The zero value is none.
type trouble struct {
	wait   time.Duration // the pause before the next try
	broken int           // how many connections were of no use
	since  time.Duration // when it began
	told   bool          // it is in the log of the application
}

const (
	// tellAfter is how long a database may be locked before it is worth a word.
	tellAfter = time.Second
	// brokenMost is how many broken connections in a row are replaced.
	brokenMost = 6
)

// retry waits before another try, if err is one that goes away.
func (r *relay) retry(ctx context.Context, err error) error {
	r.tell()
	most := busyMaxWait
	switch {
	case errors.Is(err, evlog.ErrPoisoned): // whatever the cause, which its text has too
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	case sqldb.IsBusy(err):
	case passing(err):
		most = time.Second
	case broken(err) && r.broken < brokenMost:
		r.broken++
	default:
		return err
	}
	if r.b.rules.Off(outboxrule.Retry) {
		return err
	}
	r.wait = min(max(busyFirstWait, 2*r.wait), most)
	r.failing(err, r.wait)
	r.tell()
	return r.b.sleep(ctx, jitter(r.wait))
}

// failing notes a failure after which it is tried again. That the database is
// locked is everyday, and is logged if it stays so.
func (r *relay) failing(err error, wait time.Duration) {
	now := r.b.clock.Elapsed()
	if r.since == 0 {
		r.since = max(1, now)
	}
	if !r.told && (!sqldb.IsBusy(err) || now-r.since >= tellAfter) {
		r.told = true
		r.b.logger.Warn("outbox: cannot relay; trying again until it goes on", "err", err)
	}
	r.event(Event{Kind: EventRetry, Err: err, Wait: wait})
}

// well notes that all is well, again or still.
func (r *relay) well() {
	if r.since == 0 {
		return
	}
	if r.told {
		r.b.logger.Info("outbox: relaying goes on", "after", r.b.clock.Elapsed()-r.since)
	}
	r.trouble = trouble{}
	r.b.rec.well()
}

// passingError is one that goes away, or that the log and the relay have dealt
// with: nothing is in doubt.
type passingError struct{ err error }

func (e *passingError) Error() string { return e.err.Error() }
func (e *passingError) Unwrap() error { return e.err }

// logError marks what a log says that is neither closed nor poisoned: then its
// disk is full, whatever that is called on this system.
func logError(err error) error {
	for _, final := range []error{
		evlog.ErrPoisoned, evlog.ErrClosed, evlog.ErrHookRequired, evlog.ErrBadOptions, evlog.ErrTooLarge,
		context.Canceled, context.DeadlineExceeded,
	} {
		if errors.Is(err, final) {
			return err
		}
	}
	if err != nil {
		err = &passingError{err}
	}
	return err
}

func passing(err error) bool {
	var p *passingError
	return errors.As(err, &p) || sqldb.IsFull(err)
}
