package rivals

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/evlog-go/evlog/internal/bench/limit"
	"github.com/evlog-go/evlog/internal/bench/turns"
)

const (
	// followPause is how long the writer rests between two records, so that a
	// follower that can sleep has gone to sleep.
	followPause = 2 * time.Millisecond
	// followOps is how many records there are in a turn.
	followOps = 30
)

// BenchmarkFollow: from when a durable append returns to when a follower in this
// process sees the record. tidwall, raft-wal and SQLite cannot tell of a record
// and are polled without rest, which takes a whole core.
func BenchmarkFollow(b *testing.B) {
	var sides []*turns.Side
	for _, r := range all() {
		st := r.mustOpen(b, config{durable: true})
		f, ok := st.(follower)
		if !ok {
			continue
		}
		sides = append(sides, followSide(b, r.name, st, f))
	}
	row(b, "follower sees an acknowledged record of 100 B", "a record", sides...)
}

func followSide(b *testing.B, name string, st store, f follower) *turns.Side {
	records := limit.Records(100, 100)
	s := &turns.Side{Name: name, Ops: followOps, ByLatency: true}
	at := 0
	times := make(chan time.Time, 100)
	var stop func()
	one := func() time.Duration {
		time.Sleep(followPause)
		must(b, st.append(records[at%len(records):][:1]))
		acknowledged := time.Now()
		at++
		select {
		case seen := <-times: // it can be faster than the return of append
			return max(0, seen.Sub(acknowledged))
		case <-time.After(10 * time.Second):
			b.Fatalf("%s: record %d is not seen", name, at-1)
			return 0
		}
	}
	s.Before = func() {
		var err error
		stop, err = f.follow(uint64(at), func() { times <- time.Now() })
		must(b, err)
		one() // warm
	}
	s.Run = func(ops int) {
		for range ops {
			s.Lat = append(s.Lat, one())
		}
	}
	s.After = func() { stop() }
	return s
}

// poll asks for the index of the last record, which begins at 1, without rest, and
// gets the records.
func poll(s store, last func() (uint64, error), next uint64, seen func()) (stop func()) {
	return start(func(ready chan<- struct{}, done <-chan struct{}) {
		close(ready)
		for {
			select {
			case <-done:
				return
			default:
			}
			n, err := last()
			for ; err == nil && next < n; next++ {
				if _, _, err = s.get(next); err == nil {
					seen()
				}
			}
			if err != nil {
				panic(err)
			}
			runtime.Gosched()
		}
	})
}

// start runs f until stop is called, and returns once f says that it is ready.
func start(f func(ready chan<- struct{}, done <-chan struct{})) (stop func()) {
	ready, done, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		f(ready, done)
	}()
	<-ready
	return func() { close(done); <-ended }
}

// contextUntil is a context that ends with done.
func contextUntil(done <-chan struct{}) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(background)
	go func() {
		select {
		case <-done:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}
