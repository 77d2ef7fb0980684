package outbox

import (
	"context"
	"fmt"
	"time"
)

// Status is what the tables of an outbox say.
type Status struct {
	Outbox string // its id
	// Queued is how many rows are in the queue, and Pending how many of them no
	// intent names: these are certainly not in the log. The others are the last
	// batch. They are in the log or about to be, and are deleted with the next
	// batch, or 10 ms later, or, after a crash, when the log is opened again.
	// Box.Wait tells when all is in the log.
	Queued  int
	Pending int
	Parked  int
	Kept    int // rows that were relayed and are kept
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

// statusQuery takes the ids of the intent, "17:1016,1018", apart into runs.
const statusQuery = `WITH RECURSIVE
	parts (run, rest) AS (
		SELECT '', ids || ',' FROM main.evlog_outbox_relay WHERE one = 1 AND n > 0
		UNION ALL
		SELECT substr(rest, 1, instr(rest, ',') - 1), substr(rest, instr(rest, ',') + 1) FROM parts WHERE rest <> ''),
	runs (low, high) AS (
		SELECT CAST(run AS INTEGER), CAST(substr(run, instr(run, ':') + 1) AS INTEGER) FROM parts WHERE run <> ''),
	queued (n) AS (SELECT count(*) FROM main.evlog_outbox WHERE parked IS NULL)
	SELECT box, log_id, log_end, epoch, n, "offset",
	(SELECT n FROM queued),
	(SELECT n FROM queued) - coalesce((SELECT sum((SELECT count(*) FROM main.evlog_outbox
		WHERE parked IS NULL AND id BETWEEN low AND high)) FROM runs), 0),
	(SELECT count(*) FROM main.evlog_outbox WHERE parked IS NOT NULL),
	(SELECT count(*) FROM main.evlog_outbox_kept),
	coalesce((SELECT ts_ms FROM main.evlog_outbox WHERE parked IS NULL ORDER BY id LIMIT 1), 0)
	FROM main.evlog_outbox_relay WHERE one = 1`

// ReadStatus reads the state of an outbox. It needs no Box. ErrNoTables: there is
// none in this database. evlog.ErrVersion: its tables are a later version's.
func ReadStatus(ctx context.Context, q DBTX) (Status, error) {
	var s Status
	var oldest int64
	err := tables.Check(ctx, q)
	if err == nil {
		err = q.QueryRowContext(ctx, statusQuery).Scan(&s.Outbox, &s.LogID, &s.LogEnd, &s.Epoch, &s.IntentRows, &s.IntentOffset,
			&s.Queued, &s.Pending, &s.Parked, &s.Kept, &oldest)
	}
	if err != nil {
		return Status{}, wrap("status", relayRowError(err))
	}
	if s.Queued > 0 {
		s.Oldest = timeOf(oldest)
	}
	return s, nil
}

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

// FindRow returns the row with this id, if it is in the outbox, queued or parked.
// It needs no Box. Errors are those of ReadStatus.
func FindRow(ctx context.Context, q DBTX, id int64) (row Row, found bool, err error) {
	if err = tables.Check(ctx, q); err == nil {
		err = queryRows(ctx, q, func(r Row) bool {
			row, found = r, true
			return false
		}, `SELECT `+rowColumns+` FROM main.evlog_outbox WHERE id = ?1`, id)
	}
	return row, found, wrap("find", err)
}

// Relayed is a row that was relayed and is kept (see Options.KeepFor).
type Relayed struct {
	UID       UID
	DedupeKey string
	LogID     string
	Offset    uint64
	At        time.Time
}

// FindRelayed returns where the row with this uid went, if it is kept. It needs no
// Box. Errors are those of ReadStatus.
func FindRelayed(ctx context.Context, q DBTX, uid UID) (r Relayed, found bool, err error) {
	if err := tables.Check(ctx, q); err != nil {
		return r, false, wrap("find", err)
	}
	rows, err := q.QueryContext(ctx, `SELECT coalesce(dedupe, ''), log_id, "offset", relayed_ms
		FROM main.evlog_outbox_kept WHERE uid = ?1`, uid[:])
	if err != nil {
		return r, false, wrap("find", tables.Error(err))
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var ms int64
		if err := rows.Scan(&r.DedupeKey, &r.LogID, &r.Offset, &ms); err != nil {
			return r, false, wrap("find", err)
		}
		r.UID, r.At, found = uid, time.UnixMilli(ms).UTC(), true
	}
	return r, found, wrap("find", tables.Error(rows.Err()))
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
