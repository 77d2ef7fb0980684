package outboxsuite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/outbox"
)

func runBehaviour(t *testing.T, driver string, m Mode) {
	for _, b := range []struct {
		name  string
		check func(e *env) error
	}{
		{"refused", behaveRefused},
		{"order", behaveOrder},
		{"in_tx", behaveInTx},
		{"other_languages", behaveSQLOnly},
		{"encode_and_keep", behaveKeep},
		{"prune", behavePrune},
		{"dropped_rows", behaveDropped},
		{"dropped_tables", behaveDroppedTables},
		{"unread", behaveUnread},
		{"on_event", behaveOnEvent},
		{"locked", behaveLocked},
		{"settings_restored", behaveSettings},
		{"cancelled", behaveCancelled},
		{"cancelled_on_a_slow_disk", behaveCancelledSlow},
		{"left_open", behaveLeftOpen},
		{"reopening", behaveReopening},
		{"reopening_ends", behaveReopeningEnds},
		{"reopening_closes", behaveReopeningCloses},
		{"reopening_cancelled", behaveReopeningCancelled},
		{"journal", behaveJournal},
		{"warns", behaveWarns},
		{"relay_row_deleted", behaveRelayRow},
		{"rows_deleted", behaveRowsDeleted},
		{"log_hook", behaveHook},
		{"panic", behavePanic},
		{"panic_at_the_gate", behavePanicAtGate},
		{"gives_up", behaveGivesUp},
		{"damaged", behaveDamaged},
		{"full_database", behaveFullDatabase},
		{"broken_connections", behaveBroken},
		{"ends_in_wait", behaveEndsInWait},
		{"little_room", behaveLittleRoom},
		{"database_gone", behaveDatabaseGone},
		{"encode_grows", behaveEncode},
		{"append_beside", behaveAppendBeside},
		{"big_batches", behaveBatches},
		{"in_a_bridge", behaveBridge},
		{"uids", behaveUIDs},
		{"too_large", behaveTooLarge},
		{"wait", behaveWait},
		{"wait_elsewhere", behaveWaitElsewhere},
		{"wait_settled", behaveWaitSettled},
		{"status", behaveStatus},
		{"parked_rows", behaveParkedRows},
		{"nested", behaveNested},
		{"later_version", behaveLaterVersion},
		{"one_line", behaveOneLine},
		{"checkpoints", behaveCheckpoints},
	} {
		t.Run(b.name, func(t *testing.T) { require.NoError(t, b.check(newEnv(t, driver, m, 0))) })
	}
	if m.Journal == "WAL" && m.Sync == "NORMAL" {
		t.Run("wal_size", func(t *testing.T) { require.NoError(t, behaveWALSize(newEnv(t, driver, m, 0))) })
	}
}

func behaveRefused(e *env) error {
	for _, mode := range []string{"OFF", "MEMORY"} {
		m := Mode{Journal: mode, Sync: "FULL"}
		db, err := sql.Open(e.driver, m.dsn(e.path+mode, 0))
		if err != nil {
			return err
		}
		_, err = outbox.Open(e.ctx, db, nil)
		if err := first(is(err, outbox.ErrUnsafe), db.Close()); err != nil {
			return fmt.Errorf("journal_mode=%s: %w", mode, err)
		}
	}
	db, err := sql.Open(e.driver, ":memory:")
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	if _, err := outbox.Open(e.ctx, db, nil); is(err, outbox.ErrUnsafe) != nil {
		return is(err, outbox.ErrUnsafe)
	}
	if _, err := outbox.ReadStatus(e.ctx, db); is(err, outbox.ErrNoTables) != nil {
		return is(err, outbox.ErrNoTables)
	}
	if _, err := outbox.Open(e.ctx, e.db, &outbox.Options{BatchRows: -1}); is(err, evlog.ErrBadOptions) != nil {
		return is(err, evlog.ErrBadOptions)
	}
	return nil
}

// Records come in the order of the commits, from several connections at once,
// whatever their times are.
func behaveOrder(e *env) error {
	run := e.start(e.box, e.openLog())
	var mu sync.Mutex // guards n, which is counted inside the transactions
	n := 0
	var wg sync.WaitGroup
	errs := make(chan error, 100)
	for range 4 {
		wg.Go(func() {
			for range 10 {
				errs <- e.box.InTx(e.ctx, func(ctx context.Context, tx *sql.Tx) error {
					mu.Lock()
					defer mu.Unlock()
					for range 3 {
						r := evlog.Record{Value: fmt.Appendf(nil, "%d", n), Time: time.UnixMilli(int64(1_000_000 - n))}
						n++
						if _, err := e.box.Put(ctx, tx, r); err != nil {
							return err
						}
					}
					return nil
				})
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	want := make([]string, n)
	for i := range want {
		want[i] = fmt.Sprint(i)
	}
	return first(e.has(want...), e.drained(), run.end())
}

func behaveInTx(e *env) error {
	boom := errors.New("boom")
	put := func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO thing (n) VALUES (1)`)
		return first(err, errOf(e.box.Put(ctx, tx, evlog.Record{Value: []byte("v")})))
	}
	ended, cancel := context.WithCancel(e.ctx)
	defer cancel()
	err := e.box.InTx(e.ctx, func(ctx context.Context, tx *sql.Tx) error { return first(put(ctx, tx), boom) })
	if err := is(err, boom); err != nil {
		return err
	}
	func() {
		defer func() { _ = recover() }()
		_ = e.box.InTx(e.ctx, func(ctx context.Context, tx *sql.Tx) error {
			_ = put(ctx, tx)
			panic("ouch")
		})
	}()
	// SQLite rolls back under the function, which does not care.
	err = e.box.InTx(e.ctx, func(ctx context.Context, tx *sql.Tx) error {
		err := put(ctx, tx)
		_, _ = tx.ExecContext(ctx, `INSERT OR ROLLBACK INTO thing (n) VALUES (1)`)
		return err
	})
	if err := is(err, outbox.ErrNotInTx); err != nil {
		return err
	}
	// A context that ends in the middle changes nothing.
	if err := e.box.InTx(ended, func(ctx context.Context, tx *sql.Tx) error {
		cancel()
		return put(ctx, tx)
	}); err != nil {
		return err
	}
	if err := is(e.box.InTx(ended, put), context.Canceled); err != nil {
		return err
	}
	s, err := outbox.ReadStatus(e.ctx, e.db)
	if err == nil && (s.Queued != 1 || e.db.Stats().InUse != 0) {
		err = wrongf("%+v, %+v", s, e.db.Stats())
	}
	return first(err, e.free())
}

// free tests that nobody holds the database's lock.
func (e *env) free() error {
	db := e.open(0)
	_, err := db.Exec(`INSERT INTO thing (n) VALUES (NULL)`)
	return first(err, db.Close())
}

func behaveSQLOnly(e *env) error {
	before := time.Now().Add(-time.Second)
	for _, query := range []string{
		`INSERT INTO evlog_outbox (key, value) VALUES (CAST('k' AS BLOB), CAST('v' AS BLOB))`,
		`INSERT INTO evlog_outbox (schema, value) VALUES (7, CAST('w' AS BLOB))`,
		`INSERT INTO evlog_outbox (id, value) VALUES (-5, x'')`,
	} {
		if _, err := e.db.Exec(query); err != nil {
			return err
		}
	}
	if _, err := e.db.Exec(`INSERT INTO evlog_outbox (schema) VALUES (65536)`); err == nil {
		return wrongf("a schema of 65536")
	}
	run := e.start(e.box, e.openLog())
	if err := first(e.has("", "v", "w"), e.drained(), run.end()); err != nil {
		return err
	}
	r := e.log.Reader()
	for rec, err := range r.Records(e.ctx, 1) {
		if err != nil {
			return err
		}
		if rec.Time.Before(before) || rec.Time.After(time.Now().Add(time.Second)) {
			return wrongf("stamped %v", rec.Time)
		}
		if rec.Offset == 1 && string(rec.Key) != "k" || rec.Offset == 2 && rec.Schema != 7 {
			return wrongf("%v %d", rec, rec.Schema)
		}
	}
	return nil
}

// Connections go back to the pool as they were.
func behaveSettings(e *env) error {
	settings := func() (all []string, err error) {
		conns := make([]*sql.Conn, 3)
		for i := range conns {
			if conns[i], err = e.db.Conn(e.ctx); err != nil {
				return nil, err
			}
			defer func() { _ = conns[i].Close() }()
			var sync, busy, full, checkpoint string
			err = first(
				conns[i].QueryRowContext(e.ctx, `PRAGMA synchronous`).Scan(&sync),
				conns[i].QueryRowContext(e.ctx, `PRAGMA busy_timeout`).Scan(&busy),
				conns[i].QueryRowContext(e.ctx, `PRAGMA fullfsync`).Scan(&full),
				conns[i].QueryRowContext(e.ctx, `PRAGMA wal_autocheckpoint`).Scan(&checkpoint),
			)
			if err != nil {
				return nil, err
			}
			all = append(all, sync+"/"+busy+"/"+full+"/"+checkpoint)
		}
		return all, nil
	}
	e.db.SetMaxIdleConns(3)
	before, err := settings()
	if err != nil {
		return err
	}
	log := e.openLog()
	for range 3 {
		run := e.start(e.box, log)
		if err := first(e.put(e.box, "v"), e.drained(), run.end()); err != nil {
			return err
		}
	}
	after, err := settings()
	if err == nil && fmt.Sprint(after) != fmt.Sprint(before) {
		err = wrongf("settings were %v and are %v", before, after)
	}
	return err
}

// A log is relayed into only if it was opened with the hook, and from then on
// nobody appends to it without.
func behaveHook(e *env) error {
	plain, err := evlog.Open(e.ctx, e.dir, nil)
	if err != nil {
		return err
	}
	if err := is(e.box.Run(e.ctx, plain), outbox.ErrNoHook); err != nil {
		return err
	}
	if err := plain.Close(); err != nil {
		return err
	}
	log := e.openLog()
	run := e.start(e.box, log)
	if err := first(e.put(e.box, "a"), e.has("a"), e.drained(), run.end(), log.Close()); err != nil {
		return err
	}
	if err := is(e.box.Run(e.ctx, log), evlog.ErrClosed); err != nil {
		return err
	}
	plain, err = evlog.Open(e.ctx, e.dir, nil)
	if err != nil {
		return err
	}
	_, err = plain.Append(e.ctx, evlog.Record{})
	return first(is(err, evlog.ErrHookRequired), plain.Close())
}
