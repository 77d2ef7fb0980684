package outboxsuite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/vfs"
	"github.com/evlog-go/evlog/outbox"
)

// The database is locked for longer than anybody waits: nothing is lost, and
// nothing comes twice.
func behaveLocked(e *env) error {
	e.db.SetMaxOpenConns(8)
	run := e.start(e.box, e.openLog())
	if err := first(e.put(e.box, "a"), e.has("a")); err != nil {
		return err
	}
	for i := range 3 {
		release := e.lockFor(time.Duration(100+150*i) * time.Millisecond)
		if err := e.put(e.box, fmt.Sprint(i)); err != nil {
			return err
		}
		release()
	}
	return first(e.has("a", "0", "1", "2"), e.drained(), run.end())
}

// A relay that is cancelled, at any moment, leaves the database free at once,
// and the next one goes on where it was.
func behaveCancelled(e *env) error {
	log := e.openLog()
	other, err := e.open(0).Conn(e.ctx)
	if err != nil {
		return err
	}
	defer func() { _ = other.Close() }()
	n := 0
	var want []string
	for i := range 40 {
		run := e.start(e.box, log)
		var values []string
		for range 30 {
			values = append(values, fmt.Sprint(n))
			n++
		}
		want = append(want, values...)
		if err := e.put(e.box, values...); err != nil {
			return err
		}
		time.Sleep(time.Duration(i%10) * 300 * time.Microsecond)
		run.stop()
		start := time.Now()
		for {
			_, err := other.ExecContext(e.ctx, `BEGIN IMMEDIATE`)
			if err == nil {
				break
			}
			if time.Since(start) > e.patience {
				return wrongf("the database is still locked: %v", err)
			}
		}
		if d := time.Since(start); d > 100*time.Millisecond {
			e.t.Logf("the database was locked for %v", d)
		}
		if _, err := other.ExecContext(e.ctx, `ROLLBACK`); err != nil {
			return err
		}
		if err := run.end(); err != nil {
			return err
		}
	}
	run := e.start(e.box, log)
	return first(e.has(want...), e.drained(), run.end())
}

// Where a transaction takes long, a relay that is cancelled leaves the last batch
// to whoever comes next: the database is to be free.
func behaveCancelledSlow(e *env) error {
	relayed := make(chan bool, 1)
	box := e.openBox(e.db, &outbox.Options{Clock: &slowClock{testClock: newTestClock()}, OnEvent: func(ev outbox.Event) {
		if ev.Kind == outbox.EventRelayed {
			relayed <- true
		}
	}})
	log, err := e.tryLog(box, e.dir)
	if err != nil {
		return err
	}
	if err := e.put(box, "a"); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(e.ctx)
	done := make(chan error, 1)
	go func() { done <- box.Run(ctx, log) }()
	<-relayed
	stop()
	if err := is(<-done, context.Canceled); err != nil {
		return err
	}
	s, err := outbox.ReadStatus(e.ctx, e.db)
	if err != nil || s.IntentRows != 1 {
		return wrongf("another transaction after the last one took long: %+v, %v", s, err)
	}
	run := e.start(box, log) // on the same log: the start settles it
	return first(e.put(box, "b"), e.has("a", "b"), e.drained(), run.end())
}

// The log fails again and again, and is opened again.
func behaveReopening(e *env) error {
	var opened atomic.Int64
	ctx, stop := context.WithCancel(e.ctx)
	defer stop()
	done := make(chan error, 1)
	go func() {
		done <- e.box.RunOpening(ctx, func(ctx context.Context) (*evlog.Log, error) {
			if opened.Add(1) == 3 {
				return nil, errors.New("not yet")
			}
			return evlog.Open(e.ctx, e.dir, &evlog.Options{OpenHook: e.box.Hook(), NoPreallocate: true})
		})
	}()
	var want []string
	for i := range 8 {
		switch i % 4 {
		case 1:
			e.fail.set(vfs.FailNth(vfs.OpWrite, "*.log", 1, syscall.EIO))
		case 2:
			e.fail.set(vfs.FailNth(vfs.OpSyncData, "*.log", 1, syscall.EIO))
		case 3:
			e.fail.set(vfs.FailNth(vfs.OpWrite, "*.log", 1, &vfs.ShortWrite{N: 40, Err: syscall.EIO}))
		}
		values := []string{fmt.Sprint(i, "a"), fmt.Sprint(i, "b")}
		want = append(want, values...)
		if err := first(e.put(e.box, values...), e.has(want...)); err != nil {
			return fmt.Errorf("round %d: %w", i, err)
		}
	}
	if opened.Load() < 5 {
		return wrongf("opened %d times", opened.Load())
	}
	if err := e.drained(); err != nil {
		return err
	}
	stop()
	return first(is(<-done, context.Canceled), is2(e.tryLog(e.box, e.dir)))
}

func is2(_ *evlog.Log, err error) error { return err }

// The user deletes rows that are about to be appended, and changes others.
func behaveRowsDeleted(e *env) error {
	if err := e.interrupted("a", "b", "c"); err != nil {
		return err
	}
	if _, err := e.db.Exec(`DELETE FROM evlog_outbox WHERE value = CAST('b' AS BLOB)`); err != nil {
		return err
	}
	run := e.start(e.box, e.openLog())
	return first(e.has("before", "a", "c"), e.drained(), run.end())
}

// A panic in Encode is its row's error, and so is an error without a text: the
// rows behind it are relayed.
func behavePanic(e *env) error {
	box := e.openBox(e.db, &outbox.Options{Encode: func(r outbox.Row) (evlog.Record, error) {
		switch string(r.Record.Value) {
		case "a":
			panic("ouch")
		case "b":
			return r.Record, silent{}
		}
		return r.Record, nil
	}})
	log, err := e.tryLog(box, e.dir)
	if err != nil {
		return err
	}
	run := e.start(box, log)
	if err := first(e.put(box, "a", "b", "c"), e.has("c"), run.end()); err != nil {
		return err
	}
	rows, err := outbox.Parked(e.ctx, e.db)
	if err != nil || len(rows) != 2 || rows[0].Reason != "panic in Encode: ouch" || rows[1].Reason == "" {
		return wrongf("parked: %+v, %v", rows, err)
	}
	return nil
}

type silent struct{}

func (silent) Error() string { return "" }

// A panic while an intent is open: nobody can append until the log was opened
// again, with the hook.
func behavePanicAtGate(e *env) error {
	clock := &panickingClock{testClock: newTestClock()}
	box := e.openBox(e.db, &outbox.Options{Clock: clock})
	log, err := e.tryLog(box, e.dir)
	if err != nil {
		return err
	}
	armed := e.afterIntent(func() error {
		clock.armed = true
		return nil
	})
	if err := e.put(box, "a"); err != nil {
		return err
	}
	panicked := func() (p any) {
		defer func() { p = recover() }()
		return box.Run(e.ctx, log)
	}()
	if panicked != "ouch" {
		return wrongf("panicked with %v", panicked)
	}
	_, err = log.Append(e.ctx, evlog.Record{})
	if err := first(<-armed, is(err, evlog.ErrPoisoned)); err != nil {
		return err
	}
	clock.armed = false
	e.fail.clear()
	_ = log.Close()
	if log, err = e.tryLog(box, e.dir); err != nil {
		return err
	}
	if err := e.free(); err != nil {
		return err
	}
	run := e.start(box, log)
	return first(e.has("a"), e.drained(), run.end())
}

// A transaction has the database's lock, waits for the gate to append, and the
// relay at the gate waits for the lock, to resolve an intent. The relay gives up:
// it poisons the log, and the next opening resolves the intent.
func behaveGivesUp(e *env) error {
	clock := newTestClock()
	box := e.openBox(e.db, &outbox.Options{Clock: clock})
	log, err := e.tryLog(box, e.dir)
	if err != nil {
		return err
	}
	lock, err := e.open(5000).Conn(e.ctx)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	var once sync.Once
	locked := make(chan error, 1)
	e.fail.set(func(op vfs.Op) error {
		if op.Kind != vfs.OpWrite || !strings.HasSuffix(op.Name, ".log") {
			return nil
		}
		once.Do(func() { // right after the intent
			_, err := lock.ExecContext(context.WithoutCancel(e.ctx), `BEGIN IMMEDIATE`)
			locked <- err
		})
		return syscall.ENOSPC
	})
	run := e.start(box, log)
	if err := first(e.put(box, "a"), <-locked); err != nil {
		return err
	}
	e.fail.clear()
	short, cancel := context.WithTimeout(e.ctx, 100*time.Millisecond)
	defer cancel()
	_, err = log.Append(short, evlog.Record{Value: []byte("beside")})
	if err := is(err, context.DeadlineExceeded); err != nil || log.Stats().GateHolder != outbox.HookName {
		return wrongf("somebody appends while an intent is open: %v, %+v", err, log.Stats())
	}
	appended := make(chan error, 1)
	go func() {
		_, err := log.Append(e.ctx, evlog.Record{Value: []byte("beside")})
		appended <- err
	}()
	for len(run.done) == 0 && len(appended) == 0 { // since it first found the lock
		clock.skip(time.Minute)
		time.Sleep(time.Millisecond)
	}
	err = <-run.done
	run.done <- err
	if err := first(is(err, evlog.ErrPoisoned), is(<-appended, evlog.ErrPoisoned)); err != nil {
		return err
	}
	_ = log.Close()
	if _, err := lock.ExecContext(e.ctx, `ROLLBACK`); err != nil {
		return err
	}
	if log, err = e.tryLog(box, e.dir); err != nil {
		return err
	}
	run = e.start(box, log)
	return first(e.has("a"), e.drained(), run.end())
}

// The relay's goroutine ends while it waits for the sync of a batch, which then
// fails: its rows stay, and the next run settles what is open on the same log.
func behaveEndsInWait(e *env) error {
	armed := false
	box := e.openBox(e.db, nil)
	log, err := evlog.Open(e.ctx, e.dir, &evlog.Options{
		OpenHook: box.Hook(), NoPreallocate: true, OnEvent: func(ev evlog.Event) {
			if armed && ev.Kind == evlog.EventPoisoned {
				runtime.Goexit()
			}
		},
	})
	if err != nil {
		return err
	}
	if err := e.put(box, "a", "b"); err != nil {
		return err
	}
	armed = true
	e.fail.set(vfs.FailNth(vfs.OpSyncData, "*.log", 1, syscall.EIO))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = box.Run(e.ctx, log)
	}()
	<-done
	armed = false
	e.fail.clear()
	s, err := outbox.ReadStatus(e.ctx, e.db)
	if err != nil || s.Queued != 2 || s.IntentRows != 2 {
		return wrongf("rows were deleted that are not durable: %+v, %v", s, err)
	}
	_ = log.Close()
	if log, err = e.tryLog(box, e.dir); err != nil {
		return err
	}
	run := e.start(box, log)
	return first(e.has("a", "b"), e.drained(), run.end())
}

// The disk has room for a part of a batch.
func behaveLittleRoom(e *env) error {
	log := e.openLog()
	var want []string
	for i := range 64 {
		want = append(want, fmt.Sprintf("%02d%s", i, strings.Repeat("x", 1000)))
	}
	if err := e.put(e.box, want...); err != nil {
		return err
	}
	e.mem.SetCapacity(e.mem.Used() + 30_000)
	run := e.start(e.box, log)
	if !e.eventually(func() bool {
		got, err := e.values(e.dir)
		return err == nil && len(got) > 20
	}) {
		return wrongf("nothing is relayed into the room that there is: %+v", e.box.Stats())
	}
	e.mem.SetCapacity(-1)
	if err := first(e.has(want...), e.drained(), run.end()); err != nil {
		return err
	}
	if err := e.box.Stats().LastErr; err != nil {
		return wrongf("LastErr is still %v", err)
	}
	return nil
}

// The file of the database is deleted, and made anew, under a relay.
func behaveDatabaseGone(e *env) error {
	if runtime.GOOS == "windows" {
		return nil // no file that is open can be deleted there
	}
	run := e.start(e.box, e.openLog())
	if err := first(e.put(e.box, "a"), e.has("a"), e.drained()); err != nil {
		return err
	}
	for _, end := range []string{"-wal", "-shm", ""} {
		if err := os.Remove(e.path + end); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	e.openBox(e.open(5000), nil)
	err := <-run.done
	run.done <- err
	return is(err, outbox.ErrDatabaseGone)
}
