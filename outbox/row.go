package outbox

import (
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/evlog-go/evlog/evlog"
)

// UID is the random identity of a row. It stays the same wherever the row goes:
// through a crash, a restored database, or parking.
type UID [16]byte

// String is the UID in hexadecimal.
func (u UID) String() string { return hex.EncodeToString(u[:]) }

// Row is a row of the outbox.
type Row struct {
	// ID orders the rows. It may be given out again after a row is gone: what
	// names an event for ever is UID.
	ID     int64
	UID    UID
	Record evlog.Record // as it was put, without an offset
	// DedupeKey is that of PutOnce; empty for none.
	DedupeKey string
	// Attempts is how often the row was tried and parked.
	Attempts int
	// Parked is why it cannot be appended; empty if it is not parked.
	Parked string
}

const rowColumns = `id, uid, schema, ts_ms, attempts, parked, dedupe, key, value`

// scanRow reads the columns of rowColumns.
func scanRow(scan func(...any) error) (r Row, err error) {
	var uid []byte
	var schema, ms int64
	var parked, dedupe sql.NullString
	if err := scan(&r.ID, &uid, &schema, &ms, &r.Attempts, &parked, &dedupe, &r.Record.Key, &r.Record.Value); err != nil {
		return r, err
	}
	if len(uid) != len(r.UID) {
		return r, fmt.Errorf("row %d: a uid of %d bytes", r.ID, len(uid))
	}
	copy(r.UID[:], uid)
	r.Record.Schema, r.Record.Time = uint16(schema), timeOf(ms)
	r.Parked, r.DedupeKey = parked.String, dedupe.String
	return r, nil
}

// timeOf keeps the one millisecond that would come out as the zero Time from
// being taken for "stamp it".
func timeOf(ms int64) time.Time {
	t := time.UnixMilli(ms).UTC()
	if t.IsZero() {
		t = t.Add(1)
	}
	return t
}

// queryRows reads rows until there are no more or full says so. Each statement
// is read to its end or closed, so that no read transaction stays open.
func queryRows(ctx context.Context, q DBTX, full func(Row) bool, query string, args ...any) error {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return tableError(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		r, err := scanRow(rows.Scan)
		if err != nil {
			return err
		}
		if full(r) {
			return rows.Close()
		}
	}
	return tableError(rows.Err())
}
