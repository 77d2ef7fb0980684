package main

import (
	"context"
	"database/sql"
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
	run, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- box.Run(run, l) }()
	for {
		s, err := outbox.ReadStatus(ctx, db)
		ts.Check(err)
		if s.Queued == 0 && s.IntentRows == 0 {
			break
		}
	}
	stop()
	<-done
}
