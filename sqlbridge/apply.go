package sqlbridge

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/evlog-go/evlog/cursor"
	"github.com/evlog-go/evlog/evlog"
)

// applier applies records for one call of Process or Run. It belongs to one
// goroutine.
type applier struct {
	b      *Bridge
	o      RunOptions
	log    cursor.Log
	logID  string
	name   string
	handle Handler
	next   uint64        // the cursor as this consumer left it
	limit  time.Duration // of a transaction; 0 or less is none
	texts  texts
	last   uint64 // the record that was handled last

	// saveBatch is the guard's, saveRecord that of each record with Skip.
	saveBatch, saveRecord savepoint

	// failed are the records that failed, by offset, until the cursor has passed
	// them. There are several where one fails while those before another are
	// applied again.
	failed map[uint64]failure // nil: none has
}

// failure is a record that could not be applied.
type failure struct {
	offset uint64
	times  int
	err    error
	stop   bool // it is not the record's fault, which is not to be skipped
	final  bool // it must not be tried again

	elsewhere bool // it looks like a lock, but no statement of the Tx has met one
}

func (b *Bridge) newApplier(log cursor.Log, name string, handle Handler, opts *RunOptions) (*applier, error) {
	if err := cursor.CheckName(name); err != nil {
		return nil, err
	}
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	b.spoil(&o)
	if handle == nil {
		return nil, fmt.Errorf("sqlbridge: consumer %q: no handler: %w", name, evlog.ErrBadOptions)
	}
	id := log.ID()
	if id == "" {
		return nil, fmt.Errorf("sqlbridge: consumer %q: %w", name, cursor.ErrNoLogID)
	}
	return &applier{
		b: b, o: o, log: log, logID: id, name: name, handle: handle, texts: texts{},
		saveBatch: newSavepoint("guard"), saveRecord: newSavepoint("record"),
	}, nil
}

// apply applies records, the first of which is the next one after the cursor, in
// one transaction, or in more where a record fails or the time is up. When ctx
// ends, what has been handled is committed.
func (a *applier) apply(ctx context.Context, recs []evlog.Record) error {
	for len(recs) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		limit := len(recs)
		switch at, f := a.firstFailed(recs); {
		case at > 0:
			// What stands before it is committed first, and without it: the whole
			// transaction had to be given up.
			limit = at
		case at == 0 && a.exhausted(f):
			if err := a.giveUp(ctx, f); err != nil {
				return err
			}
			recs = recs[1:]
			continue
		case at == 0:
			if err := a.pause(ctx, f); err != nil {
				return err
			}
			limit = 1 // alone: what fails after it must not have it tried again
		}
		n, err := a.try(ctx, recs[:limit])
		if err != nil {
			return err
		}
		recs = recs[n:]
	}
	return nil
}

// try applies records in one transaction, as often as locks make it necessary,
// and returns how many were committed. If a record failed, it is in a.failed. To
// meet a lock for longer than it is waited for is to fail: it may be the record's
// own doing.
func (a *applier) try(ctx context.Context, recs []evlog.Record) (n int, err error) {
	before := maps.Clone(a.failed)
	err = a.b.retry(ctx, func(p *patience) error {
		a.failed = maps.Clone(before) // what failed in a transaction that is done again did not happen
		n, err = a.transaction(ctx, p, recs)
		return err
	})
	var met *lockError
	if errors.As(err, &met) && !errors.Is(err, ErrCommitted) && ctx.Err() == nil {
		a.fail(failure{offset: met.Offset, err: met.Err})
		err = nil
	}
	return n, err
}

// firstFailed is the first record in recs that has failed, and its place there;
// -1 if none has.
func (a *applier) firstFailed(recs []evlog.Record) (at int, f failure) {
	if len(a.failed) == 0 {
		return -1, f
	}
	at = slices.IndexFunc(recs, func(r evlog.Record) bool { return a.failed[r.Offset].times > 0 })
	if at >= 0 {
		f = a.failed[recs[at].Offset]
	}
	return at, f
}

// fail counts another failed attempt.
func (a *applier) fail(f failure) failure {
	f.times = a.failed[f.offset].times + 1
	if a.failed == nil {
		a.failed = map[uint64]failure{}
	}
	a.failed[f.offset] = f
	return f
}

func (a *applier) exhausted(f failure) bool { return f.final || f.times >= a.o.Attempts }

// pause waits before another attempt.
func (a *applier) pause(ctx context.Context, f failure) error {
	d := a.o.RetryDelay
	for i := 1; i < f.times && d < maxRetryDelay; i++ {
		d *= 2
	}
	return a.b.sleep(ctx, min(d, maxRetryDelay))
}

// giveUp passes over the failed record, which is the next one, or ends the
// consumer.
func (a *applier) giveUp(ctx context.Context, f failure) error {
	if a.o.Poison != Skip || f.stop {
		// Over the hole before it, so that the cursor is where the error says.
		if err := a.advanceTo(ctx, f.offset, nil); err != nil {
			return err
		}
		return a.handlerError(f)
	}
	s := a.skipOf(f)
	if err := a.advanceTo(ctx, f.offset+1, &s); err != nil {
		return err
	}
	a.logSkip(s)
	return nil
}

// advanceTo moves the cursor without applying anything, and notes what it
// skips.
func (a *applier) advanceTo(ctx context.Context, to uint64, s *Skipped) error {
	if to == a.next {
		return nil
	}
	m, err := a.b.move(a.name, a.logID, a.next, to)
	if err != nil {
		return err
	}
	err = a.b.inTx(ctx, func(u *unit) error {
		err := a.b.advance(u.ctx, u.tx, m)
		if err == nil && s != nil {
			err = a.b.insertSkip(u, *s)
		}
		return err
	})
	if err == nil {
		a.committed(to)
	}
	return wrap("advance", a.name, err)
}

// committed notes that the cursor stands at next.
func (a *applier) committed(next uint64) {
	a.next = next
	maps.DeleteFunc(a.failed, func(offset uint64, _ failure) bool { return offset < next })
}

func (a *applier) handlerError(f failure) error {
	if f.elsewhere {
		f.err = fmt.Errorf("%w (not met by the handler's Tx, which holds the write lock)", f.err)
	}
	if f.times > 1 {
		f.err = fmt.Errorf("%d attempts: %w", f.times, f.err)
	}
	return &cursor.HandlerError{Name: a.name, Offset: f.offset, Err: f.err}
}
