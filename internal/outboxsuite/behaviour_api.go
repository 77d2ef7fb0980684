package outboxsuite

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/invariant"
	"github.com/evlog-go/evlog/internal/vfs"
	"github.com/evlog-go/evlog/outbox"
)

// Put tells the uids, and with them the offsets can be found.
func behaveUIDs(e *env) error {
	box := e.openBox(e.db, &outbox.Options{KeepFor: time.Hour})
	records := make([]evlog.Record, 100) // more than one statement takes
	for i := range records {
		records[i].Value = fmt.Append(nil, i)
	}
	var uids []outbox.UID
	err := box.InTx(e.ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
		uids, err = box.Put(ctx, tx, records...)
		return err
	})
	log, err2 := e.tryLog(box, e.dir)
	if err := first(err, err2); err != nil {
		return err
	}
	run := e.start(box, log)
	if err := first(box.Wait(e.ctx), run.end()); err != nil {
		return err
	}
	if len(uids) != len(records) {
		return wrongf("%d uids", len(uids))
	}
	for i, uid := range uids {
		at, found, err := outbox.FindRelayed(e.ctx, e.db, uid)
		if err != nil || !found || at.Offset != uint64(i) {
			return wrongf("record %d: %+v, %v, %v", i, at, found, err)
		}
	}
	return nil
}

// What no log can hold is refused by Put, and nothing of the call is put.
func behaveTooLarge(e *env) error {
	refused := func(r evlog.Record) error {
		return e.box.InTx(e.ctx, func(ctx context.Context, tx *sql.Tx) error {
			_, err := e.box.Put(ctx, tx, evlog.Record{Value: []byte("a")}, r)
			_, _, once := e.box.PutOnce(ctx, tx, "key", r)
			return first(is(err, evlog.ErrTooLarge), is(once, evlog.ErrTooLarge))
		})
	}
	large := []evlog.Record{{Key: bytes.Repeat([]byte("k"), evlog.MaxKeyBytes+1)}}
	if strconv.IntSize == 64 && !invariant.Enabled { // the race detector would touch all of it
		large = append(large, evlog.Record{Value: make([]byte, evlog.MaxRecordBytes)})
	}
	for _, r := range large {
		if err := refused(r); err != nil {
			return err
		}
	}
	s, err := outbox.ReadStatus(e.ctx, e.db)
	if err == nil && s.Queued != 0 {
		err = wrongf("%d rows are queued", s.Queued)
	}
	return first(err, e.box.InTx(e.ctx, func(ctx context.Context, tx *sql.Tx) error {
		return errOf(e.box.Put(ctx, tx, evlog.Record{Key: large[0].Key[1:]}))
	}))
}

// When Wait returns, what was committed before is in the log, with others
// committing all the time.
func behaveWait(e *env) error {
	log := e.openLog()
	run := e.start(e.box, log)
	if err := e.box.Wait(e.ctx); err != nil { // for nothing
		return err
	}
	ctx, stop := context.WithCancel(e.ctx)
	defer stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	beside := e.openBox(e.open(5000), nil)
	wg.Go(func() {
		for ctx.Err() == nil {
			_ = e.put(beside, "beside")
		}
	})
	errs := make(chan error, 2)
	for caller := range 2 {
		wg.Go(func() {
			for i := range 15 {
				value := fmt.Sprint(caller, " ", i)
				err := first(e.put(beside, value), e.box.Wait(ctx))
				if got, err2 := e.values(e.dir); err == nil && !slices.Contains(got, value) {
					err = wrongf("%q is not in the log: %v", value, err2)
				}
				if err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		})
	}
	err := first(<-errs, <-errs)
	stop()
	wg.Wait()
	if err != nil {
		return err
	}
	// It ends with its context, and parked rows are not waited for.
	if err := first(run.end(), e.put(e.box, "queued")); err != nil {
		return err
	}
	short, cancel := context.WithTimeout(e.ctx, 20*time.Millisecond)
	defer cancel()
	if err := is(e.box.Wait(short), context.DeadlineExceeded); err != nil {
		return err
	}
	if _, err := e.db.Exec(`UPDATE evlog_outbox SET parked = 'for this test'`); err != nil {
		return err
	}
	return e.box.Wait(e.ctx)
}

// Wait is woken when a start finds the rows in the log.
func behaveWaitSettled(e *env) error {
	clock := &stuckClock{testClock: newTestClock()}
	box, log, err := e.leaveOpen(clock, "a")
	if err != nil {
		return err
	}
	clock.stuck.Store(true)
	waited := make(chan error, 1)
	go func() { waited <- box.Wait(e.ctx) }()
	if !e.eventually(func() bool { return clock.asked.Load() > 0 }) {
		return wrongf("it does not wait")
	}
	run := e.start(box, log)
	return first(e.within("Wait", func() error { return <-waited }), e.has("a"), run.end())
}

// Another process relays.
func behaveWaitElsewhere(e *env) error {
	run := e.start(e.box, e.openLog())
	elsewhere := e.openBox(e.open(5000), nil)
	var want []string
	for i := range 5 {
		want = append(want, fmt.Sprint(i))
		if err := first(e.put(elsewhere, want[i]), elsewhere.Wait(e.ctx)); err != nil {
			return err
		}
		if got, err := e.values(e.dir); err != nil || strings.Join(got, " ") != strings.Join(want, " ") {
			return wrongf("the log has %q: %v", got, err)
		}
	}
	return run.end()
}

// The rows of the open intent are told from those that wait.
func behaveStatus(e *env) error {
	if err := e.interrupted("a", "b", "c"); err != nil {
		return err
	}
	if err := e.put(e.box, "d", "e"); err != nil {
		return err
	}
	expect := func(queued, pending, intent int) error {
		s, err := outbox.ReadStatus(e.ctx, e.db)
		if err == nil && (s.Queued != queued || s.Pending != pending || s.IntentRows != intent) {
			err = wrongf("%+v, not %d queued, %d pending, %d in the intent", s, queued, pending, intent)
		}
		return err
	}
	if err := expect(5, 2, 3); err != nil {
		return err
	}
	// Rows of the intent that somebody has deleted are in neither.
	if _, err := e.db.Exec(`DELETE FROM evlog_outbox WHERE value = CAST('b' AS BLOB)`); err != nil {
		return err
	}
	if err := expect(4, 2, 3); err != nil {
		return err
	}
	// Ids that are no range.
	if _, err := e.db.Exec(`UPDATE evlog_outbox_relay SET ids = (SELECT min(id) || ',' || max(id) || ',999' FROM evlog_outbox)`); err != nil {
		return err
	}
	if err := expect(4, 2, 3); err != nil {
		return err
	}
	if _, err := e.db.Exec(`UPDATE evlog_outbox_relay SET n = 0, ids = '', uids = x'', sums = x''`); err != nil {
		return err
	}
	if err := expect(4, 4, 0); err != nil {
		return err
	}
	for kind, want := range map[outbox.EventKind]string{
		outbox.EventRelayed: "relayed", outbox.EventParked: "parked", outbox.EventRetry: "retry",
		outbox.EventResolved: "resolved", outbox.EventMismatch: "mismatch", 77: "EventKind(77)",
	} {
		if kind.String() != want {
			return wrongf("%d is %v", uint8(kind), kind)
		}
	}
	return nil
}

// Parked tells sizes and the beginning of the key, FindRow all of a row.
func behaveParkedRows(e *env) error {
	key := bytes.Repeat([]byte("k"), 1000)
	value := bytes.Repeat([]byte("v"), 2<<20) // the log takes half of it
	when := time.UnixMilli(1_000_000).UTC()
	var uids []outbox.UID
	err := e.box.InTx(e.ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
		uids, err = e.box.Put(ctx, tx,
			evlog.Record{Key: key, Value: value, Schema: 7, Time: when}, evlog.Record{Value: value})
		return err
	})
	if err != nil {
		return err
	}
	run := e.start(e.box, e.openLog())
	if err := first(e.box.Wait(e.ctx), run.end()); err != nil {
		return err
	}
	rows, err := outbox.Parked(e.ctx, e.db)
	if err != nil || len(rows) != 2 {
		return wrongf("%d rows, %v", len(rows), err)
	}
	a, b := rows[0], rows[1]
	if !bytes.Equal(a.Key, key[:256]) || a.KeyBytes != 1000 || a.ValueBytes != int64(len(value)) || a.UID != uids[0] ||
		a.Schema != 7 || !a.Time.Equal(when) || a.Attempts != 1 || a.Reason == "" || len(b.Key) > 0 || b.KeyBytes != 0 {
		return wrongf("%+v, %+v", a, b)
	}
	row, found, err := outbox.FindRow(e.ctx, e.db, a.ID)
	if err != nil || !found || !bytes.Equal(row.Record.Value, value) || !bytes.Equal(row.Record.Key, key) || row.Parked != a.Reason {
		return wrongf("row %d: %v, %v", a.ID, found, err)
	}
	if _, found, err := outbox.FindRow(e.ctx, e.db, 999); found || err != nil {
		return wrongf("row 999: %v, %v", found, err)
	}
	return nil
}

// InTx inside InTx says so, and does not wait. On another database it is fine.
func behaveNested(e *env) error {
	path := e.path
	e.path += ".other"
	other := e.openBox(e.open(5000), nil)
	e.path = path
	again := e.openBox(e.open(0), nil) // the same database
	nothing := func(context.Context, *sql.Tx) error { return nil }
	err := e.box.InTx(e.ctx, func(ctx context.Context, _ *sql.Tx) error {
		return first(
			is(e.box.InTx(ctx, nothing), outbox.ErrNested),
			is(again.InTx(ctx, nothing), outbox.ErrNested),
			other.InTx(ctx, func(ctx context.Context, _ *sql.Tx) error {
				return is(e.box.InTx(ctx, nothing), outbox.ErrNested)
			}),
		)
	})
	if err != nil {
		return err
	}
	// With another context it cannot be told at once. The error does, in the end.
	clock := newTestClock()
	box := e.openBox(e.open(0), &outbox.Options{Clock: clock})
	return box.InTx(e.ctx, func(context.Context, *sql.Tx) error {
		done := make(chan error, 1)
		go func() { done <- box.InTx(e.ctx, nothing) }()
		for {
			select {
			case err := <-done:
				if err == nil || !strings.Contains(err.Error(), "one inside another") {
					return wrongf("%v", err)
				}
				return nil
			case <-time.After(time.Millisecond):
				clock.skip(time.Minute)
			}
		}
	})
}

// Tables of a later version are refused by everything that reads them, also
// under a box that was opened before.
func behaveLaterVersion(e *env) error {
	log := e.openLog()
	if _, err := e.db.Exec(`UPDATE evlog_schema SET version = 99 WHERE part = 'outbox'`); err != nil {
		return err
	}
	_, open := outbox.Open(e.ctx, e.db, nil)
	_, status := outbox.ReadStatus(e.ctx, e.db)
	_, parked := outbox.Parked(e.ctx, e.db)
	_, _, row := outbox.FindRow(e.ctx, e.db, 1)
	_, _, relayed := outbox.FindRelayed(e.ctx, e.db, outbox.UID{})
	run := e.box.Run(e.ctx, log)
	_ = log.Close()
	_, hook := e.tryLog(e.box, e.dir)
	for what, err := range map[string]error{
		"Open": open, "ReadStatus": status, "Parked": parked, "FindRow": row, "FindRelayed": relayed, "Run": run, "Hook": hook,
		"Requeue": e.box.Requeue(e.ctx, 1), "Discard": e.box.Discard(e.ctx, 1),
	} {
		if err := is(err, evlog.ErrVersion); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if !strings.Contains(err.Error(), "version 99") {
			return wrongf("%s: %v", what, err)
		}
	}
	return nil
}

// Errors are one line, also where there are two.
func behaveOneLine(e *env) error {
	bare := *e
	bare.path += ".bare"
	db := bare.open(5000)
	if _, err := db.Exec(`CREATE TABLE evlog_schema (part TEXT PRIMARY KEY, version INTEGER NOT NULL)`); err != nil {
		return err
	}
	if _, err := db.Exec(`INSERT INTO evlog_schema VALUES ('outbox', 1)`); err != nil {
		return err
	}
	_, noTables := outbox.ReadStatus(e.ctx, db)
	// A full disk, and when the intent is to be settled another relay has taken over.
	log := e.openLog()
	e.fail.set(func(op vfs.Op) error {
		if op.Kind != vfs.OpWrite || !strings.HasSuffix(op.Name, ".log") {
			return nil
		}
		if _, err := e.db.Exec(`UPDATE evlog_outbox_relay SET epoch = epoch + 1 WHERE n > 0`); err != nil {
			return err
		}
		return syscall.ENOSPC
	})
	run := e.start(e.box, log)
	if err := e.put(e.box, "a"); err != nil {
		return err
	}
	fenced := <-run.done
	run.done <- fenced
	e.fail.clear()
	for _, err := range []error{noTables, fenced} {
		if err == nil || strings.Contains(err.Error(), "\n") {
			return wrongf("%q", err)
		}
	}
	if !errors.Is(fenced, syscall.ENOSPC) {
		return wrongf("there are not two: %q", fenced)
	}
	return first(is(noTables, outbox.ErrNoTables), is(fenced, outbox.ErrFenced), isNot(fenced, context.Canceled))
}

func isNot(err, other error) error {
	if errors.Is(err, other) {
		return wrongf("the error is %v", err)
	}
	return nil
}
