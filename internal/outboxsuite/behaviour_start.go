package outboxsuite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"syscall"
	"time"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/vfs"
	"github.com/evlog-go/evlog/outbox"
)

// A relay that is stopped while somebody has the database's lock leaves the
// intent of its last batch open. The next one, on the same log, finds that the
// rows are there.
func behaveLeftOpen(e *env) error {
	box, log, err := e.leaveOpen(nil, "a", "b")
	if err != nil {
		return err
	}
	run := e.start(box, log)
	return first(e.put(box, "c"), e.has("a", "b", "c"), e.drained(), run.end())
}

// leaveOpen leaves an open intent for values, which are in the log.
func (e *env) leaveOpen(clock evlog.Clock, values ...string) (*outbox.Box, *evlog.Log, error) {
	lock, err := e.open(5000).Conn(e.ctx)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = lock.Close() }()
	ctx, stop := context.WithCancel(e.ctx)
	defer stop()
	locked := make(chan error, 1)
	armed := true
	box := e.openBox(e.db, &outbox.Options{Clock: clock, OnEvent: func(ev outbox.Event) {
		if ev.Kind == outbox.EventRelayed && armed {
			armed = false
			_, err := lock.ExecContext(e.ctx, `BEGIN IMMEDIATE`)
			locked <- err
			stop()
		}
	}})
	log, err := e.tryLog(box, e.dir)
	if err == nil {
		err = first(e.put(box, values...), is(box.Run(ctx, log), context.Canceled), <-locked)
	}
	if err != nil {
		return nil, nil, err
	}
	s, err := outbox.ReadStatus(e.ctx, e.db)
	if err != nil || s.IntentRows != len(values) || s.Queued != len(values) {
		return nil, nil, wrongf("no intent was left: %+v, %v", s, err)
	}
	_, err = lock.ExecContext(e.ctx, `ROLLBACK`)
	return box, log, err
}

// RunOpening is told to stop while it waits to open the log again: then nothing is
// tried any more, and Stats does not say so.
func behaveReopeningCancelled(e *env) error {
	ctx, stop := context.WithCancel(e.ctx)
	defer stop()
	box := e.openBox(e.db, &outbox.Options{OnEvent: func(ev outbox.Event) {
		if ev.Kind == outbox.EventRetry && errors.Is(ev.Err, evlog.ErrPoisoned) {
			stop()
		}
	}})
	if err := e.put(box, "a"); err != nil {
		return err
	}
	e.fail.set(vfs.FailNth(vfs.OpWrite, "*.log", 1, syscall.EIO))
	defer e.fail.clear()
	err := box.RunOpening(ctx, func(context.Context) (*evlog.Log, error) {
		return evlog.Open(e.ctx, e.dir, &evlog.Options{OpenHook: box.Hook(), NoPreallocate: true})
	})
	s := box.Stats()
	if err := is(err, context.Canceled); err != nil || s.LastErr != nil || s.Retries == 0 {
		return wrongf("%v, %+v", err, s)
	}
	return nil
}

// Errors of opening again that would come again end RunOpening.
func behaveReopeningEnds(e *env) error {
	for i, lasting := range []error{
		&outbox.MismatchError{Err: outbox.ErrLogBehind}, evlog.ErrLocked, evlog.ErrVersion, evlog.ErrBadOptions,
		evlog.ErrHookRequired, outbox.ErrNoTables, outbox.ErrUnsafe, outbox.ErrDatabaseGone, outbox.ErrRelayRunning,
	} {
		opened := 0
		e.fail.set(vfs.FailNth(vfs.OpWrite, "*.log", 1, syscall.EIO))
		if err := e.put(e.box, fmt.Sprint(i)); err != nil {
			return err
		}
		err := e.within("an opening that cannot succeed", func() error {
			return e.box.RunOpening(e.ctx, func(ctx context.Context) (*evlog.Log, error) {
				if opened++; opened > 1 {
					return nil, fmt.Errorf("opening: %w", lasting)
				}
				return evlog.Open(e.ctx, e.dir, &evlog.Options{OpenHook: e.box.Hook(), NoPreallocate: true})
			})
		})
		e.fail.clear()
		if err := is(err, lasting); err != nil || opened != 2 {
			return wrongf("%v: opened %d times, %v", lasting, opened, err)
		}
	}
	return nil
}

// The log is closed when RunOpening returns, and when it panics.
func behaveReopeningCloses(e *env) error {
	armed := false
	box := e.openBox(e.db, &outbox.Options{OnEvent: func(outbox.Event) {
		if armed {
			panic("ouch")
		}
	}})
	var log *evlog.Log
	open := func(context.Context) (l *evlog.Log, err error) {
		log, err = evlog.Open(e.ctx, e.dir, &evlog.Options{OpenHook: box.Hook(), NoPreallocate: true})
		return log, err
	}
	closed := func() error {
		_, err := log.Append(e.ctx, evlog.Record{})
		return is(err, evlog.ErrClosed)
	}
	ended, cancel := context.WithTimeout(e.ctx, 10*time.Millisecond)
	defer cancel()
	if err := first(is(box.RunOpening(ended, open), context.DeadlineExceeded), closed()); err != nil {
		return err
	}
	if err := e.put(box, "a"); err != nil {
		return err
	}
	armed = true
	panicked := func() (p any) {
		defer func() { p = recover() }()
		return box.RunOpening(e.ctx, open)
	}()
	armed = false
	if panicked != "ouch" {
		return wrongf("panicked with %v", panicked)
	}
	if err := closed(); err != nil {
		return err
	}
	// It can be opened again at once, by RunOpening too.
	ctx, stop := context.WithCancel(e.ctx)
	defer stop()
	done := make(chan error, 1)
	go func() { done <- box.RunOpening(ctx, open) }()
	err := first(e.put(box, "b"), box.Wait(e.ctx), e.has("a", "b"))
	stop()
	return first(err, is(<-done, context.Canceled))
}

// A connection of the pool with a journal that a crash leaves in part is found,
// though the one that Open has looked at was another.
func behaveJournal(e *env) error {
	e.db.SetMaxOpenConns(1)
	var mode string
	if err := e.db.QueryRow(`PRAGMA journal_mode = MEMORY`).Scan(&mode); err != nil || mode != "memory" {
		return wrongf("the journal is %s, %v", mode, err)
	}
	_, err := e.tryLog(e.box, e.dir)
	if err := is(err, outbox.ErrUnsafe); err != nil {
		return err
	}
	set := func(mode string) error {
		_, err := e.db.Exec(`PRAGMA journal_mode = ` + mode)
		return err
	}
	if err := set(e.m.Journal); err != nil {
		return err
	}
	log := e.openLog()
	if err := set("MEMORY"); err != nil {
		return err
	}
	return first(is(e.box.Run(e.ctx, log), outbox.ErrUnsafe), set(e.m.Journal))
}

// Settings with which a power failure can damage the database are logged.
func behaveWarns(e *env) error {
	for want, m := range map[string]Mode{
		"synchronous=NORMAL and a rollback journal": {Journal: "DELETE", Sync: "NORMAL"},
		"synchronous=OFF": {Journal: "WAL", Sync: "OFF"},
		"":                {Journal: "WAL", Sync: "NORMAL"},
	} {
		db, err := sql.Open(e.driver, m.dsn(e.path+m.Journal+m.Sync, 5000))
		if err != nil {
			return err
		}
		var text strings.Builder
		_, err = outbox.Open(e.ctx, db, &outbox.Options{Logger: slog.New(slog.NewTextHandler(&text, nil))})
		if err := first(err, db.Close()); err != nil {
			return err
		}
		if !strings.Contains(text.String(), want) || want == "" && text.Len() > 0 {
			return wrongf("%s: %q", m, text.String())
		}
	}
	return nil
}

// Somebody has deleted the relay's row, and with it what is known of an open
// intent: that is told, everywhere. Open makes another row, and then the policy
// decides.
func behaveRelayRow(e *env) error {
	if err := e.interrupted("a", "b"); err != nil {
		return err
	}
	if _, err := e.db.Exec(`DELETE FROM evlog_outbox_relay`); err != nil {
		return err
	}
	_, status := outbox.ReadStatus(e.ctx, e.db)
	_, hook := e.tryLog(e.box, e.dir)
	if err := first(is(status, outbox.ErrNoTables), is(hook, outbox.ErrNoTables)); err != nil {
		return err
	}
	if errors.Is(hook, sql.ErrNoRows) {
		return wrongf("bare: %v", hook)
	}
	fresh := e.openBox(e.db, nil)
	_, err := e.tryLog(fresh, e.dir)
	if err := is(err, outbox.ErrDatabaseChanged); err != nil {
		return err
	}
	box := e.openBox(e.db, &outbox.Options{Policy: outbox.ResendIntent})
	log, err := e.tryLog(box, e.dir)
	if err != nil {
		return err
	}
	run := e.start(box, log)
	if err := first(e.has("before", "a", "b"), e.drained()); err != nil {
		return err
	}
	// Under a relay that runs.
	if _, err := e.db.Exec(`DELETE FROM evlog_outbox_relay`); err != nil {
		return err
	}
	if err := e.put(box, "c"); err != nil {
		return err
	}
	err = <-run.done
	run.done <- err
	return first(is(err, outbox.ErrNoTables), isNot(err, outbox.ErrFenced))
}
