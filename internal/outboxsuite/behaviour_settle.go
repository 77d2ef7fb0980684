package outboxsuite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/vfs"
	"github.com/evlog-go/evlog/outbox"
)

// afterIntent has the next append of a batch fail, for want of room, and calls f
// just before: the intent is committed then, and the relay has to settle it.
func (e *env) afterIntent(f func() error) (failed <-chan error) {
	done := make(chan error, 1)
	var once sync.Once
	e.fail.set(func(op vfs.Op) error {
		if op.Kind != vfs.OpWrite || !strings.HasSuffix(op.Name, ".log") {
			return nil
		}
		err := error(nil)
		once.Do(func() {
			done <- f()
			err = syscall.ENOSPC
		})
		return err
	})
	return done
}

// damage is what happens to a database while an intent is to be settled.
type damage struct {
	name string
	do   func(e *env) error
	want error // what opening the log says afterwards; nil: nothing, once it is mended
	text string
	mend string
	// settled: the log is not poisoned.
	settled bool
}

func execute(query string) func(e *env) error {
	return func(e *env) error {
		_, err := e.db.Exec(query)
		return err
	}
}

// refuseSettling has SQLite refuse to close the intent, with a text.
func refuseSettling(text string) string {
	return `CREATE TRIGGER refuse BEFORE UPDATE ON evlog_outbox_relay WHEN new.n = 0 BEGIN SELECT RAISE(FAIL, '` + text + `'); END`
}

const settleAgain = `DROP TRIGGER refuse`

var damages = []damage{
	{name: "row_deleted", do: execute(`DELETE FROM evlog_outbox_relay`), want: outbox.ErrNoTables, text: "has no row"},
	{name: "relay_dropped", do: execute(`DROP TABLE evlog_outbox_relay`), want: outbox.ErrNoTables, text: "evlog_outbox_relay is missing"},
	// The intent can be closed, since nothing of the batch is in the log; then the
	// relay ends.
	{name: "outbox_dropped", do: execute(`DROP TABLE evlog_outbox`), want: outbox.ErrNoTables, text: "no such table", settled: true},
	{name: "intent_damaged", do: execute(`UPDATE evlog_outbox_relay SET ids = '1:x'`), text: "intent in evlog_outbox_relay is damaged"},
	{name: "file_gone", do: removeDatabase, want: outbox.ErrDatabaseGone},
	// SQLite may say that it cannot open a file, as it does on a full disk.
	{name: "directory_gone", do: renameDirectory, want: outbox.ErrDatabaseGone},
	// An error that nobody knows may pass, but not for ever.
	{name: "refused", do: execute(refuseSettling("not today")), mend: settleAgain},
}

func removeDatabase(e *env) error {
	for _, end := range []string{"-wal", "-shm", "-journal", ""} {
		if err := os.Remove(e.path + end); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	return nil
}

func renameDirectory(e *env) error {
	dir := filepath.Dir(e.path)
	return os.Rename(dir, dir+".old")
}

// The database fails for good while the relay holds the gate: it poisons the log,
// so that others do not wait for ever, and the next opening tells, or settles it.
func behaveDamaged(with *env) error {
	for _, d := range damages {
		if strings.HasSuffix(d.name, "_gone") && runtime.GOOS == "windows" {
			continue // no file that is open can be deleted or moved there
		}
		e := with.beside(d.name)
		if err := e.damaged(d); err != nil {
			return fmt.Errorf("%s: %w", d.name, err)
		}
	}
	return nil
}

// beside is the same with a database, in a directory of its own, and a log of its
// own.
func (e *env) beside(name string) *env {
	c := *e
	dir := e.path + "." + name
	_ = os.Mkdir(dir, 0o700) // without it, the database cannot be opened
	c.path, c.dir = filepath.Join(dir, "app.sqlite"), "/"+name
	c.db = c.open(5000)
	c.box = c.openBox(c.db, nil)
	return &c
}

func (e *env) damaged(d damage) error {
	clock := newTestClock()
	opts := outbox.Options{Clock: clock}
	if d.mend == "" {
		opts.Clock = stoppedClock{clock} // what lasts is not waited for
	}
	box := e.openBox(e.db, &opts)
	if err := e.put(box, "a"); err != nil {
		return err
	}
	damaged := e.afterIntent(func() error { return d.do(e) })
	defer e.fail.clear()
	opened := 0
	ctx, stop := context.WithCancel(e.ctx)
	defer stop()
	done := make(chan error, 1)
	go func() {
		done <- box.RunOpening(ctx, func(context.Context) (l *evlog.Log, err error) {
			if opened++; opened == 2 && d.mend != "" {
				err = execute(d.mend)(e)
			}
			if err == nil {
				l, err = evlog.Open(e.ctx, e.dir, &evlog.Options{OpenHook: box.Hook(), NoPreallocate: true})
			}
			return l, err
		})
	}()
	if err := <-damaged; err != nil {
		return err
	}
	if d.mend != "" {
		stopSkipping := clock.run()
		err := e.has("a")
		stopSkipping()
		stop()
		err = first(err, is(<-done, context.Canceled))
		if err == nil && opened != 2 {
			err = wrongf("opened %d times", opened)
		}
		return err
	}
	select {
	case err := <-done:
		if opened == 1 != d.settled || d.want != nil && !errors.Is(err, d.want) || err == nil || !strings.Contains(err.Error(), d.text) {
			return wrongf("opened %d times, %v", opened, err)
		}
	case <-time.After(e.patience):
		return wrongf("the relay goes on: %+v", box.Stats())
	}
	return nil
}

// run lets the clock go fast, until it is stopped.
func (c *testClock) run() (stop func()) {
	quit, done := make(chan bool), make(chan bool)
	go func() {
		defer close(done)
		for {
			select {
			case <-quit:
				return
			case <-time.After(time.Millisecond):
				c.skip(10 * time.Second)
			}
		}
	}()
	return func() { close(quit); <-done }
}

// A full disk gets room again: the relay does not give up, until it is told to
// stop. It tells what happened when it holds nothing any more, and counts at once.
func behaveFullDatabase(e *env) error {
	clock := newTestClock()
	appended := make(chan error, 100)
	var log *evlog.Log
	var armed atomic.Bool // before that the database may be locked at times
	box := e.openBox(e.db, &outbox.Options{Clock: clock, OnEvent: func(ev outbox.Event) {
		if armed.Load() && (ev.Kind == outbox.EventRetry || ev.Kind == outbox.EventResolved) {
			ctx, cancel := context.WithTimeout(e.ctx, e.patience)
			defer cancel()
			_, err := log.Append(ctx, evlog.Record{Value: []byte(ev.Kind.String())})
			appended <- err
		}
	}})
	log, err := e.tryLog(box, e.dir)
	if err != nil {
		return err
	}
	full := execute(refuseSettling("database or disk is full"))
	damaged := e.afterIntent(func() error {
		armed.Store(true)
		return full(e)
	})
	run := e.start(box, log)
	stopSkipping := clock.run()
	defer func() { stopSkipping() }()
	if err := first(e.put(box, "a"), <-damaged); err != nil {
		return err
	}
	tried := box.Stats().Retries
	if !e.eventually(func() bool { return box.Stats().Retries > tried+3 }) {
		return wrongf("it is not tried again, or not counted: %+v", box.Stats())
	}
	if len(appended) > 0 || log.Stats().GateHolder != outbox.HookName {
		return wrongf("the gate is free: %+v", log.Stats())
	}
	if err := execute(settleAgain)(e); err != nil {
		return err
	}
	if err := first(<-appended, <-appended, e.drained()); err != nil {
		return err
	}
	got, err := e.values(e.dir)
	if err != nil || got[0] != "retry" || got[1] != "resolved" || !slices.Contains(got, "a") {
		return wrongf("the log has %q, %v", got, err)
	}
	// Once more, and told to stop.
	damaged = e.afterIntent(func() error { return full(e) })
	if err := first(e.put(box, "b"), <-damaged); err != nil {
		return err
	}
	run.stop()
	err = <-run.done
	run.done <- err
	e.fail.clear()
	return is(err, evlog.ErrPoisoned)
}

// Connections that are of no use any more are replaced while an intent is
// settled, and the new one prepares its statements as the old one did.
func behaveBroken(with *env) error {
	for _, refused := range []int64{0, 1, 3} {
		if err := with.beside(fmt.Sprint("refused", refused)).brokenOnce(refused); err != nil {
			return fmt.Errorf("%d connections refused: %w", refused, err)
		}
	}
	if err := with.beside("for_good").brokenForGood(""); err != nil {
		return fmt.Errorf("for good: %w", err)
	}
	if with.m.Journal == "WAL" {
		return nil // it is the file's, and does not differ between connections
	}
	return with.beside("unsafe").brokenForGood(`PRAGMA journal_mode = MEMORY`)
}

func (e *env) brokenOnce(refused int64) error {
	b := newBreaker(e)
	box := e.openBox(b.db, &outbox.Options{Clock: stoppedClock{newTestClock()}}) // it does not give up
	log, err := e.tryLog(box, e.dir)
	if err != nil {
		return err
	}
	var prepared int64
	damaged := e.afterIntent(func() error {
		b.breakAll()
		b.refuse.Store(refused)
		prepared = b.prepared.Load()
		return nil
	})
	run := e.start(box, log)
	if err := first(e.put(box, "a"), <-damaged, e.has("a"), e.drained(), run.end()); err != nil {
		return err
	}
	if b.prepared.Load() == prepared {
		return wrongf("nothing was prepared on the new connection")
	}
	return nil
}

// brokenForGood: no connection can be had any more, or only ones that are set up
// by the statement init, which is not safe.
func (e *env) brokenForGood(init string) error {
	b := newBreaker(e)
	clock := newTestClock()
	box := e.openBox(b.db, &outbox.Options{Clock: clock})
	log, err := e.tryLog(box, e.dir)
	if err != nil {
		return err
	}
	damaged := e.afterIntent(func() error {
		b.breakAll()
		b.init.Store(init)
		if init == "" {
			b.refuse.Store(1 << 60)
		}
		return nil
	})
	run := e.start(box, log)
	if err := first(e.put(box, "a"), <-damaged); err != nil {
		return err
	}
	stopSkipping := func() {}
	if init == "" {
		stopSkipping = clock.run()
	}
	err = e.within("giving up", func() error {
		err := <-run.done
		run.done <- err
		return err
	})
	stopSkipping()
	if err := is(err, evlog.ErrPoisoned); err != nil {
		return err
	}
	if init != "" {
		return is(err, outbox.ErrUnsafe)
	}
	// Afterwards the next opening settles it.
	b.refuse.Store(0)
	_ = log.Close()
	if log, err = e.tryLog(box, e.dir); err != nil {
		return err
	}
	run = e.start(box, log)
	return first(e.has("a"), e.drained(), run.end())
}
