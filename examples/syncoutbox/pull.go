package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/sqlbridge"
)

// pullBatch is how many foreign changes are applied in one transaction.
const pullBatch = 50

// pull gets what another peer has and this one has not. It can be killed
// anywhere: changes and cursor are committed together, and acknowledged after
// that. Foreign changes go into the database and nowhere else, not into the
// outbox and so not into this peer's log: each peer tells of its own only.
func (p *peer) pull(ctx context.Context, now time.Time, from, url string) error {
	err := p.tryPull(ctx, now, from, url)
	switch {
	case errors.Is(err, errGone):
		return p.say(message{What: sayGone, From: from, Text: err.Error()})
	case errors.Is(err, errAhead):
		return p.say(message{What: sayHeld, From: from, Text: err.Error()})
	}
	return err
}

func (p *peer) tryPull(ctx context.Context, now time.Time, from, url string) error {
	log, err := dial(ctx, p.client, url)
	if err != nil {
		return err
	}
	pos, err := p.bridge.Cursor(ctx, p.db, from)
	if err != nil {
		return err
	}
	batch := make([]evlog.Record, 0, pullBatch)
	for rec, err := range log.Records(ctx, pos.Next) {
		if errors.Is(err, evlog.ErrOffsetOutOfRange) {
			return p.refetch(ctx, now, from, log, pos, err)
		}
		if err != nil {
			return err
		}
		if batch = append(batch, rec); len(batch) == pullBatch {
			if err := p.apply(ctx, now, from, log, batch); err != nil {
				return err
			}
			batch = batch[:0]
		}
	}
	return p.apply(ctx, now, from, log, batch)
}

// apply applies changes together with the cursor, and then acknowledges them.
func (p *peer) apply(ctx context.Context, now time.Time, from string, log *remote, batch []evlog.Record) error {
	if len(batch) == 0 {
		return nil
	}
	conflicts := 0
	applied := func(ctx context.Context, tx *sqlbridge.Tx, rec evlog.Record) error {
		c, err := readChange(rec)
		if err != nil {
			return err
		}
		n, err := load(ctx, tx, p.name)
		if err != nil {
			return err
		}
		found, err := n.receive(ctx, now, from, c)
		if err != nil {
			return err
		}
		conflicts += found
		return n.store(ctx)
	}
	// After an error what came before the record is applied all the same.
	err := p.bridge.Process(ctx, log, from, batch, applied, nil)
	pos, err2 := p.bridge.Cursor(ctx, p.db, from)
	if err2 != nil {
		return errors.Join(err, err2)
	}
	if pos.Next > batch[0].Offset {
		got := message{What: sayGot, From: from, Records: int(pos.Next - batch[0].Offset), Conflicts: conflicts}
		if err := p.tellState(ctx, got); err != nil {
			return err
		}
		if err := log.acknowledge(ctx, acknowledgment{p.name, pos.Next}); err != nil {
			return err
		}
	}
	return err
}

// refetch is for a peer that was away for so long that the other one has dropped
// what it would read next: it merges all that the other one has, by the same
// rule, and puts its cursor behind that, in one transaction.
func (p *peer) refetch(ctx context.Context, now time.Time, from string, log *remote, pos sqlbridge.Position, why error) error {
	s, err := log.snapshot(ctx)
	if err != nil {
		return err
	}
	conflicts := 0
	err = p.box.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if err := p.bridge.Advance(ctx, tx, from, s.ID, pos.Next, s.Next); err != nil {
			return err
		}
		n, err := load(ctx, tx, p.name)
		if err != nil {
			return err
		}
		for _, c := range s.Fields {
			if err := n.clock.see(c.Stamp, now); err != nil {
				return err
			}
			found, err := n.merge(ctx, c)
			if err != nil {
				return err
			}
			conflicts += found
		}
		for peer, seq := range s.Seen {
			n.seen[peer] = max(n.seen[peer], seq)
		}
		return n.store(ctx)
	})
	if err != nil {
		return fmt.Errorf("refetch: %w", err)
	}
	told := message{What: sayRefetch, From: from, Records: len(s.Fields), Conflicts: conflicts, Text: why.Error()}
	if err := p.tellState(ctx, told); err != nil {
		return err
	}
	return log.acknowledge(ctx, acknowledgment{p.name, s.Next})
}
