package outboxsuite

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/outboxrule"
	"github.com/evlog-go/evlog/outbox"
)

// rule is something that outbox must not do without.
type rule struct {
	name string
	// off is the part of outbox that keeps the rule. Switched off, check has to
	// return an error: otherwise it would prove nothing.
	off outboxrule.Rule
	// also is off in both: what would keep the test from being made.
	also  outboxrule.Rule
	check func(e *env) error
}

var rules = []rule{
	{name: "in_tx", off: outboxrule.InTx, check: checkInTx},
	{name: "dedupe", off: outboxrule.Dedupe, check: checkDedupe},
	{name: "park", off: outboxrule.Park, check: checkPark},
	{name: "one_relay", off: outboxrule.OneRelay, check: checkOneRelay},
	{name: "fence", off: outboxrule.Fence, also: outboxrule.OneRelay, check: checkFence},
	{name: "fence/prune", off: outboxrule.Fence, also: outboxrule.OneRelay, check: checkFencePrune},
	{name: "fence/park", off: outboxrule.Fence, also: outboxrule.OneRelay, check: checkFencePark},
	{name: "log_id", off: outboxrule.LogID, also: outboxrule.Ahead | outboxrule.Sums, check: checkLogChanged},
	{name: "ahead", off: outboxrule.Ahead, check: checkLogBehind},
	{name: "sums", off: outboxrule.Sums, check: checkLogMismatch},
	{name: "note", off: outboxrule.Note, check: checkDatabaseBehind},
	{name: "gaps", off: outboxrule.Gaps, check: checkGaps},
	{name: "by_uid", off: outboxrule.ByUID, check: checkByUID},
	{name: "by_uid/one", off: outboxrule.ByUID, check: checkByUIDOne},
	{name: "no_pin", off: outboxrule.NoPin, check: checkOneConnection},
	{name: "poll", off: outboxrule.Poll, check: checkPoll},
	{name: "retry", off: outboxrule.Retry, check: checkRetry},
}

func runRules(t *testing.T, driver string, m Mode) {
	for _, r := range rules {
		t.Run(r.name+"/kept", func(t *testing.T) {
			require.NoError(t, r.check(newEnv(t, driver, m, r.also)))
		})
		t.Run(r.name+"/switched_off", func(t *testing.T) {
			e := newEnv(t, driver, m, r.also|r.off)
			e.patience = 500 * time.Millisecond
			err := r.check(e)
			require.Error(t, err, "the test does not notice that the rule is not kept")
			require.NotErrorAs(t, err, new(unprepared), "this proves nothing")
			t.Log(err)
		})
	}
}

func checkInTx(e *env) error {
	rec := evlog.Record{Value: []byte("v")}
	if err := is(errOf(e.box.Put(e.ctx, e.db, rec)), outbox.ErrNotInTx); err != nil {
		return err
	}
	conn, err := e.db.Conn(e.ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := is(errOf(e.box.Put(e.ctx, conn, rec)), outbox.ErrNotInTx); err != nil {
		return err
	}
	if _, _, err := e.box.PutOnce(e.ctx, conn, "k", rec); is(err, outbox.ErrNotInTx) != nil {
		return err
	}
	// A transaction that SQLite has ended under its owner.
	tx, err := conn.BeginTx(e.ctx, nil)
	if err != nil {
		return err
	}
	_, err = tx.Exec(`INSERT INTO thing (n) VALUES (1)`)
	_, conflict := tx.Exec(`INSERT OR ROLLBACK INTO thing (n) VALUES (1)`)
	if err != nil || conflict == nil {
		return wrongf("no conflict: %v", err)
	}
	if err := is(errOf(e.box.Put(e.ctx, tx, rec)), outbox.ErrNotInTx); err != nil {
		return err
	}
	_ = tx.Rollback()
	s, err := outbox.ReadStatus(e.ctx, e.db)
	if err == nil && s.Queued != 0 {
		err = wrongf("%d rows are queued", s.Queued)
	}
	return err
}

func checkDedupe(e *env) error {
	box := e.openBox(e.db, &outbox.Options{KeepFor: time.Hour})
	once := func(key string) (uid outbox.UID, put bool, err error) {
		err = box.InTx(e.ctx, func(ctx context.Context, tx *sql.Tx) error {
			uid, put, err = box.PutOnce(ctx, tx, key, evlog.Record{Value: []byte(key)})
			return err
		})
		return uid, put, err
	}
	uids := map[string]outbox.UID{}
	expect := func(key string, want bool) error {
		uid, put, err := once(key)
		if err == nil && put != want {
			err = wrongf("PutOnce(%q) is %v", key, put)
		}
		if err == nil && !put && uid != uids[key] {
			err = wrongf("PutOnce(%q) tells %v, and the row is %v", key, uid, uids[key])
		}
		uids[key] = uid
		return err
	}
	if err := first(expect("a", true), expect("a", false), expect("b", true)); err != nil {
		return err
	}
	log, err := e.tryLog(box, e.dir)
	if err != nil {
		return err
	}
	r := e.start(box, log)
	if err := first(e.has("a", "b"), e.drained(), expect("a", false), expect("c", true), e.has("a", "b", "c")); err != nil {
		return err
	}
	return r.end()
}

func checkPark(e *env) error {
	limit := false // Encode shortens what is too long
	box := e.openBox(e.db, &outbox.Options{Encode: func(r outbox.Row) (evlog.Record, error) {
		if limit && len(r.Record.Key) > 10 {
			r.Record.Key = r.Record.Key[:10]
		}
		if string(r.Record.Value) == "never" {
			return r.Record, fmt.Errorf("cannot encode")
		}
		return r.Record, nil
	}})
	err := box.InTx(e.ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := box.Put(ctx, tx,
			evlog.Record{Value: []byte("1")},
			evlog.Record{Key: bytes.Repeat([]byte("k"), evlog.MaxKeyBytes+1), Value: []byte("long key")},
			evlog.Record{Value: []byte("2")},
			evlog.Record{Value: bytes.Repeat([]byte("v"), 2<<20)},
			evlog.Record{Value: []byte("never")},
			evlog.Record{Value: []byte("3")},
		)
		return err
	})
	if err != nil {
		return err
	}
	log, err := e.tryLog(box, e.dir)
	if err != nil {
		return err
	}
	run := e.start(box, log)
	if err := first(e.has("1", "2", "3"), e.drained()); err != nil {
		return err
	}
	rows, err := outbox.Parked(e.ctx, e.db)
	if err != nil {
		return err
	}
	if len(rows) != 3 || box.Stats().Parked != 3 {
		return wrongf("%d rows are parked, %+v", len(rows), box.Stats())
	}
	for i, want := range []string{"too large", "too large", "cannot encode"} {
		if rows[i].Attempts != 1 || !strings.Contains(rows[i].Reason, want) {
			return wrongf("parked: attempts %d, %q", rows[i].Attempts, rows[i].Reason)
		}
	}
	// Once more, to no avail; then with an Encode that was mended.
	if err := box.Requeue(e.ctx, rows[0].ID); err != nil {
		return err
	}
	if !e.eventually(func() bool {
		rows, err = outbox.Parked(e.ctx, e.db)
		return err == nil && len(rows) == 3 && rows[0].Attempts == 2
	}) {
		return wrongf("after Requeue: %v, %v", rows, err)
	}
	if err := run.end(); err != nil {
		return err
	}
	limit = true
	run = e.start(box, log)
	if err := first(
		is(box.Requeue(e.ctx, rows[0].ID, 999), outbox.ErrNotParked),
		box.Requeue(e.ctx, rows[0].ID),
		e.has("1", "2", "3", "long key"),
		box.Discard(e.ctx, rows[1].ID, rows[2].ID),
		is(box.Discard(e.ctx, rows[1].ID), outbox.ErrNotParked),
		run.end(),
	); err != nil {
		return err
	}
	rows, err = outbox.Parked(e.ctx, e.db)
	if err == nil && len(rows) > 0 {
		err = wrongf("still parked: %v", rows)
	}
	return err
}

func checkOneRelay(e *env) error {
	log := e.openLog()
	e.start(e.box, log)
	if err := e.prepare(func() error { return e.runs() }); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(e.ctx, e.patience/10)
	defer cancel()
	other := e.openBox(e.open(5000), nil)
	_, err := e.tryLog(other, "/log2")
	return first(is(e.box.Run(ctx, log), outbox.ErrRelayRunning), is(err, outbox.ErrRelayRunning))
}

// Two relays that know nothing of each other: the first one stops, and no row
// comes twice.
func checkFence(e *env) error {
	log := e.openLog()
	one := e.start(e.box, log)
	if err := e.prepare(func() error { return first(e.put(e.box, "a"), e.has("a"), e.drained()) }); err != nil {
		return err
	}
	other := e.openBox(e.open(5000), &outbox.Options{Policy: outbox.ResendIntent})
	log2, err := e.tryLog(other, "/log2")
	if err != nil {
		return err
	}
	if err := e.put(e.box, "b"); err != nil {
		return err
	}
	select {
	case err := <-one.done:
		one.done <- err
		if err := is(err, outbox.ErrFenced); err != nil {
			return err
		}
	case <-time.After(e.patience):
		return wrongf("the first relay goes on")
	}
	two := e.start(other, log2)
	if err := e.drained(); err != nil {
		return err
	}
	there, err := e.values("/log2")
	here, err2 := e.values(e.dir)
	if err := first(err, err2, two.end()); err != nil {
		return err
	}
	if fmt.Sprint(here, there) != "[a] [b]" {
		return wrongf("the logs have %v and %v", here, there)
	}
	return nil
}

// A pool of one connection belongs to the application.
func checkOneConnection(e *env) error {
	db := e.open(0)
	db.SetMaxOpenConns(1)
	box := e.openBox(db, nil)
	log, err := e.tryLog(box, e.dir)
	if err != nil {
		return err
	}
	// When the first row is in the log the relay has had the connection, and what
	// keeps it has it now.
	if err := e.put(box, "0"); err != nil {
		return err
	}
	run := e.start(box, log)
	if err := e.prepare(func() error { return e.has("0") }); err != nil {
		return err
	}
	want := []string{"0"}
	for i := 1; i < 30; i++ {
		want = append(want, fmt.Sprint(i))
		err := e.within("a transaction of the application", func() error {
			ctx, cancel := context.WithTimeout(e.ctx, e.patience)
			defer cancel()
			return box.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
				return errOf(box.Put(ctx, tx, evlog.Record{Value: []byte(want[i])}))
			})
		})
		if err != nil {
			return err
		}
	}
	return first(e.has(want...), run.end())
}

func checkPoll(e *env) error {
	clock := newTestClock()
	box := e.openBox(e.db, &outbox.Options{Clock: clock})
	log, err := e.tryLog(box, e.dir)
	if err != nil {
		return err
	}
	e.start(box, log)
	if err := e.prepare(func() error { return first(e.put(box, "here"), e.has("here"), e.drained()) }); err != nil {
		return err
	}
	// A Notify that came late ends one wait. In the second one nothing but a poll
	// finds rows.
	polls := clock.polls.Load()
	if !e.eventually(func() bool { return clock.polls.Load() >= polls+2 }) {
		return unprepared{errors.New("the relay does not wait")}
	}
	elsewhere := e.openBox(e.open(5000), nil) // whose Notify nobody here hears
	if err := e.put(elsewhere, "elsewhere"); err != nil {
		return err
	}
	return e.has("here", "elsewhere")
}

// A full disk: the rows stay, and are relayed without anything new coming.
func checkRetry(e *env) error {
	log := e.openLog()
	run := e.start(e.box, log)
	if err := e.prepare(func() error { return first(e.put(e.box, "a"), e.has("a"), e.drained()) }); err != nil {
		return err
	}
	e.mem.SetCapacity(e.mem.Used())
	if err := e.put(e.box, "b", "c"); err != nil {
		return err
	}
	if !e.eventually(func() bool { // it may be tried again because of a lock, too
		s := e.box.Stats()
		return s.Retries > 1 && errors.Is(s.LastErr, syscall.ENOSPC) || len(run.done) > 0
	}) {
		return wrongf("the disk is not full: %+v", e.box.Stats())
	}
	e.mem.SetCapacity(-1)
	return first(e.has("a", "b", "c"), e.drained(), run.end())
}
