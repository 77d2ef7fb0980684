package cursortest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"

	"github.com/evlog-go/evlog/cursor"
	"github.com/evlog-go/evlog/evlog"
)

func ruleID(ctx context.Context, f LogFixture) error {
	id := f.Log.ID()
	if _, err := fill(ctx, f, 4); err != nil {
		return err
	}
	if got := f.Log.ID(); got != id {
		return fmt.Errorf("the id was %q and is %q", id, got)
	}
	return nil
}

func ruleEmpty(ctx context.Context, f LogFixture) error {
	first, next, err := f.Log.Bounds(ctx)
	if err != nil {
		return err
	}
	if first != next {
		return fmt.Errorf("bounds are %d and %d, want the same", first, next)
	}
	return expect(f.Log.Records(ctx, next), nil)
}

func ruleContent(ctx context.Context, f LogFixture) error {
	recs, err := fill(ctx, f, 20)
	if err != nil {
		return err
	}
	first, next, err := f.Log.Bounds(ctx)
	if err != nil {
		return err
	}
	if last := recs[len(recs)-1].Offset; first > recs[0].Offset || next != last+1 {
		return fmt.Errorf("bounds are %d and %d, the records %d to %d", first, next, recs[0].Offset, last)
	}
	return expect(f.Log.Records(ctx, first), recs)
}

func ruleFrom(ctx context.Context, f LogFixture) error {
	recs, err := fill(ctx, f, 10)
	if err != nil {
		return err
	}
	for i, rec := range recs {
		if err := expect(f.Log.Records(ctx, rec.Offset), recs[i:]); err != nil {
			return fmt.Errorf("from %d: %w", rec.Offset, err)
		}
	}
	end := recs[len(recs)-1].Offset + 1
	if err := expect(f.Log.Records(ctx, end), nil); err != nil {
		return fmt.Errorf("from the end, %d: %w", end, err)
	}
	return nil
}

// outOfRange expects that neither way of reading accepts an offset.
func outOfRange(ctx context.Context, l cursor.Log, offset uint64) error {
	for _, read := range []func(context.Context, uint64) iter.Seq2[evlog.Record, error]{l.Records, l.Follow} {
		recs, err := collect(read(ctx, offset), 1)
		if len(recs) > 0 || !errors.Is(err, evlog.ErrOffsetOutOfRange) {
			return fmt.Errorf("reading from %d gave %v and %v, want ErrOffsetOutOfRange", offset, recs, err) //nolint:errorlint // a message
		}
	}
	return nil
}

func ruleOutside(ctx context.Context, f LogFixture) error {
	_, next, err := f.Log.Bounds(ctx)
	if err != nil {
		return err
	}
	if err := outOfRange(ctx, f.Log, next+1); err != nil {
		return fmt.Errorf("empty log: %w", err)
	}
	recs, err := fill(ctx, f, 4)
	if err != nil {
		return err
	}
	end := recs[len(recs)-1].Offset + 1
	return errors.Join(outOfRange(ctx, f.Log, end+1), outOfRange(ctx, f.Log, end+1_000_000))
}

func rulePinned(ctx context.Context, f LogFixture) error {
	recs, err := fill(ctx, f, 6)
	if err != nil {
		return err
	}
	n := 0
	for rec, err := range f.Log.Records(ctx, recs[0].Offset) {
		if err != nil {
			return err
		}
		if n++; n > len(recs) {
			return fmt.Errorf("%v was appended after the reading had begun", rec)
		}
		if _, err := f.Append(ctx, evlog.Record{Value: []byte("later")}); err != nil {
			return err
		}
	}
	return nil
}

func ruleBreak(ctx context.Context, f LogFixture) error {
	recs, err := fill(ctx, f, 6)
	if err != nil {
		return err
	}
	from := recs[0].Offset
	for _, seq := range []iter.Seq2[evlog.Record, error]{f.Log.Records(ctx, from), f.Log.Follow(ctx, from)} {
		got, err := collect(seq, 2)
		if err != nil {
			return err
		}
		if err := same(got, recs[:2]); err != nil {
			return err
		}
	}
	return expect(f.Log.Records(ctx, from), recs)
}

func ruleCancel(ctx context.Context, f LogFixture) error {
	recs, err := fill(ctx, f, 3)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := collect(f.Log.Records(ctx, recs[0].Offset), noLimit); !errors.Is(err, context.Canceled) {
		return fmt.Errorf("reading with a context that has ended gave %v", err) //nolint:errorlint // a message
	}
	return nil
}

// followed is what somebody who follows got, and how it ended.
type followed struct {
	recs chan evlog.Record
	err  chan error
}

func follow(ctx context.Context, l cursor.Log, from uint64) followed {
	f := followed{recs: make(chan evlog.Record, 100), err: make(chan error, 1)}
	go func() {
		for rec, err := range l.Follow(ctx, from) {
			if err != nil {
				f.err <- err
				return
			}
			f.recs <- rec.Clone()
		}
		f.err <- nil
	}()
	return f
}

// next expects these records.
func (f followed) next(ctx context.Context, want []evlog.Record) error {
	for _, w := range want {
		select {
		case got := <-f.recs:
			if !got.Equal(w) {
				return fmt.Errorf("following gave %v, want %v", got, w)
			}
		case err := <-f.err:
			return errors.Join(fmt.Errorf("following ended, want %v", w), err)
		case <-ctx.Done():
			return fmt.Errorf("following never gave %v", w)
		}
	}
	return nil
}

func ruleFollow(ctx context.Context, f LogFixture) error {
	recs, err := fill(ctx, f, 3)
	if err != nil {
		return err
	}
	followCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	got := follow(followCtx, f.Log, recs[0].Offset)
	if err := got.next(ctx, recs); err != nil {
		return err
	}
	for range 3 { // now it waits
		more, err := fill(ctx, f, 4)
		if err != nil {
			return err
		}
		if err := got.next(ctx, more); err != nil {
			return err
		}
	}
	cancel()
	select {
	case <-got.err:
	case <-ctx.Done():
		return errors.New("following goes on after its context has ended")
	}
	return nil
}

func ruleFollowCancel(ctx context.Context, f LogFixture) error {
	recs, err := fill(ctx, f, 1)
	if err != nil {
		return err
	}
	followCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	got := follow(followCtx, f.Log, recs[0].Offset)
	if err := got.next(ctx, recs); err != nil {
		return err
	}
	cancel()
	select {
	case err := <-got.err:
		if !errors.Is(err, context.Canceled) {
			return fmt.Errorf("following ended with %v, want the context's error", err) //nolint:errorlint // a message
		}
		return nil
	case <-ctx.Done():
		return errors.New("following goes on after its context has ended")
	}
}

func ruleConcurrent(ctx context.Context, f LogFixture) error {
	recs, err := fill(ctx, f, 30)
	if err != nil {
		return err
	}
	errs := make([]error, 8)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			for range 5 {
				if _, _, err := f.Log.Bounds(ctx); err != nil {
					errs[i] = err
					return
				}
				if err := expect(f.Log.Records(ctx, recs[i].Offset), recs[i:]); err != nil {
					errs[i] = err
					return
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func ruleHoles(ctx context.Context, f LogFixture) error {
	before, err := fill(ctx, f, 2)
	if err != nil {
		return err
	}
	end := before[1].Offset + 1
	after := testRecords(2)
	after[0].Offset, after[1].Offset = end+5, end+6
	if err := f.AppendAt(ctx, after...); err != nil {
		return err
	}
	for from := end; from <= after[0].Offset; from++ {
		if err := expect(f.Log.Records(ctx, from), after); err != nil {
			return fmt.Errorf("from %d in the hole: %w", from, err)
		}
	}
	return expect(f.Log.Records(ctx, before[0].Offset), append(before, after...))
}

func ruleDurable(ctx context.Context, f LogFixture) error {
	recs, err := fill(ctx, f, 2)
	if err != nil {
		return err
	}
	if _, err := f.Enqueue(ctx, testRecords(3)...); err != nil {
		return err
	}
	_, next, err := f.Log.Bounds(ctx)
	if err != nil {
		return err
	}
	if end := recs[1].Offset + 1; next != end {
		return fmt.Errorf("the log ends at %d, only what is below %d is durable", next, end)
	}
	return expect(f.Log.Records(ctx, recs[0].Offset), recs)
}

func ruleRemoved(ctx context.Context, f LogFixture) error {
	recs, err := fill(ctx, f, 9)
	if err != nil {
		return err
	}
	_, end, err := f.Log.Bounds(ctx)
	if err != nil {
		return err
	}
	if err := f.RemoveBelow(ctx, recs[6].Offset); err != nil {
		return err
	}
	first, next, err := f.Log.Bounds(ctx)
	if err != nil {
		return err
	}
	if first != recs[6].Offset || next != end {
		return fmt.Errorf("bounds are %d and %d, want %d and %d", first, next, recs[6].Offset, end)
	}
	if err := expect(f.Log.Records(ctx, first), recs[6:]); err != nil {
		return err
	}
	return errors.Join(outOfRange(ctx, f.Log, recs[0].Offset), outOfRange(ctx, f.Log, first-1))
}

func ruleReopened(ctx context.Context, f LogFixture) error {
	recs, err := fill(ctx, f, 4)
	if err != nil {
		return err
	}
	again, err := f.Reopen(ctx)
	if err != nil {
		return err
	}
	if again.ID() != f.Log.ID() {
		return fmt.Errorf("the id is %q, opened again %q", f.Log.ID(), again.ID())
	}
	return expect(again.Records(ctx, recs[0].Offset), recs)
}
