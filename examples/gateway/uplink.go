package main

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// fault is what the uplink does with a request.
type fault int

const (
	works       fault = iota
	refuse            // says that it cannot
	hang              // answers when the gateway has given up, and takes the readings then
	loseRequest       // breaks the connection before it has taken the readings
	loseAnswer        // takes the readings and breaks the connection
)

// uplink is the receiver, and the bad line before it.
type uplink struct {
	url    string
	server *http.Server
	served chan error

	mu      sync.Mutex // guards the rest
	rng     *rand.Rand
	isUp    bool
	refused int // while it was down
	counts  map[fault]int
	seen    map[string]bool // idempotency keys
	got     []reading
	repeats int
}

func startUplink(seed uint64) (*uplink, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	u := &uplink{
		url:    "http://" + listener.Addr().String() + "/readings",
		served: make(chan error, 1),
		rng:    rand.New(rand.NewPCG(seed, 2)),
		counts: map[fault]int{},
		seen:   map[string]bool{},
	}
	u.server = &http.Server{Handler: u, ReadHeaderTimeout: time.Second}
	go func() { u.served <- u.server.Serve(listener) }()
	return u, nil
}

// close ends the server and waits for what still hangs.
func (u *uplink) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err := u.server.Shutdown(ctx)
	if served := <-u.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

func (u *uplink) up() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.isUp = true
}

// draw decides what happens to the next request.
func (u *uplink) draw() fault {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.isUp {
		u.refused++
		return refuse
	}
	f := works
	if n := u.rng.IntN(20); n < 8 {
		f = []fault{refuse, refuse, hang, loseRequest, loseRequest, loseAnswer, loseAnswer, loseAnswer}[n]
	}
	u.counts[f]++
	return f
}

// ServeHTTP takes a batch of readings, or does not.
func (u *uplink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var batch []reading
	if err := json.NewDecoder(r.Body).Decode(&batch); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	switch u.draw() {
	case refuse:
		http.Error(w, "try again later", http.StatusServiceUnavailable)
	case hang:
		time.Sleep(80 * time.Millisecond)
		u.take(batch)
	case loseRequest:
		panic(http.ErrAbortHandler) // breaks the connection
	case loseAnswer:
		u.take(batch)
		panic(http.ErrAbortHandler)
	default:
		u.take(batch)
		w.WriteHeader(http.StatusNoContent)
	}
}

// take is what makes repeats harmless: a key that was seen is ignored.
func (u *uplink) take(batch []reading) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, r := range batch {
		if u.seen[r.ID] {
			u.repeats++
			continue
		}
		u.seen[r.ID] = true
		u.got = append(u.got, r)
	}
}

func (u *uplink) received() (got []reading, repeats int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.got), u.repeats
}

// faults counts what went wrong since the uplink is up.
func (u *uplink) faults() map[fault]int {
	u.mu.Lock()
	defer u.mu.Unlock()
	counts := map[fault]int{}
	for f, n := range u.counts {
		counts[f] = n
	}
	return counts
}

func (u *uplink) whileDown() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.refused
}
