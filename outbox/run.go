package outbox

import (
	"context"
	"errors"
	"time"

	"github.com/evlog-go/evlog/evlog"
)

// Run relays the outbox into log, which was opened with Hook, until ctx ends. It
// drains what is there at once, batch after batch, and then waits for Notify or
// for another connection's commit.
//
// It goes on by itself, with growing pauses, while the database is locked or a
// disk is full: the rows stay. It ends
//   - with the context's error when ctx ends;
//   - with the log's error when the log was closed (evlog.ErrClosed), or was
//     poisoned (evlog.ErrPoisoned): a write to it has failed, or the database fails
//     while it is not known which rows are in the log. Close it, open it again with
//     Hook, and call Run again, or let RunOpening do that;
//   - with ErrFenced, ErrRelayRunning, ErrNoHook, ErrNoTables, ErrDatabaseGone or
//     ErrUnsafe;
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
			r.tell()
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
	defer b.rec.well() // nothing is tried again any more
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
		ErrNoTables, ErrUnsafe, ErrDatabaseGone, ErrRelayRunning, errDamaged,
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
