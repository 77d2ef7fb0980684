package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/outbox"
)

// An order and its event are committed together, or not at all.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	dir, db, cleanUp := exampleDB(`CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT NOT NULL) STRICT`)
	defer cleanUp()
	box, err := outbox.Open(ctx, db, nil)
	check(err)
	log, err := evlog.Open(ctx, filepath.Join(dir, "events"), &evlog.Options{OpenHook: box.Hook()})
	check(err)
	relay := make(chan error, 1)
	go func() {
		defer stop() // if it ends by itself, so does what waits for it
		relay <- box.Run(ctx, log)
	}()

	order := func(item string) error {
		return box.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, `INSERT INTO orders (item) VALUES (?1)`, item); err != nil {
				return err
			}
			if _, err := box.Put(ctx, tx, evlog.Record{Key: []byte("order"), Value: []byte(item)}); err != nil {
				return err
			}
			if item == "nothing" {
				return errors.New("no such item")
			}
			return nil
		})
	}
	fmt.Println(order("tea"), order("nothing"), order("cake"))
	check(box.Wait(ctx)) // until the log has what was committed
	for rec, err := range log.Reader().Records(ctx, 0) {
		check(err)
		fmt.Println(rec.Offset, string(rec.Value))
	}
	// The relay first: it needs the log.
	stop()
	if err := <-relay; !errors.Is(err, context.Canceled) {
		check(err)
	}
	check(log.Close())
	// Output:
	// <nil> no such item <nil>
	// 0 tea
	// 1 cake
}

// A transaction that may have been committed is done again, and the event is put
// once.
func ExampleBox_PutOnce() {
	ctx := context.Background()
	_, db, cleanUp := exampleDB()
	defer cleanUp()
	box, err := outbox.Open(ctx, db, nil)
	check(err)
	for range 2 {
		check(box.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			_, put, err := box.PutOnce(ctx, tx, "order:42:paid", evlog.Record{Value: []byte("paid")})
			fmt.Println(put, err)
			return err
		}))
	}
	status, err := outbox.ReadStatus(ctx, db)
	check(err)
	fmt.Println("queued:", status.Queued)
	// Output:
	// true <nil>
	// false <nil>
	// queued: 1
}

// A log that fails is opened again, and the relay goes on.
func ExampleBox_RunOpening() {
	ctx, stop := context.WithCancel(context.Background())
	dir, db, cleanUp := exampleDB()
	defer cleanUp()
	box, err := outbox.Open(ctx, db, nil)
	check(err)
	opened := make(chan *evlog.Log, 1)
	ended := make(chan error, 1)
	go func() {
		ended <- box.RunOpening(ctx, func(ctx context.Context) (*evlog.Log, error) {
			log, err := evlog.Open(ctx, filepath.Join(dir, "events"), &evlog.Options{OpenHook: box.Hook()})
			if err == nil {
				select {
				case opened <- log: // the rest of the application appends and reads here
				case <-ctx.Done():
				}
			}
			return log, err
		})
	}()
	log := <-opened
	_, err = log.Append(ctx, evlog.Record{Value: []byte("beside the outbox")})
	check(err)
	stop()
	fmt.Println(errors.Is(<-ended, context.Canceled))
	// Output: true
}

// What a restored copy of the database sends again has the same uid: with it in
// the record, a consumer can drop what it has seen.
func ExampleOptions_encode() {
	ctx := context.Background()
	dir, db, cleanUp := exampleDB()
	defer cleanUp()
	box, err := outbox.Open(ctx, db, &outbox.Options{
		Encode: func(row outbox.Row) (evlog.Record, error) {
			r := row.Record
			r.Value = fmt.Appendf(nil, `{"uid":%q,"event":%s}`, row.UID, r.Value)
			return r, nil
		},
	})
	check(err)
	var uids []outbox.UID
	check(box.InTx(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
		uids, err = box.Put(ctx, tx, evlog.Record{Value: []byte(`{"order":42}`)})
		return err
	}))
	log, err := evlog.Open(ctx, filepath.Join(dir, "events"), &evlog.Options{OpenHook: box.Hook()})
	check(err)
	run, stop := context.WithCancel(ctx)
	relay := make(chan error, 1)
	go func() {
		defer stop()
		relay <- box.Run(run, log)
	}()
	check(box.Wait(run))
	stop()
	if err := <-relay; !errors.Is(err, context.Canceled) {
		check(err)
	}
	for rec, err := range log.Reader().Records(ctx, 0) {
		check(err)
		fmt.Println(strings.ReplaceAll(string(rec.Value), uids[0].String(), "<the row's uid>"))
	}
	check(log.Close())
	// Output: {"uid":"<the row's uid>","event":{"order":42}}
}

func exampleDB(statements ...string) (dir string, db *sql.DB, cleanUp func()) {
	dir, err := os.MkdirTemp("", "evlog-outbox-")
	check(err)
	db, err = sql.Open("sqlite", "file:"+filepath.ToSlash(filepath.Join(dir, "app.db"))+
		"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(5000)")
	check(err)
	for _, st := range statements {
		_, err := db.Exec(st)
		check(err)
	}
	return dir, db, func() {
		check(db.Close())
		check(os.RemoveAll(dir))
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
