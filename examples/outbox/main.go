// Outbox is an order service. It writes each order into its SQLite database, and
// in the same transaction the event that tells of it into the outbox. Some orders
// are rolled back because the shelf is empty. Who reads the log sees exactly the
// orders that were committed.
//
//	go run ./examples/outbox
//	go run ./examples/outbox -seed 7
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"

	_ "modernc.org/sqlite" // the driver; any other one would do

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/outbox"
)

// clerks take orders at the same time, each so many.
const (
	clerks = 4
	each   = 100
)

var tables = []string{
	`CREATE TABLE shelf (item TEXT PRIMARY KEY, pieces INTEGER NOT NULL) STRICT`,
	`CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT NOT NULL, pieces INTEGER NOT NULL) STRICT`,
	`INSERT INTO shelf (item, pieces) VALUES ('apple', 200), ('pear', 200), ('quince', 200)`,
}

// order is a row of that table, and the value of an event.
type order struct {
	ID     int64  `json:"id"`
	Item   string `json:"item"`
	Pieces int    `json:"pieces"`
}

func main() {
	seed := flag.Uint64("seed", 1, "what is ordered")
	flag.Parse()
	if err := run(context.Background(), *seed, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "outbox:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, seed uint64, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "evlog-outbox-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	db, err := sql.Open("sqlite", "file:"+filepath.ToSlash(filepath.Join(dir, "orders.db"))+
		"?_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)&_pragma=busy_timeout(5000)")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	for _, query := range tables {
		if _, err := db.ExecContext(ctx, query); err != nil {
			return err
		}
	}
	box, err := outbox.Open(ctx, db, nil)
	if err != nil {
		return err
	}
	log, err := evlog.Open(ctx, filepath.Join(dir, "events"), &evlog.Options{OpenHook: box.Hook()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()

	// If the relay ends by itself, so does all that waits for the log.
	ctx, stop := context.WithCancel(ctx)
	relayed := make(chan error, 1)
	go func() {
		defer stop()
		relayed <- box.Run(ctx, log)
	}()
	defer func() {
		stop()
		if end := <-relayed; !errors.Is(end, context.Canceled) {
			err = errors.Join(end, err)
		}
	}()
	s := &service{db: db, box: box}
	if err := s.open(ctx, seed); err != nil {
		return err
	}
	fmt.Fprintf(out, "orders   %d were taken, %d rolled back because the shelf was empty\n", s.taken, s.refused)
	return s.compare(ctx, log.Reader(), out)
}

// service is the application.
type service struct {
	db  *sql.DB
	box *outbox.Box

	mu             sync.Mutex // guards the rest
	taken, refused int
}

// open lets the clerks take orders until they have had enough.
func (s *service) open(ctx context.Context, seed uint64) error {
	errs := make([]error, clerks)
	var all sync.WaitGroup
	for clerk := range clerks {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(clerk)))
			for range each {
				items := []string{"apple", "pear", "quince"}
				o := order{Item: items[rng.IntN(len(items))], Pieces: 1 + rng.IntN(3)}
				if errs[clerk] = s.take(ctx, o); errs[clerk] != nil {
					return
				}
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

var errEmpty = errors.New("the shelf is empty")

// take is the ordinary transaction: the order, its event, and then the shelf,
// which may say no to both.
func (s *service) take(ctx context.Context, o order) error {
	err := s.box.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		err := tx.QueryRowContext(ctx, `INSERT INTO orders (item, pieces) VALUES (?1, ?2) RETURNING id`, o.Item, o.Pieces).Scan(&o.ID)
		if err != nil {
			return err
		}
		event, err := json.Marshal(o)
		if err != nil {
			return err
		}
		if _, err := s.box.Put(ctx, tx, evlog.Record{Key: fmt.Appendf(nil, "order:%d", o.ID), Value: event}); err != nil {
			return err
		}
		res, err := tx.ExecContext(ctx, `UPDATE shelf SET pieces = pieces - ?1 WHERE item = ?2 AND pieces >= ?1`, o.Pieces, o.Item)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			return errors.Join(err, errEmpty) // rolls back
		}
		return nil
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		s.taken++
	case errors.Is(err, errEmpty):
		s.refused++
		return nil
	}
	return err
}

// compare waits until the relay has brought everything into the log, reads it, as
// any process could, and compares the events with the table.
func (s *service) compare(ctx context.Context, log *evlog.Reader, out io.Writer) error {
	rows, err := s.db.QueryContext(ctx, `SELECT id, item, pieces FROM orders ORDER BY id`)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	var want, got []order
	for rows.Next() {
		var o order
		if err := rows.Scan(&o.ID, &o.Item, &o.Pieces); err != nil {
			return err
		}
		want = append(want, o)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if err := s.box.Wait(ctx); err != nil {
		return err
	}
	for rec, err := range log.Records(ctx, 0) {
		if err != nil {
			return err
		}
		var o order
		if err := json.Unmarshal(rec.Value, &o); err != nil {
			return err
		}
		got = append(got, o)
	}
	if !slices.Equal(got, want) {
		return errors.New("the log tells of other orders than the table has")
	}
	fmt.Fprintf(out, "log      %d events, exactly those of the %d orders in the table, in the order of their commits\n", len(got), len(want))
	return nil
}
