package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"time"

	"github.com/evlog-go/evlog/evlog"
)

// remote is another peer's log at the other end of a line. It is a cursor.Log,
// so that sqlbridge can keep a cursor in it as in a local one.
type remote struct {
	client *http.Client
	url    string
	id     string
}

// errGone: the other peer has gone offline or was killed. What was applied is
// applied; the rest comes another time.
var errGone = errors.New("the line is dead")

func dial(ctx context.Context, client *http.Client, url string) (*remote, error) {
	r := &remote{client: client, url: url}
	var b bounds
	if err := r.get(ctx, "/log", &b); err != nil {
		return nil, err
	}
	r.id = b.ID
	return r, nil
}

// ID implements cursor.Log.
func (r *remote) ID() string { return r.id }

// Bounds implements cursor.Log.
func (r *remote) Bounds(ctx context.Context) (first, next uint64, err error) {
	var b bounds
	err = r.get(ctx, "/log", &b)
	return b.First, b.Next, err
}

// Records implements cursor.Log.
func (r *remote) Records(ctx context.Context, from uint64) iter.Seq2[evlog.Record, error] {
	return func(yield func(evlog.Record, error) bool) {
		body, err := r.send(ctx, http.MethodGet, fmt.Sprintf("/records?from=%d", from), nil)
		if err != nil {
			var outside *evlog.OffsetError
			if errors.As(err, &outside) {
				outside.Asked = from
			}
			yield(evlog.Record{}, err)
			return
		}
		defer func() { _ = body.Close() }()
		for lines := json.NewDecoder(body); ; {
			var w wireRecord
			if err := lines.Decode(&w); errors.Is(err, io.EOF) {
				return
			} else if err != nil {
				yield(evlog.Record{}, fmt.Errorf("%w: %w", errGone, err))
				return
			}
			if !yield(evlog.Record{Offset: w.Offset, Time: time.UnixMilli(w.TimeMS).UTC(), Schema: w.Schema, Key: w.Key, Value: w.Value}, nil) {
				return
			}
		}
	}
}

// Follow implements cursor.Log. Nobody follows here: a pull ends at the end.
func (r *remote) Follow(context.Context, uint64) iter.Seq2[evlog.Record, error] {
	return func(yield func(evlog.Record, error) bool) { yield(evlog.Record{}, errors.ErrUnsupported) }
}

func (r *remote) snapshot(ctx context.Context) (s snapshot, err error) {
	return s, r.get(ctx, "/snapshot", &s)
}

func (r *remote) acknowledge(ctx context.Context, a acknowledgment) error {
	body, err := r.send(ctx, http.MethodPost, "/ack", a)
	if err != nil {
		return err
	}
	return body.Close()
}

func (r *remote) get(ctx context.Context, path string, to any) error {
	body, err := r.send(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	if err := json.NewDecoder(body).Decode(to); err != nil {
		return fmt.Errorf("%w: %w", errGone, err)
	}
	return nil
}

// send makes a request. A 410 becomes an *evlog.OffsetError, as it came from the
// other one's log.
func (r *remote) send(ctx context.Context, method, path string, v any) (io.ReadCloser, error) {
	var content io.Reader
	if v != nil {
		b, err := json.Marshal(v)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, r.url+path, content)
	if err != nil {
		return nil, err
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errGone, err)
	}
	if resp.StatusCode < 300 {
		return resp.Body, nil
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode == http.StatusGone {
		var b bounds
		if err := json.NewDecoder(resp.Body).Decode(&b); err != nil {
			return nil, fmt.Errorf("%w: %w", errGone, err)
		}
		return nil, &evlog.OffsetError{First: b.First, Next: b.Next}
	}
	text, _ := io.ReadAll(resp.Body)
	return nil, fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, bytes.TrimSpace(text))
}
