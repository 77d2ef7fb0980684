package outbox

import (
	"context"
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
	Kept    int // rows that were relayed, or dropped by a policy, and are kept
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

// FindRow returns the row with this id, if it is in the outbox, queued or parked.
// It needs no Box. Errors are those of ReadStatus.
func FindRow(ctx context.Context, q DBTX, id int64) (row Row, found bool, err error) {
	if err = tables.Check(ctx, q); err == nil {
		err = queryRows(ctx, q, true, func(r readRow) bool {
			row, found = r.Row, true
			return false
		}, noLimit, `WHERE id = ?3`, id)
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

// FindRelayed returns where the row with this uid went, if it is kept. One that
// DropIntent has dropped is not found: nobody knows where it is. It needs no Box.
// Errors are those of ReadStatus.
func FindRelayed(ctx context.Context, q DBTX, uid UID) (r Relayed, found bool, err error) {
	if err := tables.Check(ctx, q); err != nil {
		return r, false, wrap("find", err)
	}
	rows, err := q.QueryContext(ctx, `SELECT coalesce(dedupe, ''), log_id, "offset", relayed_ms
		FROM main.evlog_outbox_kept WHERE uid = ?1 AND "offset" >= 0`, uid[:])
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
