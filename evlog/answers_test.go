package evlog_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
)

// sameAnswers asks for records in every way there is, and about every offset, key
// and time: see answers.
func sameAnswers(t *testing.T, p place, r *evlog.Reader, wrote []evtest.Rec, what string) {
	t.Helper()
	of := map[uint64]evtest.Rec{}
	for _, rec := range wrote {
		of[rec.Offset] = rec
	}
	require.NoError(t, answers(p, r, of, nil), what)
}

// answers compares the answers to all kinds of questions with what reading from the
// start yields: all of that comes, and beside it at most records that have a newer
// one of their key, in a segment whose records were merged into the one below.
// wrote is what was ever appended, by offset. With a source of random numbers only
// one offset, key and time are asked about. Where the housekeeper takes back what it
// has put at the old end for a moment, all of it is asked again.
func answers(p place, r *evlog.Reader, wrote map[uint64]evtest.Rec, few *rand.Rand) error {
	for first := uint64(0); ; {
		err := answersOnce(p, r, wrote, few)
		var behind *evlog.OffsetError
		if !errors.As(err, &behind) || behind.First <= max(first, behind.Asked) {
			return err
		}
		first = behind.First
	}
}

func answersOnce(p place, r *evlog.Reader, wrote map[uint64]evtest.Rec, few *rand.Rand) error {
	all, err := readAll(p.ctx, r)
	if err != nil || len(all) == 0 {
		return err
	}
	q := questioner{p: p, r: r, wrote: wrote, all: all, newest: map[string]evtest.Rec{}}
	for _, rec := range all {
		if !wrote[rec.Offset].Same(rec) {
			return fmt.Errorf("nobody wrote %v", rec)
		}
		q.newest[string(rec.Key)] = rec
	}
	first, next, err := r.Bounds(p.ctx)
	if err != nil {
		return err
	}
	offsets := []uint64{first, next}
	for _, rec := range all {
		offsets = append(offsets, rec.Offset, rec.Offset+1)
	}
	for off := range wrote { // where something is missing
		if off >= first && off < next {
			offsets = append(offsets, off)
		}
	}
	slices.Sort(offsets)
	offsets = slices.Compact(offsets)
	recs := all
	if few != nil {
		offsets = []uint64{offsets[few.IntN(len(offsets))]}
		recs = []evtest.Rec{all[few.IntN(len(all))]}
	}
	for _, off := range offsets {
		if err := q.at(off); err != nil {
			return fmt.Errorf("offset %d: %w", off, err)
		}
	}
	for _, rec := range recs {
		if err := errors.Join(q.key(rec.Key, first), q.time(rec.TimeMS), q.time(rec.TimeMS+1)); err != nil {
			return err
		}
	}
	return nil
}

type questioner struct {
	p      place
	r      *evlog.Reader
	wrote  map[uint64]evtest.Rec
	all    []evtest.Rec
	newest map[string]evtest.Rec
}

// check tests that what is due comes, in order, and nothing that must not.
func (q *questioner) check(due, got []evtest.Rec) error {
	there := map[uint64]bool{}
	for i, rec := range got {
		switch {
		case i > 0 && rec.Offset <= got[i-1].Offset:
			return fmt.Errorf("%v after %v", rec, got[i-1])
		case !q.wrote[rec.Offset].Same(rec):
			return fmt.Errorf("nobody wrote %v", rec)
		case rec.Offset > q.newest[string(rec.Key)].Offset:
			return fmt.Errorf("%v is not there for who reads from the start", rec)
		}
		there[rec.Offset] = true
	}
	for _, rec := range due {
		if !there[rec.Offset] {
			return fmt.Errorf("%v does not come (%d records)", rec, len(got))
		}
	}
	return nil
}

// at asks about an offset.
func (q *questioner) at(off uint64) error {
	ctx := q.p.ctx
	due := from(q.all, off)
	got, err := collect(q.r.Records(ctx, off))
	if err == nil {
		err = q.check(due, got)
	}
	if err != nil {
		return fmt.Errorf("from there: %w", err)
	}
	if got, err = collect(q.r.Backward(ctx, off)); err == nil {
		err = q.check(q.all[:len(q.all)-len(due)], reversed(got))
	}
	if err != nil {
		return fmt.Errorf("backward: %w", err)
	}
	one, err := q.r.Get(ctx, off)
	switch {
	case len(due) == 0 && errors.Is(err, evlog.ErrNotFound):
		return nil
	case err != nil:
		return fmt.Errorf("get: %w", err)
	case one.Offset < off, len(due) > 0 && one.Offset > due[0].Offset:
		return fmt.Errorf("get: %d", one.Offset)
	}
	return q.check(nil, []evtest.Rec{evtest.RecOf(one)})
}

// key asks about a key.
func (q *questioner) key(key []byte, first uint64) error {
	if len(key) == 0 {
		return nil
	}
	newest := q.newest[string(key)]
	got, err := q.r.Latest(q.p.ctx, key)
	if err == nil && !newest.Same(evtest.RecOf(got)) {
		err = fmt.Errorf("%d, not %v", got.Offset, newest)
	}
	if err != nil {
		return fmt.Errorf("latest of %q: %w", key, err)
	}
	history, err := collect(q.r.ByKey(q.p.ctx, key, first))
	if err == nil {
		err = q.check([]evtest.Rec{newest}, history)
	}
	if err != nil {
		return fmt.Errorf("history of %q: %w", key, err)
	}
	return nil
}

// time asks for the first record of a time.
func (q *questioner) time(ms int64) error {
	want, some := evtest.At(q.all, ms)
	at, err := q.r.OffsetAt(q.p.ctx, evtest.Time(ms))
	switch {
	case errors.Is(err, evlog.ErrNotFound) && !some:
		return nil
	case err != nil:
		return fmt.Errorf("at %d ms: %w", ms, err)
	case at > want:
		return fmt.Errorf("at %d ms: %d, not %d", ms, at, want)
	case q.wrote[at].TimeMS < ms:
		return fmt.Errorf("at %d ms: %v", ms, q.wrote[at])
	}
	return nil
}
