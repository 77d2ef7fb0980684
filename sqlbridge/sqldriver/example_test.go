package sqldriver_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"

	sqlite "modernc.org/sqlite"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/sqlbridge/sqldriver"
)

// exampleLog makes a log of a few edits.
func exampleLog() (dir string, remove func()) {
	base, err := os.MkdirTemp("", "sqldriver")
	check(err)
	dir = filepath.Join(base, "events")
	ctx := context.Background()
	l, err := evlog.Open(ctx, dir, nil)
	check(err)
	_, err = l.Append(ctx,
		evlog.Record{Key: []byte("doc:1"), Value: []byte(`{"title":"Plan","by":"ann"}`)},
		evlog.Record{Key: []byte("doc:2"), Value: []byte(`{"title":"Notes","by":"bob"}`)},
		evlog.Record{Key: []byte("doc:1"), Value: []byte(`{"title":"The plan","by":"bob"}`)},
		evlog.Record{Key: []byte("doc:2")})
	check(err)
	check(l.Close())
	return dir, func() { check(os.RemoveAll(base)) }
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// printRows prints the rows of a query.
func printRows(rows *sql.Rows, err error) {
	check(err)
	defer rows.Close()
	for rows.Next() {
		var name, value string
		check(rows.Scan(&name, &value))
		fmt.Println(name, value)
	}
	check(rows.Err())
}

func Example() {
	dir, remove := exampleLog()
	defer remove()
	db, err := sql.Open("evlog", dir)
	check(err)
	defer db.Close()

	// The newest title of each document that was not deleted.
	printRows(db.Query(`SELECT key, value ->> '$.title' FROM log
		WHERE offset IN (SELECT max(offset) FROM log GROUP BY key) AND NOT tombstone`))
	// Output: doc:1 The plan
}

// INSERT appends, and a transaction is one batch with one sync.
func Example_insert() {
	dir, remove := exampleLog()
	defer remove()
	db, err := sql.Open("evlog", dir+"?mode=rw")
	check(err)
	defer db.Close()

	tx, err := db.Begin()
	check(err)
	defer tx.Rollback() // does nothing after the commit
	for _, title := range []string{"Draft", "Final"} {
		r, err := tx.Exec(`INSERT INTO log (key, value) VALUES ('doc:3', json_object('title', ?))`, title)
		check(err)
		offset, err := r.LastInsertId()
		check(err)
		fmt.Println(title, "is", offset)
	}
	check(tx.Commit()) // durable, or an error

	printRows(db.Query(`SELECT key, value FROM log WHERE key = 'doc:3'`))
	// Output:
	// Draft is 4
	// Final is 5
	// doc:3 {"title":"Draft"}
	// doc:3 {"title":"Final"}
}

// Events and an application's own tables in one query.
func ExampleAttachConnector() {
	dir, remove := exampleLog()
	defer remove()
	ctx := context.Background()
	base, err := sqlite.NewConnector(":memory:") // the application's database
	check(err)
	connector, err := sqldriver.AttachConnector(ctx, base, dir, "events")
	check(err)
	db := sql.OpenDB(connector)
	defer db.Close()
	db.SetMaxOpenConns(1) // because it is in memory here
	_, err = db.Exec(`CREATE TABLE user (name TEXT, city TEXT);
		INSERT INTO user VALUES ('ann', 'Oslo'), ('bob', 'Rome')`)
	check(err)

	printRows(db.Query(`SELECT city, count(*) FROM events JOIN user ON name = value ->> '$.by' GROUP BY city`))
	// Output:
	// Oslo 1
	// Rome 2
}
