package cursortest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/evlog-go/evlog/cursor"
)

// standsAt expects a position.
func standsAt(ctx context.Context, s cursor.Store, name string, want uint64) error {
	p, err := s.Load(ctx, name)
	if err != nil {
		return fmt.Errorf("load %q: %w", name, err)
	}
	if p.Name != name || p.Next != want || p.Updated.IsZero() {
		return fmt.Errorf("%q stands at %+v, want %d", name, p, want)
	}
	return nil
}

// isUnknown expects that there is no such consumer.
func isUnknown(ctx context.Context, s cursor.Store, name string) error {
	if p, err := s.Load(ctx, name); !errors.Is(err, cursor.ErrUnknownConsumer) {
		return fmt.Errorf("load %q gave %+v and %v, want ErrUnknownConsumer", name, p, err) //nolint:errorlint // a message
	}
	return nil
}

func ruleUnknown(ctx context.Context, f StoreFixture) error {
	if err := isUnknown(ctx, f.Store, "nobody"); err != nil {
		return err
	}
	if err := f.Store.Remove(ctx, "nobody"); !errors.Is(err, cursor.ErrUnknownConsumer) {
		return fmt.Errorf("remove gave %v, want ErrUnknownConsumer", err) //nolint:errorlint // a message
	}
	all, err := f.Store.List(ctx)
	if err == nil && len(all) > 0 {
		err = fmt.Errorf("a new store lists %v", all)
	}
	return err
}

func ruleCommitted(ctx context.Context, f StoreFixture) error {
	var from uint64
	for _, to := range []uint64{5, 6, 1000} {
		if err := f.Store.Commit(ctx, "a", from, to); err != nil {
			return err
		}
		if err := standsAt(ctx, f.Store, "a", to); err != nil {
			return err
		}
		from = to
	}
	return isUnknown(ctx, f.Store, "b")
}

func ruleRegistered(ctx context.Context, f StoreFixture) error {
	for range 2 {
		if err := f.Store.Commit(ctx, "a", 0, 0); err != nil {
			return err
		}
		if err := standsAt(ctx, f.Store, "a", 0); err != nil {
			return err
		}
	}
	return nil
}

// refused expects that a commit meets a position that is another one.
func refused(ctx context.Context, s cursor.Store, from, to, stored uint64) error {
	var moved *cursor.MovedError
	err := s.Commit(ctx, "a", from, to)
	if !errors.Is(err, cursor.ErrMoved) || !errors.As(err, &moved) {
		return fmt.Errorf("commit from %d gave %v, want a MovedError", from, err) //nolint:errorlint // a message
	}
	if moved.Name != "a" || moved.Want != from || moved.Stored != stored {
		return fmt.Errorf("commit from %d, stored %d: the error says %+v", from, stored, moved)
	}
	return nil
}

func ruleMoved(ctx context.Context, f StoreFixture) error {
	if err := refused(ctx, f.Store, 3, 4, 0); err != nil {
		return fmt.Errorf("unknown consumer: %w", err)
	}
	if err := isUnknown(ctx, f.Store, "a"); err != nil {
		return fmt.Errorf("after a refused commit: %w", err)
	}
	if err := f.Store.Commit(ctx, "a", 0, 10); err != nil {
		return err
	}
	for _, from := range []uint64{0, 9, 11} {
		if err := refused(ctx, f.Store, from, from+5, 10); err != nil {
			return err
		}
	}
	return standsAt(ctx, f.Store, "a", 10)
}

func ruleForwards(ctx context.Context, f StoreFixture) error {
	if err := f.Store.Commit(ctx, "a", 0, 10); err != nil {
		return err
	}
	if err := f.Store.Commit(ctx, "a", 10, 9); !errors.Is(err, cursor.ErrOrder) {
		return fmt.Errorf("a commit from 10 to 9 gave %v, want ErrOrder", err) //nolint:errorlint // a message
	}
	return standsAt(ctx, f.Store, "a", 10)
}

func ruleList(ctx context.Context, f StoreFixture) error {
	for i, name := range []string{"m", "z", "a", "b c"} {
		if err := f.Store.Commit(ctx, name, 0, uint64(i)); err != nil {
			return err
		}
	}
	all, err := f.Store.List(ctx)
	if err != nil {
		return err
	}
	var got []string
	for _, p := range all {
		got = append(got, fmt.Sprint(p.Name, ":", p.Next))
	}
	if want := []string{"a:2", "b c:3", "m:0", "z:1"}; !slices.Equal(got, want) {
		return fmt.Errorf("listed are %v, want %v", got, want)
	}
	return nil
}

func ruleRemove(ctx context.Context, f StoreFixture) error {
	for _, name := range []string{"a", "b"} {
		if err := f.Store.Commit(ctx, name, 0, 7); err != nil {
			return err
		}
	}
	if err := f.Store.Remove(ctx, "a"); err != nil {
		return err
	}
	if err := isUnknown(ctx, f.Store, "a"); err != nil {
		return err
	}
	if err := refused(ctx, f.Store, 7, 8, 0); err != nil {
		return fmt.Errorf("a consumer that was removed while it ran: %w", err)
	}
	if err := f.Store.Commit(ctx, "a", 0, 2); err != nil {
		return err
	}
	return errors.Join(standsAt(ctx, f.Store, "a", 2), standsAt(ctx, f.Store, "b", 7))
}

func ruleNames(ctx context.Context, f StoreFixture) error {
	names := []string{
		"a", "A", " a", "a ", "a.b/c\\d", `"quoted"`, "it's", "ümläut", "u\u0308", "日本", "\U0001F600",
		"next_offset", "<&>", "%s", "--", "; drop table", strings.Repeat("n", cursor.MaxNameBytes),
	}
	for i, name := range names {
		if err := f.Store.Commit(ctx, name, 0, uint64(i)); err != nil {
			return fmt.Errorf("commit %q: %w", name, err)
		}
	}
	for i, name := range names {
		if err := standsAt(ctx, f.Store, name, uint64(i)); err != nil {
			return err
		}
	}
	return nil
}

func ruleBadNames(ctx context.Context, f StoreFixture) error {
	for _, name := range []string{"", "a\nb", "a\x00", "\x7f", "a\xffb", strings.Repeat("n", cursor.MaxNameBytes+1)} {
		if err := f.Store.Commit(ctx, name, 0, 1); !errors.Is(err, cursor.ErrBadName) {
			return fmt.Errorf("a consumer called %q gave %v, want ErrBadName", name, err) //nolint:errorlint // a message
		}
	}
	all, err := f.Store.List(ctx)
	if err == nil && len(all) > 0 {
		err = fmt.Errorf("refused names are listed: %v", all)
	}
	return err
}

func ruleHigh(ctx context.Context, f StoreFixture) error {
	// SQL has no higher integers, JSON read as floating point gets odd ones wrong.
	for _, to := range []uint64{1<<53 + 1, math.MaxInt64} {
		name := fmt.Sprint(to)
		if err := f.Store.Commit(ctx, name, 0, to); err != nil {
			return err
		}
		if err := standsAt(ctx, f.Store, name, to); err != nil {
			return err
		}
	}
	return nil
}

func ruleStoreCancel(ctx context.Context, f StoreFixture) error {
	if err := f.Store.Commit(ctx, "a", 0, 1); err != nil {
		return err
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := f.Store.Commit(ended, "a", 1, 2); !errors.Is(err, context.Canceled) {
		return fmt.Errorf("commit with a context that has ended gave %v", err) //nolint:errorlint // a message
	}
	return standsAt(ctx, f.Store, "a", 1)
}

func ruleLostUpdate(ctx context.Context, f StoreFixture) error {
	const steps = 20
	errs := make([]error, 8)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			for n := range uint64(steps) {
				if errs[i] = f.Store.Commit(ctx, fmt.Sprint("c", i), n, n+1); errs[i] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	for i := range errs {
		errs[i] = errors.Join(errs[i], standsAt(ctx, f.Store, fmt.Sprint("c", i), steps))
	}
	return errors.Join(errs...)
}

func ruleRace(ctx context.Context, f StoreFixture) error {
	for n := range uint64(10) {
		errs := make([]error, 4)
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() { errs[i] = f.Store.Commit(ctx, "a", n, n+1) })
		}
		wg.Wait()
		won := 0
		for _, err := range errs {
			switch {
			case err == nil:
				won++
			case !errors.Is(err, cursor.ErrMoved):
				return err
			}
		}
		if won != 1 {
			return fmt.Errorf("%d of %d consumers committed from %d", won, len(errs), n)
		}
	}
	return standsAt(ctx, f.Store, "a", 10)
}

func ruleShared(ctx context.Context, f StoreFixture) error {
	if err := f.Store.Commit(ctx, "a", 0, 4); err != nil {
		return err
	}
	again, err := f.Reopen(ctx)
	if err != nil {
		return err
	}
	if err := standsAt(ctx, again, "a", 4); err != nil {
		return err
	}
	if err := again.Commit(ctx, "a", 4, 5); err != nil {
		return err
	}
	if err := standsAt(ctx, f.Store, "a", 5); err != nil {
		return err
	}
	return refused(ctx, f.Store, 4, 6, 5)
}

func ruleOtherLog(ctx context.Context, f StoreFixture) error {
	if err := f.Store.Commit(ctx, "a", 0, 4); err != nil {
		return err
	}
	other, err := f.OtherLog(ctx)
	if err != nil {
		return err
	}
	var wrong *cursor.LogError
	_, err = other.Load(ctx, "a")
	if !errors.Is(err, cursor.ErrWrongLog) || !errors.As(err, &wrong) {
		return fmt.Errorf("load gave %v, want a LogError", err) //nolint:errorlint // a message
	}
	if wrong.Cursor != 4 || wrong.LogID == "" || wrong.CursorsLogID == "" || wrong.LogID == wrong.CursorsLogID {
		return fmt.Errorf("the error says %+v", wrong)
	}
	for _, from := range []uint64{0, 4} {
		if err := other.Commit(ctx, "a", from, 9); !errors.Is(err, cursor.ErrWrongLog) {
			return fmt.Errorf("commit gave %v, want a LogError", err) //nolint:errorlint // a message
		}
	}
	all, err := other.List(ctx)
	if err != nil {
		return err
	}
	if len(all) != 1 || all[0].LogID != wrong.CursorsLogID {
		return fmt.Errorf("listed is %+v, want the consumer with its log's id", all)
	}
	return standsAt(ctx, f.Store, "a", 4)
}

func ruleReset(ctx context.Context, f StoreFixture) error {
	r := f.Store.(cursor.Resetter)
	for _, step := range [][2]uint64{{0, 10}, {10, 3}, {3, 3}, {3, 50}} {
		if err := r.Reset(ctx, "a", step[0], step[1]); err != nil {
			return err
		}
		if err := standsAt(ctx, f.Store, "a", step[1]); err != nil {
			return err
		}
	}
	if err := r.Reset(ctx, "a", 49, 0); !errors.Is(err, cursor.ErrMoved) {
		return fmt.Errorf("reset from elsewhere gave %v, want a MovedError", err) //nolint:errorlint // a message
	}
	return standsAt(ctx, f.Store, "a", 50)
}

func ruleRebind(ctx context.Context, f StoreFixture) error {
	for _, name := range []string{"a", "b"} {
		if err := f.Store.Commit(ctx, name, 0, 4); err != nil {
			return err
		}
	}
	other, err := f.OtherLog(ctx)
	if err != nil {
		return err
	}
	if err := other.(cursor.Resetter).Reset(ctx, "a", 4, 2); err != nil {
		return err
	}
	if err := standsAt(ctx, other, "a", 2); err != nil {
		return err
	}
	if err := other.Commit(ctx, "a", 2, 3); err != nil {
		return err
	}
	// The others did not ask for it.
	var wrong *cursor.LogError
	if _, err := other.Load(ctx, "b"); !errors.As(err, &wrong) || wrong.Cursor != 4 {
		return fmt.Errorf("load of one that was not reset gave %v, want a LogError with its cursor", err) //nolint:errorlint // a message
	}
	return other.Remove(ctx, "b")
}
