package readme

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	_ "modernc.org/sqlite" // registers the driver

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/sqlbridge"
)

func applyByHand(ctx context.Context, db *sql.DB, r *evlog.Reader, apply func(context.Context, *sql.Tx, evlog.Record) error) {
	// region: byhand
	tx, err := db.BeginTx(ctx, nil)
	check(err)
	defer tx.Rollback() // does nothing after the commit
	var last int64      // the last offset that is applied; -1 before the first
	check(tx.QueryRowContext(ctx, `UPDATE progress SET last = last RETURNING last`).Scan(&last))
	for rec, err := range r.Records(ctx, uint64(last+1)) {
		check(err)
		check(apply(ctx, tx, rec))
		last = int64(rec.Offset)
	}
	_, err = tx.ExecContext(ctx, `UPDATE progress SET last = ?1`, last)
	check(err)
	check(tx.Commit())
	// end
}

func applyWithBridge(ctx context.Context, db *sql.DB, r *evlog.Reader) error {
	// region: sqlbridge
	bridge, err := sqlbridge.Open(ctx, db, nil) // creates its tables, and logs what is unsafe about the settings
	if err != nil {
		return err
	}
	return bridge.Run(ctx, r, "totals", func(ctx context.Context, tx *sqlbridge.Tx, rec evlog.Record) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO total (key, n) VALUES (?1, 1)
			ON CONFLICT (key) DO UPDATE SET n = n + 1`, string(rec.Key))
		return err
	}, &sqlbridge.RunOptions{Attempts: 3, Poison: sqlbridge.Skip})
	// end
}

func applyInOwnTx(ctx context.Context, db *sql.DB, bridge *sqlbridge.Bridge, r *evlog.Reader, apply func(context.Context, *sql.Tx, evlog.Record) error) error {
	// region: advance
	pos, err := bridge.Cursor(ctx, db, "totals")
	if err != nil {
		return err
	}
	var recs []evlog.Record
	for rec, err := range r.Records(ctx, pos.Next) {
		if err != nil {
			return err
		}
		if recs = append(recs, rec.Clone()); len(recs) == 1000 {
			break
		}
	}
	if len(recs) == 0 {
		return nil
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	// First, because it takes the write lock. Another consumer under this name is a *cursor.MovedError.
	if err := bridge.Advance(ctx, tx, "totals", r.ID(), pos.Next, recs[len(recs)-1].Offset+1); err != nil {
		return err
	}
	for _, rec := range recs {
		if err := apply(ctx, tx, rec); err != nil {
			return err
		}
	}
	return tx.Commit()
	// end
}

// addOne is what the three of them do.
func addOne(ctx context.Context, tx *sql.Tx, rec evlog.Record) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO total (key, n) VALUES (?1, 1) ON CONFLICT (key) DO UPDATE SET n = n + 1`, string(rec.Key))
	return err
}

// inDatabase runs f with a log of n records and a database.
func inDatabase(ctx context.Context, n int, f func(db *sql.DB, r *evlog.Reader) error) {
	inTemp(func() (err error) {
		if err := fill(ctx, n); err != nil {
			return err
		}
		r, err := evlog.OpenReader(ctx, "events", nil)
		if err != nil {
			return err
		}
		defer r.Close()
		db, err := sql.Open("sqlite", "file:app.sqlite?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(5000)")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, db.Close()) }()
		for _, query := range []string{
			`CREATE TABLE total (key TEXT PRIMARY KEY, n INTEGER NOT NULL) STRICT`,
			`CREATE TABLE progress (last INTEGER NOT NULL) STRICT`,
			`INSERT INTO progress VALUES (-1)`,
		} {
			if _, err := db.ExecContext(ctx, query); err != nil {
				return err
			}
		}
		return f(db, r)
	})
}

func printTotal(ctx context.Context, db *sql.DB) {
	var key string
	var n int
	check(db.QueryRowContext(ctx, `SELECT key, n FROM total`).Scan(&key, &n))
	fmt.Println(key, n)
}

func Example_byhand() {
	ctx := context.Background()
	inDatabase(ctx, 5, func(db *sql.DB, r *evlog.Reader) error {
		for range 2 { // nothing is left for the second time
			applyByHand(ctx, db, r, addOne)
			printTotal(ctx, db)
		}
		return nil
	})
	// Output:
	// doc:42 5
	// doc:42 5
}

func Example_sqlbridge() {
	ctx, cancel := context.WithCancel(context.Background())
	inDatabase(ctx, 5, func(db *sql.DB, r *evlog.Reader) error {
		done := make(chan error, 1)
		go func() { done <- applyWithBridge(ctx, db, r) }()
		for n := 0; n < 5; { // it would follow for ever
			_ = db.QueryRowContext(ctx, `SELECT n FROM total`).Scan(&n)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			return err
		}
		printTotal(context.WithoutCancel(ctx), db)
		return nil
	})
	// Output: doc:42 5
}

func Example_advance() {
	ctx := context.Background()
	inDatabase(ctx, 1500, func(db *sql.DB, r *evlog.Reader) error {
		bridge, err := sqlbridge.Open(ctx, db, nil)
		if err != nil {
			return err
		}
		for range 3 {
			if err := applyInOwnTx(ctx, db, bridge, r, addOne); err != nil {
				return err
			}
			printTotal(ctx, db)
		}
		return nil
	})
	// Output:
	// doc:42 1000
	// doc:42 1500
	// doc:42 1500
}
