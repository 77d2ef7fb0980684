package outbox

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/outboxrule"
	"github.com/evlog-go/evlog/internal/sqldb"
)

// batch is what is appended at once.
type batch struct {
	rows    []rowRef
	records []evlog.Record
}

// read returns the next rows: the lowest ids that are queued, whichever they are.
// An id below one that was relayed before is no reason to leave a row out, since
// ids can be given out again. Only the batch whose rows are about to be deleted
// is passed over.
func (r *relay) read(ctx context.Context) (rows []Row, err error) {
	most := r.most()
	size := int64(0)
	full := func(row Row) bool {
		rows = append(rows, row)
		size += int64(len(row.Record.Key) + len(row.Record.Value))
		return len(rows) >= most || size >= r.b.opts.BatchBytes
	}
	const query = `SELECT ` + rowColumns + ` FROM main.evlog_outbox
		WHERE parked IS NULL AND id NOT BETWEEN ?2 AND ?3 ORDER BY id LIMIT ?1`
	first, last := int64(1), int64(0) // nothing
	if n := len(r.done.rows); n > 0 {
		first, last = r.done.rows[0].id, r.done.rows[n-1].id
	}
	err = r.use(ctx, func(s *session) error {
		// Before the rows: what is committed in between must not be missed. It takes
		// a moment, which Notify is there to save; then the next poll reads again.
		if r.known = false; !r.woken {
			if err := r.look(ctx, s); err != nil {
				return err
			}
		}
		r.woken = false
		return queryRows(context.WithoutCancel(ctx), s, full, query, most, first, last)
	})
	return rows, err
}

// unfit is a row that cannot be appended.
type unfit struct {
	row Row
	err error
}

// encode makes the records, up to BatchBytes of them, and tells those that the
// log would refuse. What Encode makes of a row can be larger than the row.
func (r *relay) encode(rows []Row) (b batch, bad []unfit) {
	size := int64(0)
	for _, row := range rows {
		rec, err := r.encodeRow(row)
		if err == nil {
			if rec.Time.IsZero() {
				rec.Time = row.Record.Time // each append of the row is to be the same
			}
			err = r.log.Check(rec)
		}
		if err != nil && !r.b.rules.Off(outboxrule.Park) {
			bad = append(bad, unfit{row, err})
			continue
		}
		if size += rec.Size(); size > r.b.opts.BatchBytes && len(b.rows) > 0 {
			break
		}
		b.rows = append(b.rows, rowRef{id: row.ID, uid: row.UID, sum: sumOf(rec)})
		b.records = append(b.records, rec)
	}
	return b, bad
}

// encodeRow calls Encode. A panic in it is that row's error: it would come again
// with every start, and nothing behind the row would get into the log.
func (r *relay) encodeRow(row Row) (rec evlog.Record, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic in Encode: %v", p)
			r.b.logger.Error("outbox: panic in Encode", "id", row.ID, "panic", p, "stack", string(debug.Stack()))
		}
	}()
	if rec, err = r.b.opts.Encode(row); err != nil && err.Error() == "" {
		err = fmt.Errorf("an error without a text from Encode: %T", err)
	}
	return rec, err
}

// park sets rows aside, with the reason.
func (r *relay) park(ctx context.Context, bad []unfit) error {
	err := r.transact(ctx, func(t *tx) error {
		s, err := t.state()
		if err == nil && s.epoch != r.epoch {
			err = ErrFenced
		}
		if err != nil {
			return err
		}
		for _, u := range bad {
			if _, err := t.exec(`UPDATE main.evlog_outbox SET parked = ?3, attempts = attempts + 1 WHERE id = ?1 AND uid = ?2`,
				u.row.ID, u.row.UID[:], u.err.Error()); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, u := range bad {
		u.row.Parked, u.row.Attempts = u.err.Error(), u.row.Attempts+1
		r.b.logger.Warn("outbox: row parked", "id", u.row.ID, "uid", u.row.UID, "err", u.err)
		r.b.rec.event(Event{Kind: EventParked, Row: u.row, Err: u.err})
	}
	return nil
}

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
// intent was resolved as the hook does. ctx is not asked meanwhile.
func (r *relay) send(ctx context.Context, s *session, b batch) error {
	var first uint64
	err := r.gated(ctx, func(g *evlog.Gate) error {
		first = g.Next()
		return r.sendThrough(ctx, g, s, b)
	})
	if err == nil {
		r.b.rec.event(Event{Kind: EventRelayed, Rows: len(b.rows), Offset: first})
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
			return r.b.store(t, r.epoch, next)
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

// giveUpAfter is how long a relay that was told to stop, or finds the database
// locked, goes on trying to resolve an intent.
const giveUpAfter = 5 * time.Second

// settle resolves the intent that the database has, under the gate: what is in
// doubt must be settled before anybody else appends. It tries until it succeeds,
// since a full disk gets room again. If the database stays locked, or ctx has
// ended, it poisons the log, so that the next opening, with the hook, does it: who
// has the lock may be waiting for the gate.
func (r *relay) settle(ctx context.Context, s *session, g *evlog.Gate) error {
	r.done = intent{}
	wait := busyFirstWait
	var since time.Duration // when what has a bound began; 0: it has not
	for {
		var did resolution
		end, err := g.End(context.WithoutCancel(ctx))
		if err != nil {
			return err
		}
		err = r.b.transact(context.WithoutCancel(ctx), &s.connection, func(t *tx) error {
			st, err := t.state()
			if err != nil {
				return err
			}
			if did, err = r.b.resolve(t, st, func(i int) bool { return st.in(i, end, nil) }); err != nil {
				return err
			}
			return r.b.store(t, r.epoch, state{epoch: r.epoch, logID: r.log.ID(), logEnd: int64(end)})
		})
		switch {
		case err == nil:
			r.b.rec.event(did.event())
			return nil
		case errors.Is(err, ErrFenced):
			return err // whoever took over has decided what becomes of the rows
		}
		r.failing(err, wait)
		if broken(err) {
			r.b.renew(context.WithoutCancel(ctx), s)
		}
		now := r.b.clock.Elapsed()
		switch {
		case ctx.Err() == nil && !sqldb.IsBusy(err):
			since = 0
		case since == 0:
			since = max(1, now)
		case now-since > giveUpAfter:
			return g.Abandon(fmt.Errorf("an append has failed, and the database does not take what became of it: %w", err))
		}
		_ = r.b.sleep(context.WithoutCancel(ctx), jitter(wait))
		wait = min(2*wait, time.Second)
	}
}
