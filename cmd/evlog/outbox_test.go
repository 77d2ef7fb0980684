package main

import (
	"context"
	"database/sql"
	"errors"
	"slices"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/outbox"
)

// cmdOutbox puts values into the outbox of a database, which it creates, and
// relays them into a log, or leaves them for -: outbox DB LOG|- VALUE... The
// value "big" stands for one that no log of this command takes.
func cmdOutbox(ts *testscript.TestScript, _ bool, args []string) {
	ctx := context.Background()
	path := ts.MkAbs(args[0])
	db, err := sql.Open("sqlite", dsn(path, "rwc")+"&_pragma=journal_mode(WAL)")
	ts.Check(err)
	defer db.Close()
	box, err := outbox.Open(ctx, db, nil)
	ts.Check(err)
	big := slices.Repeat([]byte{'x'}, 1000)
	ts.Check(box.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		for _, v := range args[2:] {
			value := []byte(v)
			if v == "big" {
				value = big
			}
			if _, err := box.Put(ctx, tx, evlog.Record{Key: []byte("k"), Value: value}); err != nil {
				return err
			}
		}
		return nil
	}))
	if args[1] == "-" {
		return
	}
	l, err := evlog.Open(ctx, ts.MkAbs(args[1]), &evlog.Options{OpenHook: box.Hook(), MaxRecordBytes: 500})
	ts.Check(err)
	defer l.Close()
	before, err := outbox.ReadStatus(ctx, db)
	ts.Check(err)
	var tooLarge int
	ts.Check(db.QueryRow(`SELECT count(*) FROM evlog_outbox WHERE parked IS NULL AND length(value) > 500`).Scan(&tooLarge))
	run, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan error, 1)
	go func() {
		defer stop() // so that Wait ends
		done <- box.Run(run, l)
	}()
	ts.Check(box.Wait(run))
	stop()
	if err := <-done; !errors.Is(err, context.Canceled) {
		ts.Fatalf("the relay ended with %v", err)
	}
	after, err := outbox.ReadStatus(ctx, db)
	ts.Check(err)
	if parked, relayed := after.Parked-before.Parked, int(l.Stats().Records); parked != tooLarge || relayed != before.Queued-parked {
		ts.Fatalf("%d rows were queued, %d are in the log, %d are parked", before.Queued, relayed, parked)
	}
}
