package sqlbridge

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/evlog-go/evlog/cursor"
	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/sqlrule"
)

// Process applies a batch of log's records in one transaction, together with
// the cursor of the consumer name. recs are the records from that cursor on, in
// order; no records are nothing to do. Process returns nil when all of them are
// applied.
//
// Nothing was applied after
//   - a *cursor.MovedError: another consumer has moved the cursor past the first
//     of them;
//   - ErrGap: there are records that neither the cursor nor the batch has;
//   - where Reset is Fail, a *cursor.RangeError or *cursor.LogError: the cursor
//     does not fit the log;
//   - a busy error (IsBusy), when Options.BusyFor is over.
//
// A record that failed all its attempts is a *cursor.HandlerError, if it is not
// to be skipped: those before it are applied, and it is where the cursor stands.
// A panic of the handler rolls back and goes on to the caller.
//
// When ctx ends, those that have been handled are applied, and Process returns
// its error. A handler that returns it itself, after it has used its Tx, takes
// those before it along, except with Skip, where each record can be undone. No
// statement is cancelled: while another connection writes, the connection's busy
// timeout passes before Process returns.
func (b *Bridge) Process(ctx context.Context, log cursor.Log, name string, recs []evlog.Record, handle Handler, opts *RunOptions) error {
	a, err := b.newApplier(log, name, handle, opts)
	if err != nil {
		return err
	}
	if len(recs) == 0 && !b.rules.Off(sqlrule.Empty) {
		return nil
	}
	if err := b.checkOrder(recs); err != nil {
		return wrap("process", name, err)
	}
	if done, err := a.applyAtOnce(ctx, recs); done {
		return err
	}
	if err := a.start(ctx, recs); err != nil {
		return err
	}
	return a.apply(ctx, recs)
}

// applyAtOnce applies a batch without looking first where the cursor stands: the
// transaction finds out. done is false if it does not stand there; then nothing
// was done.
func (a *applier) applyAtOnce(ctx context.Context, recs []evlog.Record) (done bool, err error) {
	first := recs[0].Offset
	if !contiguous(first, recs) {
		return false, nil
	}
	a.next = first
	err = a.apply(ctx, recs)
	var handler *cursor.HandlerError
	elsewhere := errors.Is(err, cursor.ErrMoved) || errors.Is(err, cursor.ErrWrongLog)
	return !elsewhere || errors.As(err, &handler) || a.next != first, err
}

// contiguous reports whether there is a record for each offset from next on.
func contiguous(next uint64, recs []evlog.Record) bool {
	return recs[len(recs)-1].Offset-next == uint64(len(recs)-1)
}

// checkOrder tests that offsets ascend and fit.
func (b *Bridge) checkOrder(recs []evlog.Record) error {
	for i := 1; i < len(recs); i++ {
		if recs[i].Offset <= recs[i-1].Offset {
			return fmt.Errorf("%w: the batch has %d after %d", ErrOrder, recs[i].Offset, recs[i-1].Offset)
		}
	}
	last := recs[len(recs)-1].Offset
	if last == math.MaxUint64 {
		return fmt.Errorf("offset %d: %w", last, evlog.ErrTooLarge)
	}
	_, err := b.offset(last + 1)
	return err
}

// start finds out where the cursor stands, and that the batch begins there.
func (a *applier) start(ctx context.Context, recs []evlog.Record) error {
	return a.resume(ctx, func(next uint64) error {
		if first := recs[0].Offset; first < next && !a.b.rules.Off(sqlrule.CompareAndSet) {
			return wrap("process", a.name, &cursor.MovedError{Name: a.name, Want: first, Stored: next})
		}
		if contiguous(next, recs) || a.b.rules.Off(sqlrule.Holes) {
			return nil
		}
		return wrap("process", a.name, a.compare(ctx, next, recs))
	})
}

// compare tests that the offsets missing in the batch are holes of the log.
func (a *applier) compare(ctx context.Context, next uint64, recs []evlog.Record) error {
	i := 0
	for rec, err := range a.log.Records(ctx, next) {
		switch {
		case err != nil:
			return err
		case rec.Offset != recs[i].Offset:
			return fmt.Errorf("%w: the log goes on with %d, the batch with %d", ErrGap, rec.Offset, recs[i].Offset)
		}
		if i++; i == len(recs) {
			return nil
		}
	}
	return fmt.Errorf("%w: the log has no record %d", ErrGap, recs[i].Offset)
}

func (a *applier) position(ctx context.Context) (p Position, err error) {
	err = a.b.read(ctx, func() error {
		p, _, err = position(ctx, a.b.db, a.name)
		return err
	})
	return p, wrap("cursor", a.name, err)
}

// resume finds out where the consumer goes on, in the log and in the database,
// and has it stored, so that its name is known from here on. If check has
// something against going on there, a new consumer is not stored.
func (a *applier) resume(ctx context.Context, check func(next uint64) error) error {
	p, err := a.position(ctx)
	isNew := err == nil && p.LogID == ""
	if isNew {
		p.LogID = a.logID
		p.Next, err = a.firstPlace(ctx)
	}
	if err != nil {
		return err
	}
	if p.Claimed != 0 {
		return wrap("resume", a.name, p.committed())
	}
	s, err := a.resolve(ctx, p)
	if err != nil {
		return wrap("resume", a.name, err)
	}
	if s.Reset != nil {
		if err := a.reset(ctx, p, s); err != nil {
			return err
		}
	}
	if check != nil {
		if err := check(s.Next); err != nil {
			return err
		}
	}
	if isNew {
		if err := a.register(ctx, s.Next); err != nil {
			return err
		}
	}
	a.committed(s.Next)
	return nil
}

// firstPlace is where a consumer starts that never committed.
func (a *applier) firstPlace(ctx context.Context) (uint64, error) {
	first, next, err := a.log.Bounds(ctx)
	if a.o.New == cursor.Latest {
		first = next
	}
	return first, wrap("resume", a.name, err)
}

// register stores where a new consumer starts.
func (a *applier) register(ctx context.Context, at uint64) error {
	m, err := a.b.move(a.name, a.logID, 0, at)
	if err != nil {
		return err
	}
	err = a.b.inTx(ctx, func(u *unit) error {
		if _, err := u.exec(insertCursor, m.name, m.logID, m.to, m.nowMS); err != nil {
			return err
		}
		p, _, err := position(u.ctx, u.tx, a.name)
		if err == nil && (p.Next != at || p.LogID != a.logID || p.Claimed != 0) {
			m.from = m.to // another one was first, and has gone on or begun elsewhere
			err = refusal(u.ctx, u.tx, m)
		}
		return err
	})
	return wrap("register", a.name, err)
}

// reset stores that the consumer goes on elsewhere. It is told first: a crash in
// between has it told twice, and never not at all.
func (a *applier) reset(ctx context.Context, p Position, s cursor.Start) error {
	m, err := a.b.move(a.name, a.logID, 0, s.Next)
	if err != nil {
		return err
	}
	a.b.logger.Warn("cursor reset", "consumer", a.name, "going_on_at", s.Next,
		"lost_from", s.Lost.From, "lost_to", s.Lost.To, "err", s.Reset)
	if a.o.OnReset != nil {
		a.o.OnReset(s)
	}
	err = a.b.inTx(ctx, func(u *unit) error { return a.b.reset(u, p, m, s.Reset.Error(), s.Lost) })
	return wrap("reset", a.name, err)
}
