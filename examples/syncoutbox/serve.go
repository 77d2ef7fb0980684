package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/evlog-go/evlog/cursor"
	"github.com/evlog-go/evlog/evlog"
)

// What goes over the line, as JSON.
type (
	// bounds is the answer to GET /log.
	bounds struct {
		ID    string `json:"id"`
		First uint64 `json:"first"`
		Next  uint64 `json:"next"`
	}
	// wireRecord is a line of the answer to GET /records?from=OFFSET. Where the
	// log has no records from there on any more the answer is 410 Gone, with the
	// bounds.
	wireRecord struct {
		Offset uint64 `json:"offset"`
		TimeMS int64  `json:"ts_ms"`
		Schema uint16 `json:"schema"`
		Key    []byte `json:"key"`
		Value  []byte `json:"value"`
	}
	// acknowledgment is POST to /ack: the peer has everything below Next.
	acknowledgment struct {
		Peer string `json:"peer"`
		Next uint64 `json:"next"`
	}
	// snapshot is the answer to GET /snapshot: everything that the peer has, and
	// where in its log to go on after that.
	snapshot struct {
		ID     string            `json:"id"`
		Next   uint64            `json:"next"`
		Seen   map[string]uint64 `json:"seen"`
		Fields []change          `json:"fields"`
	}
)

// goOnline starts to answer the other peers.
func (p *peer) goOnline(ctx context.Context) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	routes := http.NewServeMux()
	routes.HandleFunc("GET /log", answer(p.serveBounds))
	routes.HandleFunc("GET /records", answer(p.serveRecords))
	routes.HandleFunc("GET /snapshot", answer(p.serveSnapshot))
	routes.HandleFunc("POST /ack", answer(p.takeAck))
	p.server = &http.Server{Handler: routes, ReadHeaderTimeout: time.Minute}
	go func(s *http.Server) { _ = s.Serve(listener) }(p.server) // it ends with Shutdown
	return p.say(message{What: sayOnline, URL: "http://" + listener.Addr().String()})
}

// goOffline lets the answers that are under way end.
func (p *peer) goOffline() (err error) {
	if p.server != nil {
		err = p.server.Shutdown(context.Background())
		p.server = nil
	}
	return err
}

// reply sends v. If that fails the receiver is gone, and there is nobody to tell.
func reply(w http.ResponseWriter, v any) error {
	_ = json.NewEncoder(w).Encode(v)
	return nil
}

func answer(serve func(w http.ResponseWriter, r *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := serve(w, r); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}
}

func (p *peer) bounds(ctx context.Context) (b bounds, err error) {
	b.ID = p.log.ID()
	b.First, b.Next, err = p.log.Reader().Bounds(ctx)
	return b, err
}

func (p *peer) serveBounds(w http.ResponseWriter, r *http.Request) error {
	b, err := p.bounds(r.Context())
	if err != nil {
		return err
	}
	return reply(w, b)
}

// serveRecords sends what is durable in the log from an offset on: only the
// peer's own changes are there, so nothing that it got from another one.
func (p *peer) serveRecords(w http.ResponseWriter, r *http.Request) error {
	from, err := strconv.ParseUint(r.FormValue("from"), 10, 64)
	if err != nil {
		return err
	}
	lines := json.NewEncoder(w)
	sent := 0
	for rec, err := range p.log.Reader().Records(r.Context(), from) {
		var outside *evlog.OffsetError
		switch {
		case errors.As(err, &outside) && sent == 0:
			w.WriteHeader(http.StatusGone)
			return reply(w, bounds{p.log.ID(), outside.First, outside.Next})
		case err != nil && sent > 0:
			panic(http.ErrAbortHandler) // the receiver must not take this for the end
		case err != nil:
			return err
		}
		if lines.Encode(wireRecord{rec.Offset, rec.Time.UnixMilli(), rec.Schema, rec.Key, rec.Value}) != nil {
			return nil // the receiver is gone
		}
		sent++
	}
	return nil
}

// serveSnapshot sends the whole database. The end of the log is read first:
// every change below it was committed before, and so is in what is read then.
func (p *peer) serveSnapshot(w http.ResponseWriter, r *http.Request) error {
	b, err := p.bounds(r.Context())
	if err != nil {
		return err
	}
	tx, err := p.db.BeginTx(r.Context(), &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // it only reads
	n, err := load(r.Context(), tx, p.name)
	if err != nil {
		return err
	}
	fields, err := readFields(r.Context(), tx, "")
	if err != nil {
		return err
	}
	return reply(w, snapshot{ID: b.ID, Next: b.Next, Seen: n.seen, Fields: fields})
}

// takeAck moves the cursor that says what a peer has. It only goes forwards: an
// acknowledgment that arrives late, or twice, changes nothing.
func (p *peer) takeAck(w http.ResponseWriter, r *http.Request) error {
	var a acknowledgment
	if err := json.NewDecoder(r.Body).Decode(&a); err != nil {
		return err
	}
	for {
		pos, err := p.acked.Load(r.Context(), a.Peer)
		if err != nil && !errors.Is(err, cursor.ErrUnknownConsumer) {
			return err
		}
		if a.Next > pos.Next {
			err = p.acked.Commit(r.Context(), a.Peer, pos.Next, a.Next)
			if errors.Is(err, cursor.ErrMoved) {
				continue // two at once
			}
			if err != nil {
				return fmt.Errorf("acknowledge: %w", err)
			}
		}
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
}
