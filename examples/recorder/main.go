// Recorder answers "what did the agent do at three in the morning?": it appends
// what AI agents did to a log and then asks for a span of time, for one run, and
// for the last events of that run.
//
//	go run ./examples/recorder
//	go run ./examples/recorder -at 2025-04-30T16:46:50Z -for 20s
//	go run ./examples/recorder -run run:basic
//
// The events are recordings of three different agents, each with its own form
// of event: the schema id of a record says which.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/testdata/events"
)

// query is what is asked.
type query struct {
	at   time.Time
	span time.Duration
	run  string
	last int
}

func main() {
	q := query{}
	at := flag.String("at", "2025-04-30T16:46:50Z", "start of the span, RFC 3339")
	flag.DurationVar(&q.span, "for", 20*time.Second, "length of the span")
	flag.StringVar(&q.run, "run", "run:basic", "the run to show")
	flag.IntVar(&q.last, "last", 5, "how many of the last events to show")
	flag.Parse()
	var err error
	if q.at, err = time.Parse(time.RFC3339, *at); err == nil {
		err = run(context.Background(), q, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "recorder:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, q query, out io.Writer) (err error) {
	parent, err := os.MkdirTemp("", "evlog-recorder-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(parent)) }()
	dir := filepath.Join(parent, "events")
	if err := record(ctx, dir); err != nil {
		return err
	}
	r, err := evlog.OpenReader(ctx, dir, nil) // as any other process would
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	first, next, err := r.Bounds(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "recorded %d events, offsets %d to %d\n", next-first, first, next-1)
	for _, show := range []func(context.Context, *evlog.Reader, query, io.Writer) error{showSpan, showRun, showLast} {
		if err := show(ctx, r, q, out); err != nil {
			return err
		}
	}
	return nil
}

// record appends the events in the order of their times, as one recorder would
// have got them.
//
// Enqueue does not wait for the disk, so the recorder never holds up the agent;
// what was recorded is durable a tenth of a second later, and all of it when
// Flush returns.
func record(ctx context.Context, dir string) (err error) {
	all, err := load()
	if err != nil {
		return err
	}
	log, err := evlog.Open(ctx, dir, &evlog.Options{Sync: evlog.SyncInterval})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	for _, rec := range all {
		if _, err := log.Enqueue(ctx, rec); err != nil {
			return err
		}
	}
	return log.Flush(ctx)
}

func load() ([]evlog.Record, error) {
	var all []evlog.Record
	for schema, form := range forms {
		for e, err := range events.All(form.stream) {
			if err != nil {
				return nil, err
			}
			all = append(all, evlog.Record{Time: e.Time, Schema: schema, Key: e.Key, Value: e.Value})
		}
	}
	slices.SortStableFunc(all, func(a, b evlog.Record) int {
		return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Schema, b.Schema))
	})
	return all, nil
}

// showSpan answers by time: the log finds the first event at or after a time,
// and reading goes on from there.
func showSpan(ctx context.Context, r *evlog.Reader, q query, out io.Writer) error {
	end := q.at.Add(q.span)
	fmt.Fprintf(out, "\n%s, %v: what happened?\n", q.at.UTC().Format("2006-01-02 15:04:05"), q.span)
	from, err := r.OffsetAt(ctx, q.at)
	if errors.Is(err, evlog.ErrNotFound) {
		fmt.Fprintln(out, "  nothing at or after that time")
		return nil
	}
	if err != nil {
		return err
	}
	shown := 0
	for rec, err := range r.Records(ctx, from) {
		if err != nil {
			return err
		}
		if !rec.Time.Before(end) {
			break
		}
		fmt.Fprintln(out, " ", line(rec))
		shown++
	}
	if shown == 0 {
		fmt.Fprintln(out, "  nothing")
	}
	return nil
}

// showRun answers by key: one run from its beginning.
func showRun(ctx context.Context, r *evlog.Reader, q query, out io.Writer) error {
	fmt.Fprintf(out, "\n%s: the whole run\n", q.run)
	shown := 0
	for rec, err := range r.ByKey(ctx, []byte(q.run), 0) {
		if err != nil {
			return err
		}
		fmt.Fprintln(out, " ", line(rec))
		shown++
	}
	if shown == 0 {
		fmt.Fprintln(out, "  no such run")
	}
	return nil
}

// showLast reads backwards from the end.
func showLast(ctx context.Context, r *evlog.Reader, q query, out io.Writer) error {
	fmt.Fprintf(out, "\nthe last %d events, newest first\n", q.last)
	_, next, err := r.Bounds(ctx)
	if err != nil {
		return err
	}
	shown := 0
	for rec, err := range r.Backward(ctx, next) {
		if err != nil {
			return err
		}
		if shown == q.last {
			break
		}
		fmt.Fprintln(out, " ", line(rec))
		shown++
	}
	return nil
}
