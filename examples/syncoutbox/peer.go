package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"sync/atomic"

	"github.com/evlog-go/evlog/cursor"
	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/outbox"
	"github.com/evlog-go/evlog/sqlbridge"
)

// peer is the application: a process that can be killed at any moment. In its
// directory are notes.db, its database, and log, with its own changes for the
// others. In the log's directory consumers.json says what each of them has.
type peer struct {
	name, dir string
	say       func(message) error

	db     *sql.DB
	bridge *sqlbridge.Bridge // foreign changes come in
	box    *outbox.Box       // own changes go out
	client *http.Client

	log     *evlog.Log
	acked   *cursor.File
	relayed chan error   // the end of the relay
	dropped atomic.Int64 // segments of the log
	server  *http.Server // nil: offline

	relaying context.Context // ends with the relay
	stop     context.CancelFunc
}

// runPeer is the process: it does what it is told until its input ends.
func runPeer(ctx context.Context, name, dir string, in io.Reader, out io.Writer) (err error) {
	enc := json.NewEncoder(out)
	p := &peer{name: name, dir: dir, client: &http.Client{Transport: &http.Transport{}}, say: func(m message) error { return enc.Encode(m) }}
	defer func() { err = errors.Join(err, p.close()) }()
	if err := p.open(ctx); err != nil {
		return err
	}
	if err := p.tellState(ctx, message{What: sayUp, Done: true}); err != nil {
		return err
	}
	for dec := json.NewDecoder(in); ; {
		var c command
		if err := dec.Decode(&c); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := p.do(ctx, c); err != nil {
			return fmt.Errorf("%s: %s: %w", p.name, c.Do, err)
		}
		if err := p.say(message{Done: true}); err != nil {
			return err
		}
	}
}

func (p *peer) do(ctx context.Context, c command) error {
	switch c.Do {
	case doSave:
		if _, err := p.save(ctx, c.Now, c.Edits); err != nil {
			return err
		}
		return p.tellState(ctx, message{What: saySaved})
	case doDrain:
		return p.drain()
	case doOnline:
		return p.goOnline(ctx)
	case doPull:
		return p.pull(ctx, c.Now, c.Peer, c.URL)
	case doOffline:
		return p.goOffline()
	case doRetain:
		return p.retain(ctx)
	}
	return errors.New("no such command")
}

func (p *peer) open(ctx context.Context) (err error) {
	if p.db, err = openDatabase(ctx, p.dir); err != nil {
		return err
	}
	if p.bridge, err = sqlbridge.Open(ctx, p.db, nil); err != nil {
		return err
	}
	if p.box, err = outbox.Open(ctx, p.db, nil); err != nil {
		return err
	}
	return p.openLog(ctx)
}

// openLog opens the log and starts the relay. The hook finds out what of the
// outbox is in the log already, after whatever ended the process before.
func (p *peer) openLog(ctx context.Context) (err error) {
	dir := filepath.Join(p.dir, "log")
	if p.log, err = evlog.Open(ctx, dir, p.logOptions()); err != nil {
		return err
	}
	if p.acked, err = cursor.OpenFile(ctx, dir, nil); err != nil {
		return err
	}
	relaying, stop := context.WithCancel(ctx)
	p.relaying, p.stop, p.relayed = relaying, stop, make(chan error, 1)
	go func() {
		defer stop() // whoever waits for it ends too
		p.relayed <- p.box.Run(relaying, p.log)
	}()
	return nil
}

func (p *peer) closeLog() (err error) {
	if p.stop != nil {
		p.stop()
		if err = <-p.relayed; errors.Is(err, context.Canceled) {
			err = nil
		}
		p.stop = nil
	}
	if p.acked != nil {
		err = errors.Join(err, p.acked.Close())
	}
	if p.log != nil {
		err = errors.Join(err, p.log.Close())
	}
	p.acked, p.log = nil, nil
	return err
}

func (p *peer) close() error {
	err := errors.Join(p.goOffline(), p.closeLog())
	p.client.CloseIdleConnections()
	if p.db != nil {
		err = errors.Join(err, p.db.Close())
	}
	return err
}

// drain waits until every change that was saved is in the log.
func (p *peer) drain() error { return p.box.Wait(p.relaying) }

// tellState adds to a message what the database says.
func (p *peer) tellState(ctx context.Context, m message) error {
	n, err := load(ctx, p.db, p.name)
	if err != nil {
		return err
	}
	m.Saves, m.Seen = n.saves, n.seen
	return p.say(m)
}
