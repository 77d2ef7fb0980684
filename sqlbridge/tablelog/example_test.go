package tablelog_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/sqlbridge/tablelog"
)

// Start with a table, move to files when it has grown too large for one: identity
// and offsets stay, so consumers go on where they were. "evlog append --from-table"
// does it from a shell, and can be interrupted.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "tablelog")
	check(err)
	defer os.RemoveAll(dir) //nolint:errcheck // an example
	db, err := sql.Open("sqlite", filepath.Join(dir, "app.db"))
	check(err)
	defer db.Close() //nolint:errcheck // an example

	table, err := tablelog.Open(ctx, db, nil)
	check(err)
	_, err = table.Append(ctx,
		evlog.Record{Key: []byte("doc:1"), Value: []byte("first")},
		evlog.Record{Key: []byte("doc:2"), Value: []byte("second")})
	check(err)

	first, next, err := table.Bounds(ctx)
	check(err)
	files, err := evlog.Open(ctx, filepath.Join(dir, "events"), &evlog.Options{ID: table.ID(), FirstOffset: first})
	check(err)
	for rec, err := range table.Records(ctx, 0) {
		check(err)
		check(files.AppendExact(ctx, rec))
	}
	check(files.RollTo(ctx, next)) // the table may end with a hole
	for rec, err := range files.Reader().Records(ctx, 0) {
		check(err)
		fmt.Printf("%d %s %s\n", rec.Offset, rec.Key, rec.Value)
	}
	check(files.Close())
	// Output:
	// 0 doc:1 first
	// 1 doc:2 second
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
