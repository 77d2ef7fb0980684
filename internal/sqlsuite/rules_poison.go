package sqlsuite

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/evlog-go/evlog/cursor"
	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/sqlrule"
	"github.com/evlog-go/evlog/sqlbridge"
)

// Rules about records that cannot be applied.
var poisonRules = []rule{
	{name: "skipped_leaves_nothing", off: sqlrule.Savepoint, shows: "10 records took effect", check: ruleSkipSavepoint},
	{name: "attempts_stop", off: sqlrule.Attempts, shows: "4 attempts", check: func(e *env) error { return ruleAttempts(e, sqlbridge.Stop) }},
	{name: "attempts_skip", off: sqlrule.Attempts, shows: "4 attempts", check: func(e *env) error { return ruleAttempts(e, sqlbridge.Skip) }},
	{name: "attempts_of_several", off: sqlrule.Attempts, shows: "3 attempts", check: ruleAttemptsOfSeveral},
	{name: "attempts_while_others_fail", off: sqlrule.Attempts, shows: "3 attempts", check: ruleAttemptsMeanwhile},
	{name: "looks_like_a_lock", off: sqlrule.Attempts, shows: "2 attempts", check: ruleLooksLocked},
}

var errPoison = errors.New("poison")

// poison fails at these offsets, after having written.
func poison(calls map[uint64]int, offsets ...uint64) sqlbridge.Handler {
	bad := map[uint64]bool{}
	for _, o := range offsets {
		bad[o] = true
	}
	return func(ctx context.Context, tx *sqlbridge.Tx, rec evlog.Record) error {
		calls[rec.Offset]++
		if err := apply(ctx, tx, rec); err != nil || !bad[rec.Offset] {
			return err
		}
		return errPoison
	}
}

// without leaves out the records at these offsets.
func without(recs []evlog.Record, offsets ...uint64) []evlog.Record {
	var kept []evlog.Record
next:
	for _, r := range recs {
		for _, o := range offsets {
			if r.Offset == o {
				continue next
			}
		}
		kept = append(kept, r)
	}
	return kept
}

func ruleSkipSavepoint(e *env) error {
	l := logOf("A", 0, 10)
	calls := map[uint64]int{}
	err := e.process(l, l.all(0), poison(calls, 0, 4, 5, 9), &sqlbridge.RunOptions{Poison: sqlbridge.Skip})
	if err := first(err, e.exactly(without(l.all(0), 0, 4, 5, 9), 10)); err != nil {
		return err
	}
	for o, n := range calls {
		if n != 1 {
			return fmt.Errorf("record %d was handled %d times", o, n)
		}
	}
	return e.skips(1, 0, 4, 5, 9)
}

// skips tests what is noted: records that failed so many attempts.
func (e *env) skips(attempts int, offsets ...uint64) error {
	notes, err := sqlbridge.Skips(e.ctx, e.db, consumer)
	if err != nil {
		return err
	}
	if len(notes) != len(offsets) {
		return fmt.Errorf("%d notes, not %d: %+v", len(notes), len(offsets), notes)
	}
	for i, s := range notes {
		want := evlog.OffsetRange{From: offsets[i], To: offsets[i] + 1}
		if s.Range != want || s.Attempts != attempts || s.Error != errPoison.Error() || s.LogID != "A" ||
			s.Name != consumer || time.Since(s.At) > time.Hour {
			return fmt.Errorf("note %+v", s)
		}
	}
	return nil
}

// A record is tried exactly as often as was asked for.
func ruleAttempts(e *env, policy sqlbridge.Poison) error {
	const attempts = 3
	l := logOf("A", 0, 10)
	calls := map[uint64]int{}
	err := e.process(l, l.all(0), poison(calls, 6), &sqlbridge.RunOptions{
		Attempts: attempts, RetryDelay: time.Microsecond, Poison: policy,
	})
	if n := calls[6]; n != attempts {
		return fmt.Errorf("%d attempts", n)
	}
	if policy == sqlbridge.Skip {
		return first(err, e.exactly(without(l.all(0), 6), 10), e.skips(attempts, 6))
	}
	var handler *cursor.HandlerError
	if !errors.As(err, &handler) || handler.Offset != 6 || !errors.Is(err, errPoison) {
		return fmt.Errorf("the error is %w", err)
	}
	return first(e.exactly(l.all(0)[:6], 6), e.skips(0))
}

// failing is a handler that fails at an offset in the calls that fails says, the
// first of which is 1. A record that is called too often panics.
func failing(calls map[uint64]int, fails func(offset uint64, call int) error) sqlbridge.Handler {
	return func(ctx context.Context, tx *sqlbridge.Tx, rec evlog.Record) error {
		if calls[rec.Offset]++; calls[rec.Offset] > 100 {
			panic(fmt.Sprintf("record %d was handled 100 times", rec.Offset))
		}
		if err := apply(ctx, tx, rec); err != nil {
			return err
		}
		return fails(rec.Offset, calls[rec.Offset])
	}
}

// One record fails every other time, and one behind it each time. The second
// one's failures have the first one done again, until it has been committed.
func ruleAttemptsOfSeveral(e *env) error {
	for _, policy := range []sqlbridge.Poison{sqlbridge.Stop, sqlbridge.Skip} {
		l := logOf("A", 0, 10)
		calls := map[uint64]int{}
		err := e.process(l, l.all(0), failing(calls, func(offset uint64, call int) error {
			if offset == 7 || offset == 3 && call%2 == 1 {
				return errPoison
			}
			return nil
		}), &sqlbridge.RunOptions{Attempts: 2, RetryDelay: time.Microsecond, Poison: policy})
		if calls[7] != 2 {
			return wrongf("%d attempts", calls[7])
		}
		want, next := l.all(0)[:7], uint64(7)
		if policy == sqlbridge.Skip {
			want, next = without(l.all(0), 7), 10
			err = first(err, e.skips(2, 7))
		} else {
			err = is(err, errPoison)
		}
		if err := first(err, e.exactly(want, next)); err != nil {
			return err
		}
		if err := e.startOver(); err != nil {
			return err
		}
	}
	return nil
}

// A record fails while those before another one are done again: neither forgets
// how often it has failed.
func ruleAttemptsMeanwhile(e *env) error {
	l := logOf("A", 0, 10)
	calls := map[uint64]int{}
	err := e.process(l, l.all(0), failing(calls, func(offset uint64, call int) error {
		if offset == 7 || offset == 3 && call == 2 {
			return errPoison
		}
		return nil
	}), &sqlbridge.RunOptions{Attempts: 2, RetryDelay: time.Microsecond})
	if calls[7] != 2 || calls[3] != 3 {
		return wrongf("%d attempts, and %d of the other one", calls[7], calls[3])
	}
	return first(is(err, errPoison), e.exactly(l.all(0)[:7], 7))
}

// The record is bad, and its error quotes what is in it.
func ruleLooksLocked(e *env) error {
	l := logOf("A", 0, 10)
	calls := map[uint64]int{}
	began := time.Now()
	err := e.process(l, l.all(0), failing(calls, func(offset uint64, _ int) error {
		if offset == 3 {
			return fmt.Errorf("unknown kind %q", "the table is locked, said the waiter")
		}
		return nil
	}), &sqlbridge.RunOptions{Poison: sqlbridge.Skip})
	if calls[3] != 1 {
		return wrongf("%d attempts", calls[3])
	}
	if d := time.Since(began); d >= impatient.BusyFor {
		return fmt.Errorf("a lock was waited for: %v", d)
	}
	return first(err, e.exactly(without(l.all(0), 3), 10))
}

// startOver forgets everything.
func (e *env) startOver() error {
	_, err1 := e.db.Exec(`DELETE FROM effect`)
	_, err2 := e.db.Exec(`DELETE FROM evlog_skipped`)
	return first(err1, err2, e.b.Remove(e.ctx, consumer))
}
