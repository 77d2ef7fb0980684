// Gateway buffers sensor readings in a log while the uplink is down, and then
// delivers them in order, each of them once.
//
//	go run ./examples/gateway
//	go run ./examples/gateway -seed 7
//
// The readings are recorded ones, of two sensors. The uplink is an HTTP server
// in this program that is down at first and then refuses, hangs, and loses
// requests and answers at random. The gateway dies now and then just before it
// commits. The receiver ends up with every reading once all the same: each
// carries its idempotency key, and the receiver ignores keys it has seen.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/evlog-go/evlog/cursor"
	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/testdata/events"
)

// consumer is the name under which the gateway's progress is kept.
const consumer = "uplink"

func main() {
	seed := flag.Uint64("seed", 1, "what goes wrong, and when")
	flag.Parse()
	if err := run(context.Background(), *seed, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "gateway:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, seed uint64, out io.Writer) (err error) {
	parent, err := os.MkdirTemp("", "evlog-gateway-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(parent)) }()
	readings, err := events.Load("sensors_plant")
	if err != nil {
		return err
	}
	log, err := evlog.Open(ctx, filepath.Join(parent, "readings"), nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	server, err := startUplink(seed)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.close()) }()
	store, err := cursor.OpenFile(ctx, filepath.Join(parent, "readings"), nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	s := &story{out: out, readings: readings, log: log, store: store, uplink: server}
	return s.tell(ctx, seed)
}

// story is what the parts of the program have in common.
type story struct {
	out      io.Writer
	readings []events.Event
	log      *evlog.Log
	store    *cursor.File
	uplink   *uplink
}

func (s *story) say(topic, format string, args ...any) {
	fmt.Fprintf(s.out, "%-10s %s\n", topic, fmt.Sprintf(format, args...))
}

// tell runs sensors and gateway side by side until everything is delivered.
func (s *story) tell(ctx context.Context, seed uint64) error {
	began := time.Now()
	s.say("readings", "%s of 2 sensors, %s to %s", count(len(s.readings)),
		s.readings[0].Time.Format(time.DateOnly), s.readings[len(s.readings)-1].Time.Format(time.DateOnly))
	g := newGateway(s.log.Reader(), s.store, s.uplink.url, seed)
	defer g.close()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- g.run(ctx) }()

	err := s.measure(ctx)
	if err == nil {
		err = s.awaitDelivery(ctx, ended)
	}
	stop()
	if end := <-ended; err == nil && !errors.Is(end, context.Canceled) {
		err = end
	}
	if err != nil {
		return err
	}
	s.reportUplink(g)
	if err := s.checkReceived(); err != nil {
		return err
	}
	s.say("done", "%s", time.Since(began).Round(10*time.Millisecond))
	return nil
}

// measure is the sensors: the first half of the readings comes while the uplink
// is down.
func (s *story) measure(ctx context.Context) error {
	half := len(s.readings) / 2
	if err := s.appendAll(ctx, s.readings[:half]); err != nil {
		return err
	}
	lag, err := s.lag(ctx)
	if err != nil {
		return err
	}
	s.say("buffered", "%s while the uplink was down and refused %d attempts; lag %s", count(half), s.uplink.whileDown(), count(lag))
	s.uplink.up()
	return s.appendAll(ctx, s.readings[half:])
}

// appendAll makes the readings durable, some with each sync, as they would come.
func (s *story) appendAll(ctx context.Context, readings []events.Event) error {
	for part := range slices.Chunk(readings, 50) {
		recs := make([]evlog.Record, len(part))
		for i, r := range part {
			recs[i] = evlog.Record{Time: r.Time, Key: r.Key, Value: r.Value}
		}
		if _, err := s.log.Append(ctx, recs...); err != nil {
			return err
		}
	}
	return nil
}

func (s *story) lag(ctx context.Context) (uint64, error) {
	first, next, err := s.log.Reader().Bounds(ctx)
	if err != nil {
		return 0, err
	}
	p, err := s.store.Load(ctx, consumer)
	if errors.Is(err, cursor.ErrUnknownConsumer) {
		err = nil // it is about to start
	}
	return cursor.Lag(first, next, p.Next), err
}

// awaitDelivery waits until the gateway has committed the last reading.
func (s *story) awaitDelivery(ctx context.Context, ended chan error) error {
	for {
		lag, err := s.lag(ctx)
		if err != nil || lag == 0 {
			return err
		}
		select {
		case err := <-ended:
			ended <- err
			return fmt.Errorf("the gateway ended early: %w", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (s *story) reportUplink(g *gateway) {
	f := s.uplink.faults()
	s.say("uplink", "refused %d requests, hung on %d, lost %d requests and %d answers",
		f[refuse], f[hang], f[loseRequest], f[loseAnswer])
	s.say("gateway", "sent %d batches, %d times in vain; died %d times before a commit", g.sent, g.failed, g.deaths)
}

// checkReceived compares what the receiver has with the source.
func (s *story) checkReceived() error {
	got, repeats := s.uplink.received()
	for i, r := range got {
		id, offset, err := cursor.ParseIdempotencyKey(r.ID)
		if err != nil {
			return err
		}
		want := s.readings[min(i, len(s.readings)-1)]
		switch {
		case id != s.log.Reader().ID() || offset != uint64(i):
			return fmt.Errorf("reading %d arrived as number %d", offset, i)
		case r.TimeMS != want.Time.UnixMilli() || r.Sensor != string(want.Key) || !bytes.Equal(r.Value, want.Value):
			return fmt.Errorf("reading %d is not what was measured: %+v", offset, r)
		}
	}
	if len(got) != len(s.readings) {
		return fmt.Errorf("%d readings arrived, %d were measured", len(got), len(s.readings))
	}
	s.say("repeats", "%s readings arrived more than once and were ignored", count(repeats))
	s.say("received", "all %s, each once and in order", count(len(got)))
	return nil
}

// count writes a number with separators: 18,335.
func count[N int | uint64](n N) string {
	s := strconv.FormatUint(uint64(n), 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
