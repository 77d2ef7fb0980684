package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/evlog-go/evlog/internal/sqldb"
)

// tx is a transaction of this package, between BEGIN IMMEDIATE and COMMIT on a
// connection that belongs to it meanwhile. Its statements are never cancelled:
// SQLite answers an interrupted write by rolling the whole transaction back, and
// an interrupted COMMIT leaves nobody knowing.
type tx struct {
	*connection
	ctx context.Context
}

func (t *tx) exec(query string, args ...any) (sql.Result, error) {
	return t.ExecContext(t.ctx, query, args...)
}

func (t *tx) row(query string, args ...any) *sql.Row {
	return t.QueryRowContext(t.ctx, query, args...)
}

// changed runs a statement and returns how many rows it changed.
func (t *tx) changed(query string, args ...any) (int, error) {
	res, err := t.exec(query, args...)
	if err != nil {
		return 0, err
	}
	n, err := res.RowsAffected()
	return int(n), err
}

// unsureError is that of a COMMIT that may have taken effect, or may take effect
// after a crash. Every other error of transact means that nothing was changed.
type unsureError struct{ err error }

func (e *unsureError) Error() string { return "commit: " + e.err.Error() }
func (e *unsureError) Unwrap() error { return e.err }

// commitFor is how long a COMMIT is tried again that finds readers in its way,
// as it can with a rollback journal. SQLite lets no new ones in meanwhile. When ctx
// ends it is not tried again: rolled back, nothing of it is in doubt.
const commitFor = 250 * time.Millisecond

// transact runs f in a transaction on c. ctx ends only the waiting for locks.
func (b *Box) transact(ctx context.Context, c *connection, f func(t *tx) error) (err error) {
	t := &tx{connection: c, ctx: context.WithoutCancel(ctx)}
	if _, err := t.exec(`BEGIN IMMEDIATE`); err != nil {
		t.rollback() // a BEGIN that was cancelled can leave a transaction open
		return err
	}
	ended := false
	defer func() {
		if !ended {
			t.rollback()
		}
	}()
	if err := f(t); err != nil {
		return err
	}
	start := b.clock.Elapsed()
	for {
		_, err := t.exec(`COMMIT`)
		switch {
		case err == nil:
			ended = true
			return nil
		case sqldb.IsNoTx(err):
			return err // it was lost before
		case !sqldb.IsBusy(err):
			return &unsureError{err}
		case ctx.Err() != nil || b.clock.Elapsed()-start > commitFor:
			return err
		}
		_ = b.sleep(ctx, time.Millisecond)
	}
}

// rollback ends the transaction, or the connection, whichever can be done.
func (t *tx) rollback() {
	_, err := t.conn.ExecContext(context.WithoutCancel(t.ctx), `ROLLBACK`)
	if err != nil && !sqldb.IsNoTx(err) {
		t.discard()
	}
}

// inOwnTx runs f in a transaction with the application's settings, and again
// while the database is locked.
func (b *Box) inOwnTx(ctx context.Context, f func(t *tx) error) error {
	return b.patiently(ctx, func() error {
		conn, err := b.db.Conn(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		return b.transact(ctx, &connection{conn: conn}, f)
	})
}

const (
	busyFirstWait = time.Millisecond
	busyMaxWait   = 50 * time.Millisecond
	// busyFor is how long calls of the application wait for locks, on top of the
	// connection's busy timeout.
	busyFor = time.Minute
)

// patiently calls f until it returns something else than a busy error, ctx ends,
// or it has taken too long.
func (b *Box) patiently(ctx context.Context, f func() error) error {
	start, wait, told := b.clock.Elapsed(), busyFirstWait, false
	for {
		err := f()
		waited := b.clock.Elapsed() - start
		if !sqldb.IsBusy(err) || waited > busyFor {
			return err
		}
		if waited > tellAfter && !told {
			told = true
			b.logger.Warn("outbox: the database is locked; waiting", "for_up_to", busyFor, "err", err)
		}
		if b.sleep(ctx, jitter(wait)) != nil {
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		}
		wait = min(2*wait, busyMaxWait)
	}
}

// jitter keeps two that wait for each other from coming back together.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d) }

func (b *Box) sleep(ctx context.Context, d time.Duration) error {
	timer, stop := b.clock.Timer(d)
	defer stop()
	select {
	case <-timer:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
