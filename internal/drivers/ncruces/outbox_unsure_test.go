package ncruces

import (
	"context"
	"database/sql"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/vfs"
	"github.com/evlog-go/evlog/outbox"
)

// The COMMIT of an intent fails where it may have taken effect: in a WAL what it
// has written becomes a transaction when the WAL is read again after a crash; a
// rollback journal is gone already, and only the sync of the directory has failed.
// It has to be settled before anybody else gets the intent's offset, or the record
// that stands there is taken for the row's, and the row is lost.
func TestOutbox_UnsureCommit(t *testing.T) {
	for _, journal := range []string{"wal", "delete"} {
		t.Run(journal, func(t *testing.T) {
			c := crashCase{journal: journal, app: "FULL"}
			w := openWorld(t, c, newBase(t, c), 1)
			defer w.close()
			image := w.unsureCommit(t)

			after := openWorld(t, c, image, 2)
			defer after.close()
			led := &ledger{nextN: 100, nextTx: 100, foreign: 1, tried: 1}
			require.NoError(t, after.live(after.rng, led, true))
			require.NoError(t, after.check(led))
		})
	}
}

// unsureCommit returns what is on the disk after the COMMIT of an intent has
// failed, and another record was appended. The relay is not tried again before.
func (w *world) unsureCommit(t *testing.T) *vfs.Mem {
	clock := &stoppedClock{quickClock: quickClock{time.Now()}}
	box, err := outbox.Open(w.ctx, w.db, &outbox.Options{Clock: clock})
	require.NoError(t, err)
	log, err := evlog.Open(w.ctx, crashLog, &evlog.Options{OpenHook: box.Hook(), NoPreallocate: true})
	require.NoError(t, err)
	require.NoError(t, box.InTx(w.ctx, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO effect (n, tx) VALUES (7, 1)`); err != nil {
			return err
		}
		_, err := box.Put(ctx, tx, w.record(7))
		return err
	}))
	appended := make(chan error, 1)
	var once atomic.Bool
	w.disk.committing = func() error {
		// Under the gate the relay commits an intent, or settles one.
		if log.Stats().GateHolder != outbox.HookName || !once.CompareAndSwap(false, true) {
			return nil
		}
		clock.stopped.Store(true)
		go func() { // as soon as the gate is open
			_, err := log.Append(w.ctx, w.record(-1))
			appended <- err
		}()
		return syscall.EIO
	}
	run, stop := context.WithCancel(w.ctx)
	ended := make(chan error, 1)
	go func() { ended <- box.Run(run, log) }()
	require.NoError(t, <-appended)
	image := w.mem.KillImage()
	stop()
	<-ended
	_ = log.Close()
	return image
}

// stoppedClock can be stopped: then no timer ends.
type stoppedClock struct {
	quickClock
	stopped atomic.Bool
}

func (c *stoppedClock) Timer(d time.Duration) (<-chan time.Time, func()) {
	if c.stopped.Load() {
		return nil, func() {}
	}
	return c.quickClock.Timer(d)
}
