package outboxsuite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/outbox"
)

// Rows are kept for a while after they were relayed, with their offsets.
func behaveKeep(e *env) error {
	clock := newTestClock()
	uids := map[string]outbox.UID{}
	var mu sync.Mutex // guards uids
	box := e.openBox(e.db, &outbox.Options{
		KeepFor: time.Hour, BatchRows: 2, Clock: clock,
		Encode: func(r outbox.Row) (evlog.Record, error) {
			mu.Lock()
			defer mu.Unlock()
			if old, ok := uids[string(r.Record.Value)]; ok && old != r.UID {
				return r.Record, fmt.Errorf("another uid")
			}
			uids[string(r.Record.Value)] = r.UID
			r.Record.Key = []byte(r.UID.String())
			return r.Record, nil
		},
	})
	log, err := e.tryLog(box, e.dir)
	if err != nil {
		return err
	}
	run := e.start(box, log)
	if err := first(e.put(box, "a", "b", "c"), e.has("a", "b", "c"), e.drained()); err != nil {
		return err
	}
	for rec, err := range log.Reader().Records(e.ctx, 0) {
		if err != nil {
			return err
		}
		uid := uids[string(rec.Value)]
		at, found, err := outbox.FindRelayed(e.ctx, e.db, uid)
		if err != nil || !found || at.Offset != rec.Offset || at.LogID != log.ID() || string(rec.Key) != uid.String() {
			return wrongf("record %v: kept as %+v, %v, %v", rec, at, found, err)
		}
	}
	clock.skip(2 * time.Hour)
	none := func() bool {
		s, err := outbox.ReadStatus(e.ctx, e.db)
		return err == nil && s.Kept == 0
	}
	if !e.eventually(none) {
		return wrongf("kept for ever")
	}
	// Without KeepFor what was kept before goes.
	if err := first(e.put(box, "d"), e.has("a", "b", "c", "d"), e.drained(), run.end(), log.Close()); err != nil {
		return err
	}
	if none() {
		return wrongf("not kept")
	}
	run = e.start(e.box, e.openLog())
	if !e.eventually(none) {
		return wrongf("kept for ever, without KeepFor")
	}
	return run.end()
}

// Rows that were kept long enough are deleted also by a relay that always has
// something to do, in pieces: twice the rows of a batch, and the bytes.
func behavePrune(with *env) error {
	for name, o := range map[string]outbox.Options{
		"rows":  {BatchRows: 2},
		"bytes": {BatchBytes: 2000},
	} {
		if err := with.beside(name).pruned(o); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func (e *env) pruned(o outbox.Options) error {
	const rows, most = 40, 4
	value := strings.Repeat("v", 1000)
	clock := newTestClock()
	o.KeepFor, o.Clock = time.Hour, clock
	// On the relay's goroutine, between two batches: how many rows are kept, and
	// another row, so that it never comes to rest.
	kept, skipped := 0, false
	var busy atomic.Bool
	pieces := make(chan error, 1)
	say := func(err error) {
		select {
		case pieces <- err:
		default:
		}
	}
	var box *outbox.Box
	o.OnEvent = func(ev outbox.Event) {
		if ev.Kind != outbox.EventRelayed || !busy.Load() {
			return
		}
		s, err := outbox.ReadStatus(e.ctx, e.db)
		switch {
		case err != nil:
			say(err)
		case skipped && s.Kept < kept-most:
			say(wrongf("%d rows were kept, and then %d", kept, s.Kept))
		case skipped && s.Kept < rows/2:
			say(nil)
		case !skipped && s.Kept > rows:
			clock.skip(2 * time.Hour)
			skipped = true
		}
		kept = s.Kept
		if err := e.put(box, value); err != nil {
			say(err)
		}
	}
	box = e.openBox(e.db, &o)
	log, err := e.tryLog(box, e.dir)
	if err != nil {
		return err
	}
	values := make([]string, rows)
	for i := range values {
		values[i] = value
	}
	run := e.start(box, log)
	if err := first(e.put(box, values...), e.drained()); err != nil {
		return err
	}
	busy.Store(true)
	if err := e.put(box, value); err != nil {
		return err
	}
	select {
	case err = <-pieces:
	case <-time.After(e.patience):
		err = wrongf("kept for ever: %+v", box.Stats())
	}
	busy.Store(false)
	return first(err, run.end())
}

// takenOver has another relay take the outbox over from one that sits idle.
func (e *env) takenOver(o *outbox.Options, values ...string) (fenced *running, err error) {
	box := e.openBox(e.db, o)
	log, err := e.tryLog(box, e.dir)
	if err != nil {
		return nil, err
	}
	one := e.start(box, log)
	err = e.prepare(func() error { return first(e.put(box, values...), e.has(values...), e.drained()) })
	if err == nil {
		other := e.openBox(e.open(5000), &outbox.Options{KeepFor: time.Hour, Policy: outbox.ResendIntent})
		_, err = e.tryLog(other, "/log2")
	}
	return one, err
}

// stops waits until a relay has ended, because it was replaced.
func (e *env) stops(r *running) error {
	select {
	case err := <-r.done:
		r.done <- err
		return is(err, outbox.ErrFenced)
	case <-time.After(e.patience):
		return wrongf("the first relay goes on")
	}
}

// A relay that was replaced deletes no rows that were kept.
func checkFencePrune(e *env) error {
	clock := newTestClock()
	one, err := e.takenOver(&outbox.Options{KeepFor: time.Hour, Clock: clock}, "a")
	if err != nil {
		return err
	}
	clock.skip(2 * time.Hour)
	err = e.stops(one)
	s, err2 := outbox.ReadStatus(e.ctx, e.db)
	if err = first(err, err2); err == nil && s.Kept != 1 {
		err = wrongf("%+v", s)
	}
	return err
}

// Nor does it park any.
func checkFencePark(e *env) error {
	one, err := e.takenOver(&outbox.Options{Encode: func(r outbox.Row) (evlog.Record, error) {
		if string(r.Record.Value) == "b" {
			return r.Record, errors.New("not here")
		}
		return r.Record, nil
	}}, "a")
	if err != nil {
		return err
	}
	if err := e.put(e.box, "b"); err != nil {
		return err
	}
	err = e.stops(one)
	s, err2 := outbox.ReadStatus(e.ctx, e.db)
	if err = first(err, err2); err == nil && (s.Parked != 0 || s.Queued != 1) {
		err = wrongf("%+v", s)
	}
	return err
}

// What DropIntent gives up is told apart from what was relayed: it has no offset.
// Its dedupe keys are remembered.
func behaveDropped(e *env) error {
	if err := e.interrupted("a"); err != nil {
		return err
	}
	if _, err := e.db.Exec(`UPDATE evlog_outbox SET dedupe = 'a'`); err != nil {
		return err
	}
	var uid outbox.UID
	var b []byte
	if err := e.db.QueryRow(`SELECT uid FROM evlog_outbox`).Scan(&b); err != nil {
		return err
	}
	copy(uid[:], b)
	var events []outbox.Event
	box := e.openBox(e.db, &outbox.Options{
		Policy: outbox.DropIntent, KeepFor: time.Hour, OnEvent: func(ev outbox.Event) { events = append(events, ev) },
	})
	e.dir = "/new"
	log, err := e.tryLog(box, e.dir)
	if err != nil {
		return err
	}
	if len(events) != 2 || events[0].Kind != outbox.EventMismatch || !errors.Is(events[0].Err, outbox.ErrLogChanged) {
		return wrongf("%+v", events)
	}
	if ev := events[1]; ev.Kind != outbox.EventResolved || ev.Rows != 0 || ev.Again != 0 || ev.Dropped != 1 || ev.Offset != 1 {
		return wrongf("%+v", ev)
	}
	if at, found, err := outbox.FindRelayed(e.ctx, e.db, uid); found || err != nil {
		return wrongf("relayed: %+v, %v", at, err)
	}
	var again outbox.UID
	var put bool
	err = box.InTx(e.ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
		again, put, err = box.PutOnce(ctx, tx, "a", evlog.Record{Value: []byte("a")})
		return err
	})
	if err != nil || put || again != uid {
		return wrongf("put again: %v as %v, %v", put, again, err)
	}
	run := e.start(box, log)
	return first(e.put(box, "b"), e.has("b"), e.drained(), run.end())
}
