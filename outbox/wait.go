package outbox

import (
	"context"
	"database/sql"
	"sync"
	"time"

	"github.com/evlog-go/evlog/internal/sqldb"
)

// Wait waits until all that was committed before the call is durable in the log,
// by whichever process, and returns nil. It is for what must come after: going
// offline, a backup, an answer that names an offset, the end of a test. Rows that
// are parked are not waited for, and neither is what is committed later.
//
// It only waits: some process has to relay. It is quick where this box does, and
// looks every Options.PollInterval where another process does. If no relay runs,
// or it has ended, Wait goes on until ctx ends, so derive ctx from one that ends
// with Run. Do not call it within a transaction that has written: the relay may
// need the database's lock. A locked database is waited for too.
func (b *Box) Wait(ctx context.Context) error {
	b.waits.join()
	defer b.waits.leave()
	b.Notify()
	var last sql.NullInt64
	wait := busyFirstWait
	for {
		relayed := b.waits.next() // before looking, so that nothing is missed
		there, err := b.queuedUpTo(ctx, &last)
		switch {
		case ctx.Err() != nil:
			return wrap("wait", ctx.Err())
		case err != nil && !sqldb.IsBusy(err):
			return wrap("wait", err)
		case err == nil && !there:
			return nil
		}
		if err := b.sleepUntil(ctx, relayed, wait); err != nil {
			return wrap("wait", err)
		}
		wait = min(2*wait, b.opts.PollInterval)
	}
}

// queuedUpTo reports whether rows are queued up to the id last, which it sets to
// the highest one the first time. A row is queued until it is known to be
// durable in the log.
func (b *Box) queuedUpTo(ctx context.Context, last *sql.NullInt64) (there bool, err error) {
	if !last.Valid {
		err := b.db.QueryRowContext(ctx, `SELECT max(id) FROM main.evlog_outbox WHERE parked IS NULL`).Scan(last)
		return last.Valid, tables.Error(err)
	}
	err = b.db.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM main.evlog_outbox WHERE parked IS NULL AND id <= ?1)`,
		last.Int64).Scan(&there)
	return there, tables.Error(err)
}

func (b *Box) sleepUntil(ctx context.Context, done <-chan struct{}, d time.Duration) error {
	timer, stop := b.clock.Timer(d)
	defer stop()
	select {
	case <-done:
	case <-timer:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// waits are the calls of Wait. While there are any, a relay that has nothing more to
// append deletes the rows of its last batch at once (relay.idle).
type waits struct {
	mu      sync.Mutex // guards the rest
	n       int
	changed chan struct{} // closed when rows are deleted; nil: nobody has asked for it
}

func (w *waits) join() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n++
}

func (w *waits) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n--
}

func (w *waits) any() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.n > 0
}

// next returns a channel that is closed when the relay has deleted rows.
func (w *waits) next() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.changed == nil {
		w.changed = make(chan struct{})
	}
	return w.changed
}

// deleted wakes them.
func (w *waits) deleted() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.changed != nil {
		close(w.changed)
		w.changed = nil
	}
}
