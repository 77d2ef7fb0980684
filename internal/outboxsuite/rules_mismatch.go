package outboxsuite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/internal/vfs"
	"github.com/evlog-go/evlog/outbox"
)

// interrupted leaves an open intent for values behind: the append fails.
func (e *env) interrupted(values ...string) error {
	return e.prepare(func() error { return e.interrupt(values) })
}

func (e *env) interrupt(values []string) error {
	log := e.openLog()
	run := e.start(e.box, log)
	if err := e.runs(); err != nil {
		return err
	}
	if err := first(e.put(e.box, "before"), e.has("before"), e.drained()); err != nil {
		return err
	}
	e.fail.set(vfs.FailFrom(vfs.OpWrite, "*.log", 1, syscall.EIO))
	if err := e.put(e.box, values...); err != nil {
		return err
	}
	select {
	case err := <-run.done:
		run.done <- err
		if err := is(err, evlog.ErrPoisoned); err != nil {
			return err
		}
	case <-time.After(e.patience):
		return wrongf("the relay goes on with a poisoned log")
	}
	e.fail.clear()
	_ = log.Close()
	s, err := outbox.ReadStatus(e.ctx, e.db)
	if err == nil && (s.IntentRows != len(values) || s.IntentOffset != 1 || s.Queued != len(values)) {
		err = wrongf("no intent was left: %+v", s)
	}
	return err
}

// mismatch opens the log, which must fail with want, and then as each policy
// says; again is what is in the log at the end under ResendIntent.
func (e *env) mismatch(want error, resend, drop []string) error {
	_, err := e.tryLog(e.box, e.dir)
	if err := is(err, want); err != nil {
		return err
	}
	backup, err := os.ReadFile(e.path)
	wal, _ := os.ReadFile(e.path + "-wal")
	if err != nil {
		return err
	}
	image := e.mem.KillImage()
	resend, drop = slices.Clip(resend), slices.Clip(drop)
	for policy, values := range map[outbox.Policy][]string{outbox.ResendIntent: resend, outbox.DropIntent: drop} {
		c := *e
		c.path = e.path + fmt.Sprint(policy)
		err := os.WriteFile(c.path, backup, 0o600)
		if err == nil && len(wal) > 0 {
			err = os.WriteFile(c.path+"-wal", wal, 0o600)
		}
		if err != nil {
			return err
		}
		c.ctx = vfs.NewContext(e.ctx, image.KillImage())
		c.db = c.open(5000)
		c.box = c.openBox(c.db, &outbox.Options{Policy: policy})
		log, err := c.tryLog(c.box, c.dir)
		if err != nil {
			return err
		}
		// Opening alone makes them belong together, but for the outbox's id, which a
		// relay writes into the log.
		if err := log.Close(); err != nil {
			return err
		}
		again, err := c.tryLog(c.openBox(c.db, nil), c.dir)
		switch {
		case errors.Is(want, outbox.ErrDatabaseChanged):
			err = is(err, want)
		case err == nil:
			err = again.Close()
		}
		if err != nil {
			return fmt.Errorf("policy %d, opened only: %w", policy, err)
		}
		if log, err = c.tryLog(c.box, c.dir); err != nil {
			return err
		}
		run := c.start(c.box, log)
		if err := first(c.has(values...), c.put(c.box, "on"), c.has(append(values, "on")...), c.drained(), run.end(), log.Close()); err != nil {
			return fmt.Errorf("policy %d: %w", policy, err)
		}
		// Gone on once, they belong together again.
		if _, err := c.tryLog(c.openBox(c.db, nil), c.dir); err != nil {
			return fmt.Errorf("policy %d, afterwards: %w", policy, err)
		}
	}
	return nil
}

func checkLogChanged(e *env) error {
	if err := e.interrupted("a", "b"); err != nil {
		return err
	}
	e.dir = "/new"
	return e.mismatch(outbox.ErrLogChanged, []string{"a", "b"}, nil)
}

func checkLogBehind(e *env) error {
	log := e.openLog()
	run := e.start(e.box, log)
	if err := e.prepare(func() error { return first(e.put(e.box, "a"), e.has("a"), e.drained()) }); err != nil {
		return err
	}
	old, err := evtest.ReadFS(e.mem, e.dir)
	if err != nil {
		return err
	}
	if err := e.prepare(func() error {
		return first(e.put(e.box, "b"), e.has("a", "b"), e.drained(), run.end(), log.Close())
	}); err != nil {
		return err
	}
	if err := e.replaceLog(old); err != nil {
		return err
	}
	return e.mismatch(outbox.ErrLogBehind, []string{"a"}, []string{"a"})
}

// replaceLog puts other files in the log's place.
func (e *env) replaceLog(im evtest.Image) error {
	d, err := e.mem.OpenDir(e.dir)
	if err != nil {
		return err
	}
	names, err := d.Names()
	for _, name := range names {
		err = first(err, d.Remove(name))
	}
	return first(err, d.Close(), im.WriteFS(e.mem, e.dir))
}

// An older copy, to which somebody has appended.
func checkLogMismatch(e *env) error {
	if err := e.interrupted("a", "b"); err != nil {
		return err
	}
	if err := e.appendAs(func(l *evlog.Log) error {
		_, err := l.Append(e.ctx, evlog.Record{Value: []byte("other")})
		return err
	}); err != nil {
		return err
	}
	return e.mismatch(outbox.ErrLogMismatch, []string{"before", "other", "a", "b"}, []string{"before", "other"})
}

// appendAs writes to the log with a hook that does not look at the outbox.
func (e *env) appendAs(f func(l *evlog.Log) error) error {
	l, err := evlog.Open(e.ctx, e.dir, &evlog.Options{NoPreallocate: true, OpenHook: evlog.Hook{
		Name: outbox.HookName, Run: func(context.Context, evlog.HookState) error { return nil },
	}})
	if err != nil {
		return err
	}
	return first(f(l), l.Close())
}

func checkDatabaseBehind(e *env) error {
	log := e.openLog()
	run := e.start(e.box, log)
	if err := e.prepare(func() error {
		return first(e.put(e.box, "a"), e.has("a"), e.drained(), run.end(), log.Close())
	}); err != nil {
		return err
	}
	backup := e.path + ".backup"
	if _, err := e.db.Exec(`VACUUM INTO ?1`, backup); err != nil {
		return err
	}
	log = e.openLog()
	run = e.start(e.box, log)
	if err := e.prepare(func() error {
		return first(e.put(e.box, "b"), e.has("a", "b"), e.drained(), run.end(), log.Close())
	}); err != nil {
		return err
	}
	old := *e
	old.path = backup
	old.db = old.open(5000)
	old.box = old.openBox(old.db, nil)
	if err := old.mismatch(outbox.ErrDatabaseBehind, []string{"a", "b"}, []string{"a", "b"}); err != nil {
		return err
	}
	if err := checkDatabaseBehindWithIntent(e); err != nil {
		return err
	}
	fresh := *e
	fresh.path = e.path + ".new"
	fresh.db = fresh.open(5000)
	fresh.box = fresh.openBox(fresh.db, nil)
	return fresh.mismatch(outbox.ErrDatabaseChanged, []string{"a", "b"}, []string{"a", "b"})
}

// An older database with an open intent, where the log has records of others by
// now: the database is told, and the policy decides about the rows.
func checkDatabaseBehindWithIntent(with *env) error {
	e := *with
	e.path, e.dir = with.path+".intent", "/intent"
	e.db = e.open(5000)
	e.box = e.openBox(e.db, nil)
	if err := e.interrupted("a", "b"); err != nil {
		return err
	}
	backup := e.path + ".backup"
	if _, err := e.db.Exec(`VACUUM INTO ?1`, backup); err != nil {
		return err
	}
	if _, err := e.db.Exec(`DELETE FROM evlog_outbox`); err != nil {
		return err
	}
	log := e.openLog()
	if _, err := log.Append(e.ctx, evlog.Record{Value: []byte("x")}, evlog.Record{Value: []byte("y")}); err != nil {
		return err
	}
	run := e.start(e.box, log)
	if err := first(e.put(e.box, "z"), e.has("before", "x", "y", "z"), e.drained(), run.end(), log.Close()); err != nil {
		return err
	}
	old := e
	old.path = backup
	old.db = old.open(5000)
	old.box = old.openBox(old.db, nil)
	return old.mismatch(outbox.ErrDatabaseBehind, []string{"before", "x", "y", "z", "a", "b"}, []string{"before", "x", "y", "z"})
}

// Repair has left offsets without records: what should have stood there is
// relayed again.
func checkGaps(e *env) error {
	if err := e.interrupted("a", "b", "c"); err != nil {
		return err
	}
	var rows []evlog.Record
	rs, err := e.db.Query(`SELECT ts_ms, value FROM evlog_outbox ORDER BY id`)
	if err != nil {
		return err
	}
	for rs.Next() {
		var ms int64
		r := evlog.Record{Key: []byte("k")}
		if err := rs.Scan(&ms, &r.Value); err != nil {
			return err
		}
		r.Time = time.UnixMilli(ms)
		rows = append(rows, r)
	}
	if err := first(rs.Err(), rs.Close()); err != nil {
		return err
	}
	if err := e.appendAs(func(l *evlog.Log) error {
		rows[0].Offset, rows[2].Offset = 1, 3
		return l.AppendExact(e.ctx, rows[0], rows[2], evlog.Record{Offset: 9, Value: []byte("later")})
	}); err != nil {
		return err
	}
	// What opening would say if log.json had this gap.
	reader, err := evlog.OpenReader(e.ctx, e.dir, nil)
	if err != nil {
		return err
	}
	defer func() { _ = reader.Close() }()
	err = e.box.Hook().Run(e.ctx, evlog.HookState{
		LogID: reader.ID(), Next: 10, Reader: reader, Gaps: []evlog.OffsetRange{{From: 2, To: 3}},
	})
	if err != nil {
		return err
	}
	log := e.openLog()
	e.start(e.box, log)
	return first(e.has("before", "a", "c", "later", "b"), e.drained())
}

// Ids can be given out again. The rows under them are others.
func checkByUID(e *env) error {
	if err := e.replaced(`DELETE FROM evlog_outbox`, `DELETE FROM sqlite_sequence WHERE name = 'evlog_outbox'`); err != nil {
		return err
	}
	if err := e.put(e.box, "x", "y", "z"); err != nil {
		return err
	}
	return e.relays("x", "y", "z")
}

// Of two rows with ids that follow each other one is another row.
func checkByUIDOne(e *env) error {
	if err := e.replaced(`UPDATE evlog_outbox SET uid = randomblob(16), value = x'78' WHERE id = (SELECT max(id) FROM evlog_outbox)`); err != nil {
		return err
	}
	return e.relays("x")
}

// replaced appends the rows a and b of an intent, and runs queries that put others
// under their ids.
func (e *env) replaced(queries ...string) error {
	if err := e.interrupted("a", "b"); err != nil {
		return err
	}
	if err := e.appendAs(func(l *evlog.Log) error { // both of them, and more
		var ms [2]int64
		if err := e.db.QueryRow(`SELECT min(ts_ms), max(ts_ms) FROM evlog_outbox`).Scan(&ms[0], &ms[1]); err != nil {
			return err
		}
		_, err := l.Append(e.ctx,
			evlog.Record{Key: []byte("k"), Value: []byte("a"), Time: time.UnixMilli(ms[0])},
			evlog.Record{Key: []byte("k"), Value: []byte("b"), Time: time.UnixMilli(ms[1])})
		return err
	}); err != nil {
		return err
	}
	for _, query := range queries {
		if _, err := e.db.Exec(query); err != nil {
			return err
		}
	}
	return nil
}

// relays opens the log, and relays these rows behind what replaced has appended.
func (e *env) relays(values ...string) error {
	e.start(e.box, e.openLog())
	return first(e.has(append([]string{"before", "a", "b"}, values...)...), e.drained())
}
