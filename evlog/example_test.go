package evlog_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/evlog-go/evlog/evlog"
)

func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "events")
	check(err)
	defer os.RemoveAll(dir)

	l, err := evlog.Open(ctx, dir, nil)
	check(err)
	for _, text := range []string{"first", "second", "third"} {
		offset, err := l.Append(ctx, evlog.Record{Key: []byte("doc:42"), Value: []byte(text)})
		check(err)
		fmt.Println("durable:", offset)
	}
	for rec, err := range l.Reader().Records(ctx, 1) {
		check(err)
		fmt.Printf("%d %s=%s\n", rec.Offset, rec.Key, rec.Value)
	}
	check(l.Close())
	// Output:
	// durable: 0
	// durable: 1
	// durable: 2
	// 1 doc:42=second
	// 2 doc:42=third
}

func ExampleReader_OffsetAt() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "events")
	check(err)
	defer os.RemoveAll(dir)

	l, err := evlog.Open(ctx, dir, nil)
	check(err)
	midnight := time.Date(2026, 9, 20, 0, 0, 0, 0, time.UTC)
	for hour := range 6 {
		_, err := l.Append(ctx, evlog.Record{
			Time:  midnight.Add(time.Duration(hour) * time.Hour),
			Value: fmt.Appendf(nil, "what happened at %d", hour),
		})
		check(err)
	}
	offset, err := l.Reader().OffsetAt(ctx, midnight.Add(3*time.Hour))
	check(err)
	rec, err := l.Reader().Get(ctx, offset)
	check(err)
	fmt.Printf("%d: %s\n", rec.Offset, rec.Value)
	check(l.Close())
	// Output:
	// 3: what happened at 3
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
