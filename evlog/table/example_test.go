package table_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/evlog/table"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// exampleLog opens a log in a new directory.
func exampleLog(ctx context.Context) (l *evlog.Log, clean func()) {
	dir, err := os.MkdirTemp("", "events")
	check(err)
	l, err = evlog.Open(ctx, dir, nil)
	check(err)
	return l, func() {
		check(l.Close())
		check(os.RemoveAll(dir))
	}
}

// Lamps report their state; the view knows the current one of each.
func Example() {
	ctx := context.Background()
	l, clean := exampleLog(ctx)
	defer clean()
	report := func(lamp, state string) uint64 {
		offset, err := l.Append(ctx, evlog.Record{Key: []byte(lamp), Value: []byte(state)})
		check(err)
		return offset
	}
	report("kitchen", "off")
	report("hall", "on")
	report("kitchen", "on")

	lamps, err := table.Open(ctx, l.Reader(), nil)
	check(err)
	defer lamps.Close()
	kitchen, ok := lamps.Get("kitchen")
	fmt.Printf("kitchen: %s %v, by offset %d\n", kitchen.Value, ok, kitchen.Offset)

	last := report("hall", "") // a tombstone: there is no such lamp any more
	check(lamps.Wait(ctx, last+1))
	_, ok = lamps.Get("hall")
	fmt.Println("hall:", ok)
	// Output:
	// kitchen: on true, by offset 2
	// hall: false
}

// Everything at one offset, in the order of the keys.
func ExampleTable_All() {
	ctx := context.Background()
	l, clean := exampleLog(ctx)
	defer clean()
	for _, word := range []string{"one", "two", "three"} {
		_, err := l.Append(ctx, evlog.Record{Key: []byte(word), Value: fmt.Append(nil, len(word))})
		check(err)
	}
	t, err := table.Open(ctx, l.Reader(), nil)
	check(err)
	defer t.Close()
	all := maps.Collect(t.All())
	for _, key := range slices.Sorted(maps.Keys(all)) {
		fmt.Printf("%s=%s\n", key, all[key].Value)
	}
	// Output:
	// one=3
	// three=5
	// two=3
}

// A view has the memory that it was given, and says where it stopped.
func ExampleFullError() {
	ctx := context.Background()
	l, clean := exampleLog(ctx)
	defer clean()
	for i := range 100 {
		_, err := l.Enqueue(ctx, evlog.Record{Key: fmt.Appendf(nil, "key-%02d", i), Value: make([]byte, 1000)})
		check(err)
	}
	check(l.Flush(ctx))
	_, err := table.Open(ctx, l.Reader(), &table.Options{MaxBytes: 60 << 10})
	var full *table.FullError
	if errors.As(err, &full) {
		fmt.Println("more than", full.MaxBytes, "bytes; it could have gone up to offset", full.Offset/10*10, "or so")
	}
	// Output:
	// more than 61440 bytes; it could have gone up to offset 50 or so
}
