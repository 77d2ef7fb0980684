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
	{name: "skipped_leaves_nothing", off: sqlrule.Savepoint, check: ruleSkipSavepoint},
	{name: "attempts_stop", off: sqlrule.Attempts, check: func(e *env) error { return ruleAttempts(e, sqlbridge.Stop) }},
	{name: "attempts_skip", off: sqlrule.Attempts, check: func(e *env) error { return ruleAttempts(e, sqlbridge.Skip) }},
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
