package evlog

import (
	"context"
	"errors"
	"fmt"
)

// Gate is the append gate: while it is held nobody else can append, so that its
// holder knows the offset that its next record will get, before appending. It
// is what the outbox needs for its intents. Its methods belong to one goroutine.
type Gate struct {
	l      *Log
	holder string
	next   uint64
	freed  bool
}

// Gate waits until nobody holds the append gate, takes it, and makes everything
// that was accepted before durable. holder says in Stats who has it. Other
// appends wait until Release, or their contexts end; so does Close.
func (l *Log) Gate(ctx context.Context, holder string) (*Gate, error) {
	g := &Gate{l: l, holder: holder}
	l.mu.Lock()
	if err := l.admitLocked(ctx, 0, nil); err != nil {
		l.mu.Unlock()
		return nil, err
	}
	l.gate, l.gateFree = g, make(chan struct{})
	l.mu.Unlock()
	if err := l.Flush(ctx); err != nil {
		g.Release()
		return nil, err
	}
	l.mu.Lock()
	g.next = l.nextOffset
	l.mu.Unlock()
	return g, nil
}

// Next is the offset that the next record gets.
func (g *Gate) Next() uint64 { return g.next }

// Ticket is the outcome of a batch written through the gate.
type Ticket struct {
	l *Log
	c *commit
}

// Write writes the records as one batch at Next and returns when its own write
// has succeeded, before it is durable. The gate may be released then; Wait
// tells when the batch is durable. After an error that is no poison, nothing of
// the batch is in the log.
func (g *Gate) Write(records ...Record) (*Ticket, error) {
	l := g.l
	if g.freed {
		return nil, errors.New("evlog: the gate was released")
	}
	if len(records) == 0 {
		return nil, badOption("Write", "needs a record")
	}
	size, _, err := l.measure(records)
	if err != nil {
		return nil, err
	}
	now := l.stamps.now()
	l.mu.Lock()
	if l.err != nil || l.gate != g {
		defer l.mu.Unlock()
		return nil, l.err
	}
	first, c, err := l.encodeAndUnlock(records, size, now, offsetsGiven, true)
	if err != nil {
		return nil, err
	}
	if first != g.next {
		return nil, l.poison(fmt.Errorf("evlog: gate: offset %d was promised, %d given", g.next, first))
	}
	g.next += uint64(len(records))
	l.turn <- struct{}{}
	defer l.releaseTurn()
	select {
	case <-c.done: // somebody had the turn and took it along
		return &Ticket{l, c}, c.err
	default:
	}
	if err := l.commit(false); err != nil {
		return nil, err
	}
	return &Ticket{l, c}, nil
}

// Wait waits until the batch is durable. If ctx ends before, the error is
// ErrUnconfirmed.
func (t *Ticket) Wait(ctx context.Context) error { return t.l.lead(ctx, t.c) }

// End makes everything in the log durable and returns the offset after the last
// record that is there: after a failed Write, how much of it.
func (g *Gate) End(ctx context.Context) (uint64, error) {
	l := g.l
	if err := l.acquireTurn(ctx); err != nil {
		return 0, err
	}
	defer l.releaseTurn()
	if err := l.failure(); err != nil {
		return 0, err
	}
	if err := l.syncAndPublish(); err != nil {
		return 0, err
	}
	return l.act.next, nil
}

// Abandon poisons the log and opens the gate: for a holder that can neither keep
// what it promised about the offset Next nor take it back. The log has to be
// opened again, where the open hook decides before anybody appends. The error is
// what every call gets from now on.
func (g *Gate) Abandon(cause error) error {
	err := g.l.poison(fmt.Errorf("evlog: gate: %s gave up: %w", g.holder, cause))
	g.Release()
	return err
}

// Release opens the gate. Calling it again does nothing.
func (g *Gate) Release() {
	l := g.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if g.freed {
		return
	}
	g.freed = true
	l.gate = nil
	close(l.gateFree)
}
