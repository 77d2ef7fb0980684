package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/evlog-go/evlog/evlog"
)

// change is what a peer did to one field of a note: the value of a record in its
// log. The empty field is the note itself, which was deleted.
type change struct {
	Note  string `json:"note"`
	Field string `json:"field,omitempty"`
	Value string `json:"value,omitempty"`
	Stamp stamp  `json:"stamp"`
	// Seq numbers the changes of a peer, from 1. Seen is how many of the others'
	// changes it had when it made this one.
	Seq  uint64            `json:"seq"`
	Seen map[string]uint64 `json:"seen"`
}

const schemaChange = 1

func (c change) deletes() bool { return c.Field == "" }

// record is the change as the log has it, with the note as its key.
func (c change) record(now time.Time) (evlog.Record, error) {
	value, err := json.Marshal(c)
	return evlog.Record{Time: now, Schema: schemaChange, Key: []byte(c.Note), Value: value}, err
}

func readChange(rec evlog.Record) (c change, err error) {
	if rec.Schema != schemaChange {
		return c, fmt.Errorf("record %d has schema %d", rec.Offset, rec.Schema)
	}
	if err = json.Unmarshal(rec.Value, &c); err != nil {
		err = fmt.Errorf("record %d: %w", rec.Offset, err)
	}
	return c, err
}

// knew tells whether c was made by somebody who had o.
func (c change) knew(o change) bool {
	if c.Stamp.peer == o.Stamp.peer {
		return c.Seq >= o.Seq
	}
	return c.Seen[o.Stamp.peer] >= o.Seq
}

// conflicts tells whether neither of two changes was made in knowledge of the
// other. The rule decides those as all others; it is the users who may care.
func (c change) conflicts(o change) bool { return !c.knew(o) && !o.knew(c) }

// merge applies the rule to a change, the user's own or a foreign one:
//
//   - of two changes of a field the one with the higher stamp stays;
//   - a tombstone deletes every field of the note with a lower stamp, whether it
//     is there already or comes later. A field written after it makes the note
//     again.
//
// So it makes no difference in which order changes come, or whether one comes
// twice: all peers end up with the same.
func (n *notes) merge(ctx context.Context, c change) (conflicts int, err error) {
	rows, err := n.fieldsOf(ctx, c.Note, c.Field)
	if err != nil {
		return 0, err
	}
	stays := true
	for _, r := range rows {
		older := r.Stamp.compare(c.Stamp) < 0
		if c.conflicts(r) {
			conflicts++
			winner, loser := c, r
			if !older {
				winner, loser = r, c
			}
			if err := n.note(ctx, winner, loser); err != nil {
				return 0, err
			}
		}
		// A tombstone does not mind newer fields; everything else yields to what is
		// newer, or is here already.
		if !older && (r.Field == c.Field || r.deletes()) {
			stays = false
		}
	}
	if !stays {
		return conflicts, nil
	}
	return conflicts, n.put(ctx, c)
}

func (n *notes) put(ctx context.Context, c change) error {
	seen, err := json.Marshal(c.Seen)
	if err != nil {
		return err
	}
	if c.deletes() {
		if _, err := n.tx.ExecContext(ctx, `DELETE FROM field WHERE note = ?1 AND stamp < ?2`, c.Note, c.Stamp.String()); err != nil {
			return err
		}
	}
	_, err = n.tx.ExecContext(ctx, `INSERT INTO field (note, name, value, stamp, seq, seen) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
		ON CONFLICT (note, name) DO UPDATE SET
			value = excluded.value, stamp = excluded.stamp, seq = excluded.seq, seen = excluded.seen`,
		c.Note, c.Field, c.Value, c.Stamp.String(), c.Seq, string(seen))
	return err
}

// note writes a conflict down. Peers find the same one, each for itself.
func (n *notes) note(ctx context.Context, winner, loser change) error {
	_, err := n.tx.ExecContext(ctx, `INSERT INTO conflict (winner, loser, note, name, winning, losing)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO NOTHING`,
		winner.Stamp.String(), loser.Stamp.String(), winner.Note, cmp.Or(winner.Field, loser.Field), winner.shown(), loser.shown())
	return err
}

// shown is the change in words.
func (c change) shown() string {
	if c.deletes() {
		return "deleted"
	}
	return c.Value
}
