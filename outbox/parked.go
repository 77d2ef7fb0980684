package outbox

import (
	"context"
	"fmt"
	"time"
)

// ParkedRow is a row that cannot be appended, without what may be large: FindRow
// has the whole.
type ParkedRow struct {
	ID     int64
	UID    UID
	Time   time.Time
	Schema uint16
	// Key is the key, or its first 256 bytes. The sizes are those of the whole.
	Key                  []byte
	KeyBytes, ValueBytes int64
	DedupeKey            string
	Attempts             int    // how often the row was tried and parked
	Reason               string // why it cannot be appended
}

// Parked returns the rows that cannot be appended, in the order of their ids. It
// needs no Box. Errors are those of ReadStatus.
func Parked(ctx context.Context, q DBTX) ([]ParkedRow, error) {
	rows, err := parkedRows(ctx, q)
	return rows, wrap("parked", err)
}

func parkedRows(ctx context.Context, q DBTX) (all []ParkedRow, err error) {
	if err := tables.Check(ctx, q); err != nil {
		return nil, err
	}
	rows, err := q.QueryContext(ctx, `SELECT id, uid, ts_ms, schema, substr(key, 1, 256),
		coalesce(length(key), 0), coalesce(length(value), 0), coalesce(dedupe, ''), attempts, parked
		FROM main.evlog_outbox WHERE parked IS NOT NULL ORDER BY id`)
	if err != nil {
		return nil, tables.Error(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var r ParkedRow
		var uid []byte
		var ms int64
		if err := rows.Scan(&r.ID, &uid, &ms, &r.Schema, &r.Key, &r.KeyBytes, &r.ValueBytes, &r.DedupeKey, &r.Attempts, &r.Reason); err != nil {
			return nil, err
		}
		copy(r.UID[:], uid)
		r.Time = timeOf(ms)
		all = append(all, r)
	}
	return all, tables.Error(rows.Err())
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
		if err := tables.Check(ctx, t); err != nil {
			return err
		}
		for _, id := range ids {
			n, err := t.changed(query, id)
			if err == nil && n == 0 {
				err = fmt.Errorf("row %d: %w", id, ErrNotParked)
			}
			if err != nil {
				return tables.Error(err)
			}
		}
		return nil
	})
}
