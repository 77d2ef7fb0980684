// Package outboxsuite tests package outbox on an SQLite driver. The same suite
// runs in the tests of outbox on modernc.org/sqlite, and in the module
// internal/drivers on the drivers that this module does not depend on.
//
// Its heart is a table of rules (see rules.go): each test passes while the rule
// is kept, and is shown to fail when the rule is switched off in outbox. The
// rules about crashes are tested on a simulated disk, in internal/drivers/ncruces.
package outboxsuite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/outboxrule"
	"github.com/evlog-go/evlog/internal/vfs"
	"github.com/evlog-go/evlog/outbox"
)

// Mode is how a database keeps its transactions.
type Mode struct{ Name, Journal, Sync string }

// Modes are those in which exactly once is promised.
var Modes = []Mode{
	{"wal_full", "WAL", "FULL"},
	{"wal_normal", "WAL", "NORMAL"},
	{"rollback", "DELETE", "FULL"},
}

// dsn is understood by every driver, because each ignores what it does not know.
func (m Mode) dsn(path string, busyMS int) string {
	return fmt.Sprintf("file:%s?_txlock=deferred"+
		"&_pragma=busy_timeout(%d)&_pragma=journal_mode(%s)&_pragma=synchronous(%s)"+
		"&_busy_timeout=%d&_journal_mode=%s&_synchronous=%s",
		filepath.ToSlash(path), busyMS, m.Journal, m.Sync, busyMS, m.Journal, m.Sync)
}

// Run runs all of the suite on the driver that is registered under this name.
func Run(t *testing.T, driver string) {
	for _, m := range Modes {
		t.Run(m.Name, func(t *testing.T) {
			t.Run("rules", func(t *testing.T) { runRules(t, driver, m) })
			t.Run("behaviour", func(t *testing.T) { runBehaviour(t, driver, m) })
			t.Run("kill", func(t *testing.T) { runKill(t, driver, m) })
		})
	}
}

const childEnv = "EVLOG_OUTBOXSUITE_CHILD"

// Child is to be called by TestMain first: the suite starts the test binary once
// more, to kill it.
func Child(driver string) {
	args := os.Getenv(childEnv)
	if args == "" {
		return
	}
	if err := killChild(driver, strings.Split(args, "\n")); err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// env is a database with an outbox, and a directory in memory for a log.
type env struct {
	t      testing.TB
	ctx    context.Context // with the memory in it, and the rules that are off
	driver string
	m      Mode
	path   string
	dir    string // the log
	mem    *vfs.Mem
	fail   *failing
	db     *sql.DB
	box    *outbox.Box
	log    *evlog.Log
	events chan outbox.Event
	// patience is how long the test waits for what has to come. With a rule
	// switched off that may be never.
	patience time.Duration
}

const logDir = "/log"

func newEnv(t testing.TB, driver string, m Mode, off outboxrule.Rule) *env {
	t.Helper()
	e := &env{
		t: t, driver: driver, m: m, path: filepath.Join(t.TempDir(), "app.db"), dir: logDir, mem: vfs.NewMem(),
		fail: &failing{}, events: make(chan outbox.Event, 10_000), patience: 30 * time.Second,
	}
	e.ctx = outboxrule.Without(vfs.NewContext(t.Context(), vfs.Inject(e.mem, e.fail.hook)), off)
	e.db = e.open(5000)
	_, err := e.db.Exec(`CREATE TABLE thing (n INTEGER PRIMARY KEY, x) STRICT`)
	if err != nil {
		_, err = e.db.Exec(`CREATE TABLE thing (n INTEGER PRIMARY KEY, x TEXT) STRICT`)
	}
	require.NoError(t, err)
	e.box = e.openBox(e.db, nil)
	return e
}

// open opens the database once more, as another process would.
func (e *env) open(busyMS int) *sql.DB {
	e.t.Helper()
	db, err := sql.Open(e.driver, e.m.dsn(e.path, busyMS))
	require.NoError(e.t, err)
	e.t.Cleanup(func() { _ = db.Close() })
	return db
}

func (e *env) openBox(db *sql.DB, opts *outbox.Options) *outbox.Box {
	e.t.Helper()
	var o outbox.Options
	if opts != nil {
		o = *opts
	}
	if o.OnEvent == nil {
		o.OnEvent = func(ev outbox.Event) {
			select {
			case e.events <- ev:
			default:
			}
		}
	}
	box, err := outbox.Open(e.ctx, db, &o)
	require.NoError(e.t, err)
	return box
}

// tryLog opens the log with the box's hook.
func (e *env) tryLog(box *outbox.Box, dir string) (*evlog.Log, error) {
	l, err := evlog.Open(e.ctx, dir, &evlog.Options{OpenHook: box.Hook(), NoPreallocate: true, MaxRecordBytes: 1 << 20})
	if err == nil {
		e.t.Cleanup(func() { _ = l.Close() })
	}
	return l, err
}

func (e *env) openLog() *evlog.Log {
	e.t.Helper()
	l, err := e.tryLog(e.box, e.dir)
	require.NoError(e.t, err)
	e.log = l
	return l
}

// running is a relay.
type running struct {
	stop context.CancelFunc
	done chan error
}

func (e *env) start(box *outbox.Box, log *evlog.Log) *running {
	ctx, stop := context.WithCancel(e.ctx)
	r := &running{stop: stop, done: make(chan error, 1)}
	go func() { r.done <- box.Run(ctx, log) }()
	e.t.Cleanup(func() { _ = r.end() })
	return r
}

// end stops it and returns what Run returned; nil for the end of the context.
func (r *running) end() error {
	r.stop()
	err := <-r.done
	r.done <- err
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	return err
}

// put puts records with these values, in one transaction.
func (e *env) put(box *outbox.Box, values ...string) error {
	return box.InTx(e.ctx, func(ctx context.Context, tx *sql.Tx) error {
		for _, v := range values {
			if _, err := box.Put(ctx, tx, evlog.Record{Key: []byte("k"), Value: []byte(v)}); err != nil {
				return err
			}
		}
		return nil
	})
}

// values reads the log.
func (e *env) values(dir string) ([]string, error) {
	r, err := evlog.OpenReader(e.ctx, dir, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	first, _, err := r.Bounds(e.ctx)
	if err != nil {
		return nil, err
	}
	var all []string
	for rec, err := range r.Records(e.ctx, first) {
		if err != nil {
			return nil, err
		}
		all = append(all, string(rec.Value))
	}
	return all, nil
}

// has waits until the log has exactly these values.
func (e *env) has(want ...string) error {
	var got []string
	var err error
	if e.eventually(func() bool {
		got, err = e.values(e.dir)
		return err == nil && len(got) >= len(want)
	}) && strings.Join(got, " ") == strings.Join(want, " ") {
		return nil
	}
	return wrongf("the log has %q, not %q (%v)", got, want, err)
}

// drained waits until nothing is queued.
func (e *env) drained() error {
	var s outbox.Status
	var err error
	if e.eventually(func() bool {
		s, err = outbox.ReadStatus(e.ctx, e.db)
		return err == nil && s.Queued == 0 && s.IntentRows == 0
	}) {
		return nil
	}
	return wrongf("not drained: %+v, %v, %+v", s, err, e.box.Stats())
}

// unprepared is an error of what comes before a test: it does not show that the
// test notices anything.
type unprepared struct{ error }

// prepare does what comes before a test, with all the time that it takes.
func (e *env) prepare(f func() error) error {
	patience := e.patience
	e.patience = 30 * time.Second
	err := f()
	e.patience = patience
	if err != nil {
		err = unprepared{err}
	}
	return err
}

// runs waits until the relay of e.box runs.
func (e *env) runs() error {
	if !e.eventually(func() bool { return e.box.Stats().Running }) {
		return wrongf("it does not run")
	}
	return nil
}

// eventually waits for what has to come.
func (e *env) eventually(f func() bool) bool {
	for end := time.Now().Add(e.patience); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if f() {
			return true
		}
	}
	return f()
}

// within runs f, which must come back in time.
func (e *env) within(what string, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-time.After(2 * e.patience):
		return wrongf("%s takes too long", what)
	}
}

// lockFor has another connection hold the write lock for a while.
func (e *env) lockFor(d time.Duration) (release func()) {
	e.t.Helper()
	conn, err := e.open(5000).Conn(e.ctx)
	require.NoError(e.t, err)
	_, err = conn.ExecContext(e.ctx, `BEGIN IMMEDIATE`)
	require.NoError(e.t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		time.Sleep(d)
		_, _ = conn.ExecContext(context.WithoutCancel(e.ctx), `ROLLBACK`)
		_ = conn.Close()
	}()
	return func() { <-done }
}

// failing makes operations of the log's file system fail.
type failing struct{ hookFn atomicHook }

func (f *failing) set(h vfs.Hook)       { f.hookFn.Store(&h) }
func (f *failing) clear()               { f.hookFn.Store(nil) }
func (f *failing) hook(op vfs.Op) error { return f.hookFn.call(op) }

// wrong is what a check found, in words. Errors in it are only told.
type wrong string

func (w wrong) Error() string { return string(w) }

func wrongf(format string, args ...any) error { return wrong(fmt.Sprintf(format, args...)) }

// is tests an error by errors.Is.
func is(err, want error) error {
	if !errors.Is(err, want) {
		return wrongf("the error is %v, not %v", err, want)
	}
	return nil
}

// errOf is the error of a Put.
func errOf(_ []outbox.UID, err error) error { return err }

// first returns the first error.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
