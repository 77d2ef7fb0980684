package outboxsuite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/format"
	"github.com/evlog-go/evlog/outbox"
)

// A table or an index that somebody has dropped is told by its name, by everything
// that reads, and Open makes it anew.
func behaveDroppedTables(e *env) error {
	for _, o := range [][2]string{
		{"TABLE", "evlog_outbox"},
		{"INDEX", "evlog_outbox_dedupe"},
		{"TABLE", "evlog_outbox_kept"},
		{"INDEX", "evlog_outbox_kept_dedupe"},
		{"INDEX", "evlog_outbox_kept_relayed"},
	} {
		kind, name := o[0], o[1]
		if _, err := e.db.Exec(`DROP ` + kind + ` ` + name); err != nil {
			return err
		}
		_, status := outbox.ReadStatus(e.ctx, e.db)
		_, hook := e.tryLog(e.box, e.dir)
		for what, err := range map[string]error{"status": status, "hook": hook, "requeue": e.box.Requeue(e.ctx, 1)} {
			if err := is(err, outbox.ErrNoTables); err != nil {
				return fmt.Errorf("%s without %s: %w", what, name, err)
			}
			if !strings.Contains(err.Error(), name+" is missing") {
				return wrongf("%s without %s: %v", what, name, err)
			}
		}
		box := e.openBox(e.db, &outbox.Options{KeepFor: time.Hour})
		log, err := e.tryLog(box, e.dir)
		if err != nil {
			return err
		}
		run := e.start(box, log)
		if err := first(e.once(box, name), box.Wait(e.ctx), run.end(), log.Close()); err != nil {
			return err
		}
	}
	return e.has("evlog_outbox", "evlog_outbox_dedupe", "evlog_outbox_kept", "evlog_outbox_kept_dedupe", "evlog_outbox_kept_relayed")
}

// once puts a value, with itself as the dedupe key.
func (e *env) once(box *outbox.Box, value string) error {
	return box.InTx(e.ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, put, err := box.PutOnce(ctx, tx, value, evlog.Record{Value: []byte(value)})
		if err == nil && !put {
			err = wrongf("%s was put before", value)
		}
		return err
	})
}

// A row that is larger than the log takes is parked without being read: another
// language can put a gigabyte there.
func behaveUnread(e *env) error {
	const large = 16 << 20
	for _, query := range []string{
		`INSERT INTO evlog_outbox (value) VALUES (zeroblob(?1))`,
		`INSERT INTO evlog_outbox (key, value, dedupe) VALUES (zeroblob(?1), x'01', 'once')`,
		`INSERT INTO evlog_outbox (value) VALUES (CAST(?1 AS BLOB))`,
	} {
		if _, err := e.db.Exec(query, large); err != nil {
			return err
		}
	}
	parked := make(chan outbox.Event, 3)
	relayed := make(chan bool, 1)
	box := e.openBox(e.db, &outbox.Options{OnEvent: func(ev outbox.Event) {
		switch ev.Kind {
		case outbox.EventParked:
			parked <- ev
		case outbox.EventRelayed:
			relayed <- true
		}
	}})
	log, err := e.tryLog(box, e.dir)
	if err != nil {
		return err
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	run := e.start(box, log)
	err = e.within("relaying what is not too large", func() error { // nobody else allocates
		<-relayed
		return nil
	})
	if err != nil {
		return err
	}
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > large/2 {
		return wrongf("%d bytes were allocated", got)
	}
	if err := e.has(fmt.Sprint(large)); err != nil {
		return err
	}
	for _, dedupe := range []string{"", "once"} {
		ev := <-parked
		if len(ev.Row.Record.Key)+len(ev.Row.Record.Value) > 0 || is(ev.Err, evlog.ErrTooLarge) != nil || ev.Row.Parked != ev.Err.Error() ||
			ev.Row.Attempts != 1 || ev.Row.DedupeKey != dedupe {
			return wrongf("%+v: %v", ev.Row, ev.Err)
		}
	}
	rows, err := outbox.Parked(e.ctx, e.db)
	if err != nil || len(rows) != 2 || rows[0].ValueBytes != large || rows[1].KeyBytes != large ||
		!strings.Contains(rows[0].Reason, fmt.Sprintf("of %d bytes", large+format.HeaderSize)) || !strings.Contains(rows[1].Reason, fmt.Sprintf("key of %d bytes", large)) {
		return wrongf("%+v, %v", rows, err)
	}
	if err := run.end(); err != nil {
		return err
	}
	// Encode may make something smaller of it, and so gets it whole.
	box = e.openBox(e.db, &outbox.Options{Encode: func(r outbox.Row) (evlog.Record, error) {
		return evlog.Record{Value: fmt.Append(nil, len(r.Record.Key), len(r.Record.Value))}, nil
	}})
	_ = log.Close()
	if log, err = e.tryLog(box, e.dir); err != nil {
		return err
	}
	run = e.start(box, log)
	return first(box.Requeue(e.ctx, rows[0].ID, rows[1].ID), e.has(fmt.Sprint(large), fmt.Sprint(0, large), fmt.Sprint(large, 1)), run.end())
}

// OnEvent may use the database, of which the pool has one connection, and append
// to the log: the relay holds neither.
func behaveOnEvent(e *env) error {
	db := e.open(5000)
	db.SetMaxOpenConns(1)
	var log *evlog.Log
	told := make(chan error, 100)
	box := e.openBox(db, &outbox.Options{
		Encode: func(r outbox.Row) (evlog.Record, error) {
			if string(r.Record.Value) == "never" {
				return r.Record, errors.New("never")
			}
			return r.Record, nil
		},
		OnEvent: func(ev outbox.Event) {
			ctx, cancel := context.WithTimeout(e.ctx, e.patience)
			defer cancel()
			_, err := outbox.ReadStatus(ctx, db)
			if err == nil && log != nil { // not while it is opened
				_, err = log.Append(ctx, evlog.Record{Value: []byte(ev.Kind.String())})
			}
			told <- err
		},
	})
	if err := e.interrupted("a"); err != nil {
		return err
	}
	l, err := e.tryLog(box, e.dir) // resolved
	if err != nil {
		return err
	}
	log = l
	run := e.start(box, log) // relayed
	if err := first(<-told, <-told, e.has("before", "a", "relayed")); err != nil {
		return err
	}
	return first(e.put(box, "never"), <-told, e.has("before", "a", "relayed", "parked"), run.end())
}
