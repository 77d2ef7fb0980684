package sqlbridge

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/evlog-go/evlog/cursor"
	"github.com/evlog-go/evlog/internal/sqldb"
	"github.com/evlog-go/evlog/internal/sqlrule"
)

// IsBusy reports whether err says that another connection is in the way
// (SQLITE_BUSY, SQLITE_LOCKED), whichever driver it comes from. Roll back and
// try again: retrying the one statement does not help a transaction that has
// read before.
func IsBusy(err error) bool { return sqldb.IsBusy(err) }

// lockError says that a record met a lock, whatever its handler made of that.
type lockError struct{ *cursor.HandlerError }

func (e *lockError) Unwrap() error { return e.HandlerError }

const (
	busyFirstWait = time.Millisecond
	busyMaxWait   = 100 * time.Millisecond
)

// patience is how long something has been kept waiting by locks.
type patience struct {
	b     *Bridge
	wait  time.Duration // the next pause; 0 before the first
	since time.Duration // when it began
}

// again waits a moment after a busy error. It returns nil for another try, and
// otherwise what to give up with: every error that is not about a lock, the
// busy one when it has taken too long, or the context's.
func (p *patience) again(ctx context.Context, err error) error {
	var met *lockError
	if !IsBusy(err) && !errors.As(err, &met) || p.b.rules.Off(sqlrule.BusyRetry) {
		return err
	}
	now := p.b.clock.Elapsed()
	if p.wait == 0 {
		p.wait, p.since = busyFirstWait, now
	}
	if p.b.busyFor >= 0 && now-p.since >= p.b.busyFor {
		return err
	}
	// Jitter: two that wait for each other must not come back together.
	if p.b.sleep(ctx, p.wait/2+rand.N(p.wait)) != nil {
		return fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	p.wait = min(2*p.wait, busyMaxWait)
	return nil
}

// read is retry for statements that ctx may cancel. Not every driver then
// returns the context's error: some pass on SQLite's "interrupted".
func (b *Bridge) read(ctx context.Context, f func() error) error {
	return b.retry(ctx, func(*patience) error {
		err := f()
		if err != nil && ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
			err = fmt.Errorf("%w: %w", ctx.Err(), err)
		}
		return err
	})
}

// retry calls f until it returns something else than a busy error. What f itself
// tries again it does with the same patience.
func (b *Bridge) retry(ctx context.Context, f func(p *patience) error) error {
	p := &patience{b: b}
	for {
		err := f(p)
		if err == nil {
			return nil
		}
		if err = p.again(ctx, err); err != nil {
			return err
		}
	}
}

func (b *Bridge) sleep(ctx context.Context, d time.Duration) error {
	timer, stop := b.clock.Timer(d)
	defer stop()
	select {
	case <-timer:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
