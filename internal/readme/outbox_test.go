package readme

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/outbox"
)

func outOfSQLite(ctx context.Context, db *sql.DB) error {
	// region: outbox
	box, err := outbox.Open(ctx, db, nil) // creates its tables
	if err != nil {
		return err
	}
	log, err := evlog.Open(ctx, "events", &evlog.Options{OpenHook: box.Hook()})
	if err != nil {
		return err
	}
	defer log.Close()
	ctx, stop := context.WithCancel(ctx)
	relay := make(chan error, 1)
	go func() {
		defer stop() // if it ends by itself, so does all that waits for it
		relay <- box.Run(ctx, log)
	}()

	err = box.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO orders (id, total) VALUES (42, 1999)`); err != nil {
			return err // nothing is committed, and nobody hears of it
		}
		_, err := box.Put(ctx, tx, evlog.Record{Key: []byte("order:42"), Value: []byte(`{"total":1999}`)})
		return err
	})
	if err == nil {
		err = box.Wait(ctx) // where it matters: until the log has it
	}

	stop() // at the end, before the log is closed
	if ended := <-relay; !errors.Is(ended, context.Canceled) {
		return ended
	}
	// end
	return err
}

func Example_outOfSQLite() {
	ctx := context.Background()
	inTemp(func() error {
		db, err := sql.Open("sqlite", "file:app.sqlite?_pragma=journal_mode(WAL)&_pragma=busy_timeout(5000)")
		if err != nil {
			return err
		}
		defer db.Close()
		if _, err := db.Exec(`CREATE TABLE orders (id INTEGER PRIMARY KEY, total INTEGER) STRICT`); err != nil {
			return err
		}
		if err := outOfSQLite(ctx, db); err != nil {
			return err
		}
		log, err := evlog.OpenReader(ctx, "events", nil)
		if err != nil {
			return err
		}
		defer log.Close()
		for rec, err := range log.Records(ctx, 0) {
			if err != nil {
				return err
			}
			fmt.Printf("%d %s %s\n", rec.Offset, rec.Key, rec.Value)
		}
		return nil
	})
	// Output:
	// 0 order:42 {"total":1999}
}
