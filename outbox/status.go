package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// Status is what the tables of an outbox say.
type Status struct {
	Outbox string // its id
	Queued int    // rows that are to be relayed, the open intent's included
	Parked int
	Kept   int // rows that were relayed and are kept
	// Oldest is the time of the queued row with the lowest id; zero without one.
	Oldest time.Time
	// LogID is the log that the outbox was relayed into, empty for none, and
	// LogEnd the offset at which that ended when the relay looked last.
	LogID  string
	LogEnd uint64
	// Epoch is how often a relay or an opening has taken the outbox over.
	Epoch int64
	// IntentRows rows are about to be appended at IntentOffset, or were: the relay
	// or the next opening of the log finds out. 0 for none.
	IntentRows   int
	IntentOffset uint64
}

// ReadStatus reads the state of an outbox. It needs no Box. ErrNoTables: there is
// none in this database.
func ReadStatus(ctx context.Context, q DBTX) (Status, error) {
	var s Status
	var oldest int64
	err := q.QueryRowContext(ctx, `SELECT box, log_id, log_end, epoch, n, "offset",
		(SELECT count(*) FROM main.evlog_outbox WHERE parked IS NULL),
		(SELECT count(*) FROM main.evlog_outbox WHERE parked IS NOT NULL),
		(SELECT count(*) FROM main.evlog_outbox_kept),
		coalesce((SELECT ts_ms FROM main.evlog_outbox WHERE parked IS NULL ORDER BY id LIMIT 1), 0)
		FROM main.evlog_outbox_relay WHERE one = 1`).
		Scan(&s.Outbox, &s.LogID, &s.LogEnd, &s.Epoch, &s.IntentRows, &s.IntentOffset, &s.Queued, &s.Parked, &s.Kept, &oldest)
	if errors.Is(err, sql.ErrNoRows) {
		err = errNoRelayRow
	}
	if err != nil {
		return s, wrap("status", tableError(err))
	}
	if s.Queued > 0 {
		s.Oldest = timeOf(oldest)
	}
	return s, nil
}

// Parked returns the rows that cannot be appended, in the order of their ids. It
// needs no Box.
func Parked(ctx context.Context, q DBTX) (rows []Row, err error) {
	err = queryRows(ctx, q, func(r Row) bool {
		rows = append(rows, r)
		return false
	}, `SELECT `+rowColumns+` FROM main.evlog_outbox WHERE parked IS NOT NULL ORDER BY id`)
	return rows, wrap("parked", err)
}

// Relayed is a row that was relayed and is kept (see Options.KeepFor).
type Relayed struct {
	UID       UID
	DedupeKey string
	LogID     string
	Offset    uint64
	At        time.Time
}

// FindRelayed returns where the row with this uid went, if it is kept.
func FindRelayed(ctx context.Context, q DBTX, uid UID) (r Relayed, found bool, err error) {
	rows, err := q.QueryContext(ctx, `SELECT coalesce(dedupe, ''), log_id, "offset", relayed_ms
		FROM main.evlog_outbox_kept WHERE uid = ?1`, uid[:])
	if err != nil {
		return r, false, wrap("find", tableError(err))
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var ms int64
		if err := rows.Scan(&r.DedupeKey, &r.LogID, &r.Offset, &ms); err != nil {
			return r, false, wrap("find", err)
		}
		r.UID, r.At, found = uid, time.UnixMilli(ms).UTC(), true
	}
	return r, found, wrap("find", tableError(rows.Err()))
}

// Requeue makes parked rows queued again, under the ids they had, for when what
// stood in their way is gone: a limit was raised, or Encode was mended. An id
// that no parked row has is ErrNotParked, and nothing is changed.
func (b *Box) Requeue(ctx context.Context, ids ...int64) error {
	err := b.eachParked(ctx, `UPDATE main.evlog_outbox SET parked = NULL WHERE id = ?1 AND parked IS NOT NULL`, ids)
	if err == nil {
		b.Notify()
	}
	return wrap("requeue", err)
}

// Discard deletes parked rows for good. An id that no parked row has is
// ErrNotParked, and nothing is changed.
func (b *Box) Discard(ctx context.Context, ids ...int64) error {
	return wrap("discard", b.eachParked(ctx, `DELETE FROM main.evlog_outbox WHERE id = ?1 AND parked IS NOT NULL`, ids))
}

func (b *Box) eachParked(ctx context.Context, query string, ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	return b.inOwnTx(ctx, func(t *tx) error {
		for _, id := range ids {
			n, err := t.changed(query, id)
			if err == nil && n == 0 {
				err = fmt.Errorf("row %d: %w", id, ErrNotParked)
			}
			if err != nil {
				return tableError(err)
			}
		}
		return nil
	})
}
