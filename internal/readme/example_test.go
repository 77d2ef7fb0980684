package readme

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/evlog-go/evlog/cursor"
	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/evlog/table"
)

// Each function below holds a block of README.md between "region" and "end".

func appendAndRead(ctx context.Context) {
	// region: append
	log, err := evlog.Open(ctx, "events", nil) // creates the log if there is none
	check(err)
	defer log.Close()
	offset, err := log.Append(ctx, evlog.Record{Key: []byte("doc:42"), Value: []byte("hello")})
	check(err) // no error: the record is on disk
	for rec, err := range log.Reader().Records(ctx, offset) {
		check(err)
		fmt.Printf("%d %s %s\n", rec.Offset, rec.Key, rec.Value) // 0 doc:42 hello
	}
	// end
}

func enqueue(ctx context.Context, readings []evlog.Record) error {
	// region: enqueue
	log, err := evlog.Open(ctx, "readings", &evlog.Options{Sync: evlog.SyncInterval, SyncInterval: 200 * time.Millisecond})
	if err != nil {
		return err
	}
	for _, r := range readings {
		if _, err := log.Enqueue(ctx, r); err != nil { // waits only if the buffer is full
			return err
		}
	}
	if err := log.Flush(ctx); err != nil { // all of them are durable when this returns
		return err
	}
	return log.Close()
	// end
}

func follow(ctx context.Context, next uint64, handle func(evlog.Record) error) (uint64, error) {
	err := func() error {
		// region: follow
		r, err := evlog.OpenReader(ctx, "events", nil) // in any process, beside the writer
		if err != nil {
			return err
		}
		defer r.Close()
		for rec, err := range r.Follow(ctx, next) { // ends with ctx
			if err != nil {
				return err
			}
			if err := handle(rec); err != nil { // rec.Clone() to keep it
				return err
			}
			next = rec.Offset + 1 // where to go on after a restart
		}
		// end
		return nil
	}()
	return next, err
}

func lookUp(ctx context.Context, r *evlog.Reader) error {
	// region: lookup
	rec, err := r.Get(ctx, 7) // the first record at or after offset 7
	if err != nil {
		return err
	}
	fmt.Println(rec.Offset, string(rec.Value))

	from, err := r.OffsetAt(ctx, time.Date(2025, 9, 20, 3, 0, 0, 0, time.UTC))
	if err != nil {
		return err // evlog.ErrNotFound: nothing that late
	}
	for rec, err := range r.Records(ctx, from) { // what happened from 3 a.m. on
		if err != nil {
			return err
		}
		fmt.Println(rec.Offset, rec.Time.Format(time.TimeOnly))
	}

	rec, err = r.Latest(ctx, []byte("doc:42")) // the newest record with this key
	if err != nil {
		return err
	}
	fmt.Println(rec.Offset, string(rec.Value))
	// end
	return nil
}

func compact(ctx context.Context) error {
	// region: compact
	log, err := evlog.Open(ctx, "devices", &evlog.Options{
		Compact:        evlog.On,           // by itself, when half of the log is dirty
		TombstoneGrace: 7 * 24 * time.Hour, // how long consumers may take to learn of a deletion
	})
	if err != nil {
		return err
	}
	defer log.Close()
	if err := log.Roll(ctx); err != nil { // by hand: what is active counts when it is closed
		return err
	}
	report, err := log.Compact(ctx, &evlog.CompactOptions{MinLag: -1}) // also what was closed just now
	if err != nil {
		return err
	}
	fmt.Println(report.Superseded, "records with a newer one of their key are gone")
	// end
	return nil
}

func backUp(ctx context.Context) error {
	// region: backup
	r, err := evlog.OpenReader(ctx, "events", nil) // in any process; in the writer's: log.Reader()
	if err != nil {
		return err
	}
	defer r.Close()
	next, err := r.Backup(ctx, "backup", nil) // a directory that is not there yet, or empty
	if err != nil {
		return err
	}
	fmt.Println("backed up to offset", next)
	// end
	return nil
}

func keepSmall(ctx context.Context) error {
	// region: retention
	log, err := evlog.Open(ctx, "readings", &evlog.Options{
		MaxAge:    30 * 24 * time.Hour,
		MaxBytes:  2 << 30,
		HoldFor:   []string{"uplink"}, // nothing that this consumer has not finished goes,
		HoldBytes: 8 << 30,            // unless the disk would fill up
	})
	if err != nil {
		return err
	}
	defer log.Close()
	// end
	return nil
}

func currentValues(ctx context.Context, log *evlog.Log) error {
	// region: table
	lamps, err := table.Open(ctx, log.Reader(), nil) // reads the log once
	if err != nil {
		return err // *table.FullError: more than Options.MaxBytes
	}
	defer lamps.Close()

	offset, err := log.Append(ctx, evlog.Record{Key: []byte("kitchen"), Value: []byte("on")})
	if err != nil {
		return err
	}
	if err := lamps.Wait(ctx, offset+1); err != nil { // until the view has it
		return err
	}
	if lamp, ok := lamps.Get("kitchen"); ok {
		fmt.Println(lamp.Offset, string(lamp.Value))
	}
	for name, lamp := range lamps.All() { // a snapshot
		fmt.Println(name, string(lamp.Value))
	}
	// end
	return nil
}

func openOrExplain(ctx context.Context) (*evlog.Log, error) {
	// region: errors
	log, err := evlog.Open(ctx, "events", nil)
	var locked *evlog.LockedError
	var damaged *evlog.CorruptError
	switch {
	case errors.As(err, &locked):
		fmt.Println("in use by process", locked.Holder.PID)
	case errors.As(err, &damaged):
		fmt.Println("damaged at byte", damaged.Pos, "of", damaged.Path) // evlog verify, evlog repair
	}
	// end
	return log, err
}

func consume(ctx context.Context, send func(ctx context.Context, key string, value []byte) error) error {
	// region: consumer
	r, err := evlog.OpenReader(ctx, "events", nil)
	if err != nil {
		return err
	}
	defer r.Close()
	store, err := cursor.OpenFile(ctx, "events", nil) // events/consumers.json
	if err != nil {
		return err
	}
	defer store.Close()
	return cursor.Run(ctx, r, store, "uplink", func(ctx context.Context, rec evlog.Record) error {
		return send(ctx, cursor.IdempotencyKey(r.ID(), rec.Offset), rec.Value)
	}, nil)
	// end
}

func Example_consumer() {
	ctx, cancel := context.WithCancel(context.Background())
	inTemp(func() error {
		appendAndRead(ctx)
		err := consume(ctx, func(_ context.Context, key string, value []byte) error {
			_, offset, _ := strings.Cut(key, "/")
			fmt.Println(offset, string(value))
			cancel() // it would follow for ever
			return nil
		})
		if errors.Is(err, context.Canceled) {
			return nil
		}
		return err
	})
	// Output:
	// 0 doc:42 hello
	// 0 hello
}

func Example_append() {
	inTemp(func() error {
		appendAndRead(context.Background())
		return nil
	})
	// Output: 0 doc:42 hello
}

func Example_enqueue() {
	ctx := context.Background()
	inTemp(func() error {
		if err := enqueue(ctx, make([]evlog.Record, 1000)); err != nil {
			return err
		}
		r, err := evlog.OpenReader(ctx, "readings", nil)
		if err != nil {
			return err
		}
		defer r.Close()
		first, next, err := r.Bounds(ctx)
		fmt.Println(first, next)
		return err
	})
	// Output: 0 1000
}

func Example_follow() {
	ctx, cancel := context.WithCancel(context.Background())
	inTemp(func() error {
		if err := fill(ctx, 3); err != nil {
			return err
		}
		next, err := follow(ctx, 1, func(rec evlog.Record) error {
			fmt.Println(rec.Offset)
			if rec.Offset == 2 {
				cancel()
			}
			return nil
		})
		fmt.Println("next", next)
		if errors.Is(err, context.Canceled) {
			err = nil
		}
		return err
	})
	// Output:
	// 1
	// 2
	// next 3
}

func Example_lookUp() {
	ctx := context.Background()
	inTemp(func() error {
		if err := fill(ctx, 10); err != nil {
			return err
		}
		r, err := evlog.OpenReader(ctx, "events", nil)
		if err != nil {
			return err
		}
		defer r.Close()
		return lookUp(ctx, r)
	})
	// Output:
	// 7 hello 7
	// 8 03:00:00
	// 9 03:30:00
	// 9 hello 9
}

func Example_keepSmall() {
	ctx := context.Background()
	inTemp(func() error {
		if err := keepSmall(ctx); err != nil {
			return err
		}
		log, err := evlog.Open(ctx, "readings", nil)
		if err != nil {
			return err
		}
		defer log.Close()
		c := log.Config()
		fmt.Println(c.MaxAge, c.MaxBytes, c.HoldFor, c.HoldBytes)
		return nil
	})
	// Output:
	// 720h0m0s 2147483648 [uplink] 8589934592
}

func Example_currentValues() {
	ctx := context.Background()
	inTemp(func() error {
		log, err := evlog.Open(ctx, "events", nil)
		if err != nil {
			return err
		}
		defer log.Close()
		return currentValues(ctx, log)
	})
	// Output:
	// 0 on
	// kitchen on
}

func Example_compact() {
	ctx := context.Background()
	inTemp(func() error {
		log, err := evlog.Open(ctx, "devices", nil)
		if err != nil {
			return err
		}
		for _, state := range []string{"off", "on", "off"} {
			if _, err := log.Append(ctx, evlog.Record{Key: []byte("lamp"), Value: []byte(state)}); err != nil {
				return err
			}
		}
		if err := log.Close(); err != nil {
			return err
		}
		return compact(ctx)
	})
	// Output:
	// 2 records with a newer one of their key are gone
}

func Example_backUp() {
	ctx := context.Background()
	inTemp(func() error {
		if err := fill(ctx, 10); err != nil {
			return err
		}
		if err := backUp(ctx); err != nil {
			return err
		}
		copied, err := evlog.Open(ctx, "backup", nil)
		if err != nil {
			return err
		}
		defer copied.Close()
		rec, err := copied.Reader().Get(ctx, 9)
		fmt.Println(rec.Offset, string(rec.Value))
		return err
	})
	// Output:
	// backed up to offset 10
	// 9 hello 9
}

func Example_errors() {
	ctx := context.Background()
	inTemp(func() error {
		log, err := openOrExplain(ctx)
		if err != nil {
			return err
		}
		defer log.Close()
		_, err = openOrExplain(ctx)
		fmt.Println(errors.Is(err, evlog.ErrLocked))
		return nil
	})
}

// fill creates the log "events" with n records, half an hour apart.
func fill(ctx context.Context, n int) error {
	log, err := evlog.Open(ctx, "events", nil)
	if err != nil {
		return err
	}
	at := time.Date(2025, 9, 19, 23, 0, 0, 0, time.UTC)
	for i := range n {
		rec := evlog.Record{Time: at.Add(time.Duration(i) * 30 * time.Minute), Key: []byte("doc:42"), Value: fmt.Appendf(nil, "hello %d", i)}
		if _, err := log.Append(ctx, rec); err != nil {
			return errors.Join(err, log.Close())
		}
	}
	return log.Close()
}

// inTemp runs f in an empty directory and prints its error.
func inTemp(f func() error) {
	home, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	dir, err := os.MkdirTemp("", "evlog-readme-")
	if err != nil {
		panic(err)
	}
	if err := os.Chdir(dir); err != nil {
		panic(err)
	}
	if err := f(); err != nil {
		fmt.Println("error:", err)
	}
	if err := errors.Join(os.Chdir(home), os.RemoveAll(dir)); err != nil {
		panic(err)
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
