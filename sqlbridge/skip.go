package sqlbridge

import (
	"context"
	"fmt"
	"time"

	"github.com/evlog-go/evlog/cursor"
	"github.com/evlog-go/evlog/evlog"
)

// Skipped says that a cursor passed offsets that were not applied.
type Skipped struct {
	Name  string
	LogID string
	// Range is half-open. It is empty for a reset that passed over nothing.
	Range evlog.OffsetRange
	// Attempts is how often the record was tried; 0 for a reset or by hand.
	Attempts int
	// Error is what the last attempt failed with, or why the cursor was moved.
	Error string
	At    time.Time
}

// Skips returns what consumers of this database have passed over, oldest first:
// those of one name, or of all for the empty name. As Positions it needs no
// Bridge.
func Skips(ctx context.Context, q DBTX, name string) ([]Skipped, error) {
	rows, err := q.QueryContext(ctx, `SELECT name, log_id, first, next, attempts, error, at_ms FROM main.evlog_skipped
		WHERE ?1 = '' OR name = ?1 ORDER BY id`, name)
	if err != nil {
		return nil, fmt.Errorf("sqlbridge: skips: %w", tables.Error(err))
	}
	defer func() { _ = rows.Close() }()
	var all []Skipped
	for rows.Next() {
		var s Skipped
		var at int64
		if err := rows.Scan(&s.Name, &s.LogID, &s.Range.From, &s.Range.To, &s.Attempts, &s.Error, &at); err != nil {
			return nil, fmt.Errorf("sqlbridge: skips: %w", err)
		}
		s.At = time.UnixMilli(at).UTC()
		all = append(all, s)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("sqlbridge: skips: %w", tables.Error(err))
	}
	return all, nil
}

func (b *Bridge) insertSkip(u *unit, s Skipped) error {
	_, err := u.exec(`INSERT INTO main.evlog_skipped (name, log_id, first, next, attempts, error, at_ms)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)`,
		s.Name, s.LogID, int64(s.Range.From), int64(s.Range.To), s.Attempts, s.Error, b.nowMS())
	return err
}

func (a *applier) skipOf(f failure) Skipped {
	return Skipped{
		Name: a.name, LogID: a.logID, Range: evlog.OffsetRange{From: f.offset, To: f.offset + 1},
		Attempts: f.times, Error: f.err.Error(),
	}
}

func (a *applier) logSkip(s Skipped) {
	a.b.logger.Warn("record skipped", "consumer", s.Name, "offset", s.Range.From, "attempts", s.Attempts, "err", s.Error)
}

// Skip passes over the record at offset, at which the cursor of name stands, and
// notes it with the reason, in one transaction: for a record that stopped a
// consumer and never will be applied. A cursor that stands elsewhere is a
// *cursor.MovedError.
func (b *Bridge) Skip(ctx context.Context, name string, offset uint64, reason string) error {
	if err := cursor.CheckName(name); err != nil {
		return err
	}
	err := b.inTx(ctx, func(u *unit) error {
		p, known, err := position(u.ctx, u.tx, name)
		if err != nil {
			return err
		}
		if !known {
			return cursor.ErrUnknownConsumer
		}
		m, err := b.move(name, p.LogID, offset, offset+1)
		if err != nil {
			return err
		}
		if err := b.advance(u.ctx, u.tx, m); err != nil {
			return err
		}
		return b.insertSkip(u, Skipped{
			Name: name, LogID: p.LogID, Range: evlog.OffsetRange{From: offset, To: offset + 1}, Error: reason,
		})
	})
	return wrap("skip", name, err)
}

// Reset puts the cursor of name at next in the log with this id, wherever it
// stood, and notes it with the reason. It is the way out of a CommittedError,
// and the means of tools; consumers that are running get a *cursor.MovedError.
func (b *Bridge) Reset(ctx context.Context, name, logID string, next uint64, reason string) error {
	m, err := b.move(name, logID, 0, next)
	if err != nil {
		return err
	}
	err = b.inTx(ctx, func(u *unit) error {
		if _, err := u.exec(`INSERT INTO main.evlog_cursor (name, log_id, next, updated_ms) VALUES (?1, ?2, 0, ?3)
			ON CONFLICT (name) DO NOTHING`, m.name, m.logID, m.nowMS); err != nil {
			return err
		}
		p, _, err := position(u.ctx, u.tx, name)
		if err != nil {
			return err
		}
		return b.reset(u, p, m, reason, passedOver(p, logID, next))
	})
	return wrap("reset", name, err)
}

// passedOver is what a reset leaves out, as far as the cursor alone tells.
func passedOver(p Position, logID string, next uint64) evlog.OffsetRange {
	if p.LogID == logID && p.Next < next {
		return evlog.OffsetRange{From: p.Next, To: next}
	}
	return evlog.OffsetRange{From: next, To: next}
}

const resetCursor = `UPDATE main.evlog_cursor SET log_id = ?4, next = ?5, claimed = NULL, updated_ms = ?6
	WHERE name = ?1 AND log_id = ?2 AND next = ?3 AND coalesce(claimed, 0) = ?7`

// reset moves a cursor that stands at p to m.to.
func (b *Bridge) reset(u *unit, p Position, m move, reason string, lost evlog.OffsetRange) error {
	ok, err := changed(u.exec(resetCursor, m.name, p.LogID, int64(p.Next), m.logID, m.to, m.nowMS, int64(p.Claimed)))
	if err != nil {
		return err
	}
	if !ok {
		m.from, m.logID = int64(p.Next), p.LogID
		return refusal(u.ctx, u.tx, m)
	}
	return b.insertSkip(u, Skipped{Name: m.name, LogID: m.logID, Range: lost, Error: reason})
}

// Remove forgets a consumer. What it passed over stays noted.
// cursor.ErrUnknownConsumer: there is none.
func (b *Bridge) Remove(ctx context.Context, name string) error {
	err := b.inTx(ctx, func(u *unit) error {
		ok, err := changed(u.exec(`DELETE FROM main.evlog_cursor WHERE name = ?1`, name))
		if err == nil && !ok {
			err = cursor.ErrUnknownConsumer
		}
		return err
	})
	return wrap("remove", name, err)
}
