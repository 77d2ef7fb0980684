package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/evlog-go/evlog/cursor"
	"github.com/evlog-go/evlog/evlog"
)

// reading is what goes over the line.
type reading struct {
	ID     string          `json:"id"` // the idempotency key
	TimeMS int64           `json:"ts_ms"`
	Sensor string          `json:"sensor"`
	Value  json.RawMessage `json:"value"`
}

// gateway delivers the readings in the log to the uplink, in batches.
type gateway struct {
	log    *evlog.Reader
	store  cursor.Store
	url    string
	client *http.Client
	rng    *rand.Rand

	batch                []reading
	sent, failed, deaths int
}

func newGateway(log *evlog.Reader, store cursor.Store, url string, seed uint64) *gateway {
	return &gateway{
		log: log, store: store, url: url, rng: rand.New(rand.NewPCG(seed, 1)),
		client: &http.Client{Timeout: 50 * time.Millisecond, Transport: &http.Transport{}},
	}
}

func (g *gateway) close() { g.client.CloseIdleConnections() }

// errDied stands for a power failure after a delivery and before its commit.
var errDied = errors.New("the gateway died")

// run is the gateway's whole job. When it dies it is started again, as a system
// service would be, and goes on where the last commit says.
func (g *gateway) run(ctx context.Context) error {
	for {
		g.batch = nil
		err := cursor.Run(ctx, g.log, g.store, consumer, g.add, &cursor.Options{
			CommitRecords:  250,
			CommitInterval: 20 * time.Millisecond,
			BeforeCommit:   g.deliver, // its context lets a stop deliver what is left
			StopTimeout:    time.Second,
		})
		if !errors.Is(err, errDied) {
			return err
		}
		g.deaths++
	}
}

// add puts a record into the batch. The record is only valid during the call.
func (g *gateway) add(_ context.Context, rec evlog.Record) error {
	rec = rec.Clone()
	g.batch = append(g.batch, reading{
		ID:     cursor.IdempotencyKey(g.log.ID(), rec.Offset),
		TimeMS: rec.Time.UnixMilli(),
		Sensor: string(rec.Key),
		Value:  rec.Value,
	})
	return nil
}

// deliver sends the batch until the uplink says that it has it. Only then is it
// committed, and only then does the next one follow: so the order stays.
func (g *gateway) deliver(ctx context.Context) error {
	body, err := json.Marshal(g.batch)
	if err != nil {
		return err
	}
	pause := time.Millisecond
	for {
		g.sent++
		if err = g.post(ctx, body); err == nil {
			break
		}
		g.failed++
		select {
		case <-time.After(pause/2 + rand.N(pause)):
		case <-ctx.Done():
			return ctx.Err()
		}
		pause = min(2*pause, 20*time.Millisecond)
	}
	g.batch = g.batch[:0]
	if g.rng.IntN(25) == 0 {
		return errDied
	}
	return nil
}

func (g *gateway) post(ctx context.Context, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, g.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := g.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusNoContent {
		return fmt.Errorf("the uplink says %s", resp.Status)
	}
	return nil
}
