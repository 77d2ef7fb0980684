package outbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/evlog-go/evlog/internal/outboxrule"
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
// as it can with a rollback journal. SQLite lets no new ones in meanwhile.
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
		discard(t.conn)
	}
}

// discard keeps a connection from going back to the pool.
func discard(conn *sql.Conn) { _ = conn.Raw(func(any) error { return driver.ErrBadConn }) }

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

// session is a connection set up for the relay: its commits are synced, whatever
// the application's settings are, it does not wait long for locks, and it leaves
// checkpoints to the application.
type session struct {
	connection
	old [len(relayPragmas)]int // what close restores
}

var relayPragmas = [...]struct {
	name  string
	value func(was int) int
}{
	// EXTRA is FULL where there is a WAL. With a rollback journal it also syncs the
	// directory after the journal is gone, which is what commits.
	{"synchronous", to(3)},
	// On macOS an fsync is none without this. Elsewhere it does nothing.
	{"fullfsync", to(1)},
	{"checkpoint_fullfsync", to(1)},
	// A relay that is told to stop must not sit in SQLite's own waiting.
	{"busy_timeout", to(20)},
	// Whoever checkpoints waits for the disk, and meanwhile the WAL grows by what
	// the others commit: by tens of MB, if they do not wait for it. The application
	// does it as it commits, and so waits itself. The relay does it when the WAL has
	// grown to twice that, because nobody else commits; and never where the
	// application has switched it off (0).
	{"wal_autocheckpoint", func(was int) int { return 2 * max(0, was) }},
}

func to(value int) func(int) int { return func(int) int { return value } }

func (b *Box) session(ctx context.Context) (*session, error) {
	conn, err := b.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	s := &session{connection: connection{conn: conn}}
	nc := context.WithoutCancel(ctx)
	for i, p := range relayPragmas {
		err := conn.QueryRowContext(nc, `PRAGMA `+p.name).Scan(&s.old[i])
		value := p.value(s.old[i])
		if p.name == "synchronous" && b.rules.Off(outboxrule.Extra) {
			value = 1
		}
		if err == nil {
			_, err = conn.ExecContext(nc, fmt.Sprintf(`PRAGMA %s = %d`, p.name, value))
		}
		if err != nil {
			discard(conn)
			return nil, join(fmt.Errorf("PRAGMA %s: %w", p.name, err), conn.Close())
		}
	}
	// The journal is a setting of the connection, and the pool makes new ones.
	var journal string
	err = conn.QueryRowContext(nc, `PRAGMA journal_mode`).Scan(&journal)
	if err == nil {
		err = safeJournal(journal)
	}
	if err == nil {
		err = b.present()
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// close gives the connection back as it was.
func (s *session) close() {
	s.unprepare()
	for i, p := range relayPragmas {
		if _, err := s.conn.ExecContext(context.Background(), fmt.Sprintf(`PRAGMA %s = %d`, p.name, s.old[i])); err != nil {
			discard(s.conn)
			break
		}
	}
	_ = s.conn.Close()
}

// renew takes another connection in the place of one that is broken. If there is
// none, s stays broken.
func (b *Box) renew(ctx context.Context, s *session) {
	discard(s.conn)
	prepare := s.prepared != nil
	s.close()
	fresh, err := b.session(ctx)
	if err != nil {
		return
	}
	if prepare {
		fresh.prepared = map[string]*sql.Stmt{}
	}
	*s = *fresh
}

// broken reports whether the connection is of no use any more.
func broken(err error) bool {
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone)
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
