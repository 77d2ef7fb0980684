package outboxsuite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/outbox"
	"github.com/evlog-go/evlog/sqlbridge"
)

// Others append to the same log, as fast as they can.
func behaveAppendBeside(e *env) error {
	log := e.openLog()
	run := e.start(e.box, log)
	ctx, stop := context.WithCancel(e.ctx)
	defer stop()
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for ctx.Err() == nil {
				if _, err := log.Append(ctx, evlog.Record{Value: []byte("beside")}); err != nil && ctx.Err() == nil {
					e.t.Error(err)
					return
				}
			}
		})
	}
	var want []string
	for i := range 50 {
		want = append(want, fmt.Sprint(i))
		if err := e.put(e.box, want[i]); err != nil {
			return err
		}
	}
	err := e.drained()
	stop()
	wg.Wait()
	if err := first(err, run.end()); err != nil {
		return err
	}
	all, err := e.values(e.dir)
	var got []string
	for _, v := range all {
		if v != "beside" {
			got = append(got, v)
		}
	}
	if err == nil && strings.Join(got, " ") != strings.Join(want, " ") {
		err = wrongf("the log has %v", got)
	}
	return err
}

// Batches end at their number of rows or bytes, and a row that is larger than a
// batch goes alone.
func behaveBatches(e *env) error {
	box := e.openBox(e.db, &outbox.Options{BatchRows: 7, BatchBytes: 1000})
	var want []string
	for i := range 40 {
		v := fmt.Sprint(i)
		if i%10 == 5 {
			v += strings.Repeat("x", 5000)
		}
		want = append(want, v)
	}
	if err := e.put(box, want...); err != nil {
		return err
	}
	log, err := e.tryLog(box, e.dir)
	if err != nil {
		return err
	}
	run := e.start(box, log)
	if err := first(e.has(want...), e.drained(), run.end()); err != nil {
		return err
	}
	if s := box.Stats(); s.Relayed != 40 || s.Batches < 8 || s.Running {
		return wrongf("%+v", s)
	}
	return nil
}

// Encode makes small rows large: the batch is bounded by what is appended. The
// time of a record that has none is that of the row.
func behaveEncode(e *env) error {
	box := e.openBox(e.db, &outbox.Options{BatchBytes: 10_000, Encode: func(r outbox.Row) (evlog.Record, error) {
		return evlog.Record{Value: append(r.Record.Value, make([]byte, 3000)...)}, nil
	}})
	when := time.UnixMilli(1_000_000).UTC()
	err := box.InTx(e.ctx, func(ctx context.Context, tx *sql.Tx) error {
		for i := range 10 {
			if _, err := box.Put(ctx, tx, evlog.Record{Value: []byte{byte(i)}, Time: when}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	log, err := e.tryLog(box, e.dir)
	if err != nil {
		return err
	}
	run := e.start(box, log)
	if err := first(e.drained(), run.end()); err != nil {
		return err
	}
	n := 0
	for rec, err := range log.Reader().Records(e.ctx, 0) {
		if err != nil {
			return err
		}
		if rec.Value[0] != byte(n) || !rec.Time.Equal(when) {
			return wrongf("record %d is number %d of %v", n, rec.Value[0], rec.Time)
		}
		n++
	}
	if s := box.Stats(); n != 10 || s.Batches != 4 {
		return wrongf("%d records, %+v", n, s)
	}
	return nil
}

// A consumer's handler puts events: what it consumes, its cursor and what it
// tells are one transaction.
func behaveBridge(e *env) error {
	bridge, err := sqlbridge.Open(e.ctx, e.db, nil)
	if err != nil {
		return err
	}
	source, err := evlog.Open(e.ctx, "/source", nil)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }()
	var want []string
	for i := range 20 {
		want = append(want, fmt.Sprint(i))
		if _, err := source.Append(e.ctx, evlog.Record{Value: []byte(want[i])}); err != nil {
			return err
		}
	}
	run := e.start(e.box, e.openLog())
	failed := false
	err = bridge.Run(e.ctx, source.Reader(), "copy", func(ctx context.Context, tx *sqlbridge.Tx, rec evlog.Record) error {
		if _, err := e.box.Put(ctx, tx, evlog.Record{Value: rec.Value}); err != nil {
			return err
		}
		if rec.Offset == 13 && !failed {
			failed = true
			return errors.New("once more")
		}
		return nil
	}, &sqlbridge.RunOptions{UntilEnd: true, Attempts: 2, BatchRecords: 4})
	return first(err, e.has(want...), e.drained(), run.end())
}
