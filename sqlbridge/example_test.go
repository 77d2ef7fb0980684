package sqlbridge_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/sqlbridge"
)

// A read model: how often each word was said. It is applied in two goes, the
// second of which begins where the first one ended.
func Example() {
	ctx := context.Background()
	log, db, done := exampleSetup(ctx, `CREATE TABLE word (text TEXT PRIMARY KEY, n INTEGER NOT NULL) STRICT`)
	defer done()
	bridge, err := sqlbridge.Open(ctx, db, nil)
	check(err)

	count := func(ctx context.Context, tx *sqlbridge.Tx, rec evlog.Record) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO word (text, n) VALUES (?1, 1) ON CONFLICT DO UPDATE SET n = n + 1`, string(rec.Value))
		return err
	}
	for _, words := range [][]string{{"to", "be", "or"}, {"not", "to", "be"}} {
		for _, w := range words {
			_, err := log.Append(ctx, evlog.Record{Value: []byte(w)})
			check(err)
		}
		// Without UntilEnd, Run waits for more until ctx ends.
		check(bridge.Run(ctx, log.Reader(), "words", count, &sqlbridge.RunOptions{UntilEnd: true}))
	}

	var n int
	check(db.QueryRow(`SELECT n FROM word WHERE text = 'be'`).Scan(&n))
	pos, err := bridge.Cursor(ctx, db, "words")
	check(err)
	fmt.Println("be:", n, "next offset:", pos.Next)
	// Output: be: 2 next offset: 6
}

// The application's own transaction: the cursor and what is applied are
// committed together.
func ExampleBridge_Advance() {
	ctx := context.Background()
	log, db, done := exampleSetup(ctx, `CREATE TABLE total (n INTEGER NOT NULL) STRICT`, `INSERT INTO total VALUES (0)`)
	defer done()
	bridge, err := sqlbridge.Open(ctx, db, nil)
	check(err)
	_, err = log.Append(ctx, evlog.Record{Value: []byte("a")}, evlog.Record{Value: []byte("b")})
	check(err)

	pos, err := bridge.Cursor(ctx, db, "totals")
	check(err)
	n, next := 0, pos.Next
	for rec, err := range log.Reader().Records(ctx, next) {
		check(err)
		n, next = n+1, rec.Offset+1
	}
	tx, err := db.BeginTx(ctx, nil)
	check(err)
	defer tx.Rollback() // does nothing after the commit
	check(bridge.Advance(ctx, tx, "totals", log.ID(), pos.Next, next))
	_, err = tx.ExecContext(ctx, `UPDATE total SET n = n + ?1`, n)
	check(err)
	check(tx.Commit())

	err = bridge.Advance(ctx, db, "totals", log.ID(), next, next)
	fmt.Println(errors.Is(err, sqlbridge.ErrNotInTx))
	pos, err = bridge.Cursor(ctx, db, "totals")
	check(err)
	fmt.Println(pos.Next)
	// Output:
	// true
	// 2
}

// A record that cannot be applied is tried three times and then skipped, with a
// note in the same transaction.
func ExampleSkips() {
	ctx := context.Background()
	log, db, done := exampleSetup(ctx, `CREATE TABLE number (n INTEGER NOT NULL) STRICT`)
	defer done()
	bridge, err := sqlbridge.Open(ctx, db, nil)
	check(err)
	for _, v := range []string{"1", "two", "3"} {
		_, err := log.Append(ctx, evlog.Record{Value: []byte(v)})
		check(err)
	}

	insert := func(ctx context.Context, tx *sqlbridge.Tx, rec evlog.Record) error {
		var n int
		if _, err := fmt.Sscan(string(rec.Value), &n); err != nil {
			return fmt.Errorf("not a number: %q", rec.Value)
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO number VALUES (?1)`, n)
		return err
	}
	check(bridge.Run(ctx, log.Reader(), "numbers", insert, &sqlbridge.RunOptions{
		UntilEnd: true, Attempts: 3, RetryDelay: 1, Poison: sqlbridge.Skip,
	}))

	skips, err := sqlbridge.Skips(ctx, db, "numbers")
	check(err)
	for _, s := range skips {
		fmt.Printf("offset %d, %d attempts: %s\n", s.Range.From, s.Attempts, s.Error)
	}
	// Output: offset 1, 3 attempts: not a number: "two"
}

// What a database's settings are worth.
func ExampleBridge_Check() {
	ctx := context.Background()
	_, db, done := exampleSetup(ctx)
	defer done()
	bridge, err := sqlbridge.Open(ctx, db, nil)
	check(err)
	report, err := bridge.Check(ctx)
	check(err)
	fmt.Println(report.JournalMode, report.Synchronous, report.BusyTimeout, report.Unsafe, report.Notes)
	// Output: wal FULL 5s [] []
}

// exampleSetup opens an empty log and a database.
func exampleSetup(ctx context.Context, queries ...string) (log *evlog.Log, db *sql.DB, done func()) {
	dir, err := os.MkdirTemp("", "evlog-example-")
	check(err)
	log, err = evlog.Open(ctx, filepath.Join(dir, "log"), nil)
	check(err)
	db, err = sql.Open("sqlite", filepath.Join(dir, "app.db")+
		"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(5000)")
	check(err)
	for _, q := range queries {
		_, err := db.ExecContext(ctx, q)
		check(err)
	}
	return log, db, func() {
		check(errors.Join(db.Close(), log.Close(), os.RemoveAll(dir)))
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
