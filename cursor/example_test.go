package cursor_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/evlog-go/evlog/cursor"
	"github.com/evlog-go/evlog/evlog"
)

// exampleLog makes a log with three records in a new directory.
func exampleLog(ctx context.Context) (dir string, clean func()) {
	dir, err := os.MkdirTemp("", "events")
	check(err)
	l, err := evlog.Open(ctx, dir, nil)
	check(err)
	for _, text := range []string{"first", "second", "third"} {
		_, err := l.Append(ctx, evlog.Record{Value: []byte(text)})
		check(err)
	}
	check(l.Close())
	return dir, func() { check(os.RemoveAll(dir)) }
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// A consumer that fails at a record, and one that comes back later.
func Example() {
	ctx := context.Background()
	dir, clean := exampleLog(ctx)
	defer clean()
	r, err := evlog.OpenReader(ctx, dir, nil)
	check(err)
	defer r.Close()
	store, err := cursor.OpenFile(ctx, dir, nil)
	check(err)
	defer store.Close()

	online := false
	send := func(_ context.Context, rec evlog.Record) error {
		if !online && rec.Offset == 1 {
			return errors.New("the line is down")
		}
		fmt.Printf("sent %d %s\n", rec.Offset, rec.Value)
		return nil
	}
	opts := &cursor.Options{UntilEnd: true} // without it, Run waits for more
	fmt.Println(cursor.Run(ctx, r, store, "uplink", send, opts))
	online = true
	fmt.Println(cursor.Run(ctx, r, store, "uplink", send, opts))

	p, err := store.Load(ctx, "uplink")
	check(err)
	first, next, err := r.Bounds(ctx)
	check(err)
	fmt.Println("committed", p.Next, "lag", cursor.Lag(first, next, p.Next))
	// Output:
	// sent 0 first
	// consumer "uplink": offset 1: the line is down
	// sent 1 second
	// sent 2 third
	// <nil>
	// committed 3 lag 0
}

// What the handler buffers is written before its records are committed.
func ExampleOptions_beforeCommit() {
	ctx := context.Background()
	dir, clean := exampleLog(ctx)
	defer clean()
	r, err := evlog.OpenReader(ctx, dir, nil)
	check(err)
	defer r.Close()
	store, err := cursor.OpenFile(ctx, dir, nil)
	check(err)
	defer store.Close()

	var batch bytes.Buffer
	add := func(_ context.Context, rec evlog.Record) error {
		fmt.Fprintf(&batch, "%s ", rec.Value)
		return nil
	}
	err = cursor.Run(ctx, r, store, "batches", add, &cursor.Options{
		UntilEnd:      true,
		CommitRecords: 2,
		BeforeCommit: func(context.Context) error {
			fmt.Println("write:", strings.TrimSpace(batch.String()))
			batch.Reset()
			return nil
		},
	})
	check(err)
	// Output:
	// write: first second
	// write: third
}

// The same without Run: a transaction of the application's own may stand in
// place of the store.
func ExampleFile_Commit() {
	ctx := context.Background()
	dir, clean := exampleLog(ctx)
	defer clean()
	r, err := evlog.OpenReader(ctx, dir, nil)
	check(err)
	defer r.Close()
	store, err := cursor.OpenFile(ctx, dir, nil)
	check(err)
	defer store.Close()

	p, err := store.Load(ctx, "mine")
	if errors.Is(err, cursor.ErrUnknownConsumer) {
		err = nil // it starts at 0
	}
	check(err)
	for rec, err := range r.Records(ctx, p.Next) {
		check(err)
		fmt.Println(rec.Offset)
		check(store.Commit(ctx, "mine", p.Next, rec.Offset+1))
		p.Next = rec.Offset + 1
	}
	// Somebody who still thinks that the cursor is at 0.
	err = store.Commit(ctx, "mine", 0, 1)
	fmt.Println(errors.Is(err, cursor.ErrMoved), err)
	// Output:
	// 0
	// 1
	// 2
	// true consumer "mine": the cursor was moved meanwhile, by another consumer or a reset: stored is 3, expected was 0
}

func ExampleIdempotencyKey() {
	key := cursor.IdempotencyKey("0f8b7c1e-6a0e-4d0b-9a43-5d2c1f4e7a90", 42)
	fmt.Println(key)
	id, offset, err := cursor.ParseIdempotencyKey(key)
	fmt.Println(id, offset, err)
	// Output:
	// 0f8b7c1e-6a0e-4d0b-9a43-5d2c1f4e7a90/42
	// 0f8b7c1e-6a0e-4d0b-9a43-5d2c1f4e7a90 42 <nil>
}
