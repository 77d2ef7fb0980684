package outbox

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/format"
	"github.com/evlog-go/evlog/internal/outboxrule"
	"github.com/evlog-go/evlog/internal/sqldb"
)

// Put stores the records in the outbox as a part of the transaction tx: a
// *sql.Tx, a *sql.Conn after BEGIN, or what wraps one, such as the transaction
// that sqlbridge hands to its handlers. They are relayed after it has committed,
// in this order, and never if it does not. The time of a record without one is
// now; Offset is ignored. Put returns the UIDs of the rows, in the same order:
// they name the events for ever, and FindRelayed finds their offsets by them.
//
// A *sql.DB, or a transaction that SQLite has rolled back meanwhile, is
// ErrNotInTx. A transaction of another database that has an outbox too is not
// noticed: the records go there. A record that no log can hold, with a key above
// evlog.MaxKeyBytes or above evlog.MaxRecordBytes as a whole, is
// evlog.ErrTooLarge, unless Options.Encode makes the records. One that is only
// too large for the log at hand is parked by the relay. After an error roll the
// transaction back.
func (b *Box) Put(ctx context.Context, tx DBTX, records ...evlog.Record) ([]UID, error) {
	rows, err := b.newRows(records)
	if err == nil {
		err = b.inTransaction(ctx, tx)
	}
	if err != nil {
		return nil, wrap("put", err)
	}
	for some := range slices.Chunk(rows, rowsAtOnce) {
		if err := insert(ctx, tx, some); err != nil {
			return nil, wrap("put", err)
		}
	}
	uids := make([]UID, len(rows))
	for i := range rows {
		uids[i] = rows[i].uid
	}
	return uids, nil
}

// rowsAtOnce is how many rows one statement inserts.
const rowsAtOnce = 32

// insert inserts rows without dedupe keys.
func insert(ctx context.Context, q DBTX, rows []newRow) error {
	args := make([]any, 0, insertColumns*len(rows))
	for i := range rows {
		args = rows[i].appendColumns(args)
	}
	_, err := q.ExecContext(ctx, insertRows[len(rows)], args...)
	return insertError(err)
}

// insertError tells a value that is too large for SQLite itself, which holds 1e9
// bytes by default.
func insertError(err error) error {
	if sqldb.IsTooBig(err) {
		return fmt.Errorf("%w: %w", evlog.ErrTooLarge, err)
	}
	return tables.Error(err)
}

const insertColumns = 5

// insertRows are the statements for 1 to rowsAtOnce rows.
var insertRows = func() (queries [rowsAtOnce + 1]string) {
	query := `INSERT INTO main.evlog_outbox (uid, schema, ts_ms, key, value) VALUES `
	for n := 1; n <= rowsAtOnce; n++ {
		if n > 1 {
			query += `, `
		}
		query += `(?, ?, ?, ?, ?)`
		queries[n] = query
	}
	return queries
}()

// newRow is a row before it is inserted.
type newRow struct {
	uid    UID
	ms     int64
	record evlog.Record
}

func (r *newRow) appendColumns(args []any) []any {
	return append(args, r.uid[:], int64(r.record.Schema), r.ms, nullIfEmpty(r.record.Key), nullIfEmpty(r.record.Value))
}

// newRows gives each record a uid and a time, or refuses them all.
func (b *Box) newRows(records []evlog.Record) ([]newRow, error) {
	rows := make([]newRow, len(records))
	for i, r := range records {
		t := r.Time
		if t.IsZero() {
			t = b.clock.Now()
		}
		ms := t.UnixMilli()
		if time.UnixMilli(ms).Unix() != t.Unix() {
			return nil, fmt.Errorf("time %v: %w", r.Time, evlog.ErrTooLarge)
		}
		// Better an error here than a row that is parked later. What Encode makes of it
		// is not known here.
		if !b.encodes {
			if err := tooLarge(int64(len(r.Key)), int64(len(r.Value)), evlog.MaxRecordBytes); err != nil {
				return nil, err
			}
		}
		rows[i] = newRow{ms: ms, record: r}
		rand.Read(rows[i].uid[:]) // never fails
	}
	return rows, nil
}

// tooLarge refuses a record that a log with this limit does not take.
func tooLarge(keyBytes, valueBytes, most int64) error {
	size := format.HeaderSize + keyBytes + valueBytes
	switch {
	case keyBytes > evlog.MaxKeyBytes:
		return fmt.Errorf("a key of %d bytes: %w (at most %d)", keyBytes, evlog.ErrTooLarge, evlog.MaxKeyBytes)
	case size > most:
		return fmt.Errorf("a record of %d bytes: %w (at most %d)", size, evlog.ErrTooLarge, most)
	}
	return nil
}

// PutOnce is Put for a record that must not come twice: if a row with this
// dedupe key is in the outbox, queued, parked, or kept after it was relayed (see
// Options.KeepFor), it does nothing, and returns false and the UID of that row.
// The key must not be empty.
func (b *Box) PutOnce(ctx context.Context, tx DBTX, dedupeKey string, r evlog.Record) (uid UID, put bool, err error) {
	if dedupeKey == "" {
		return UID{}, false, fmt.Errorf("outbox: put: the dedupe key is empty: %w", evlog.ErrBadOptions)
	}
	rows, err := b.newRows([]evlog.Record{r})
	if err == nil {
		err = b.inTransaction(ctx, tx)
	}
	if err == nil {
		uid, put, err = b.insertOnce(ctx, tx, dedupeKey, &rows[0])
	}
	return uid, put, wrap("put", err)
}

func (b *Box) insertOnce(ctx context.Context, q DBTX, dedupeKey string, r *newRow) (uid UID, put bool, err error) {
	var key any = dedupeKey
	if b.rules.Off(outboxrule.Dedupe) {
		key = nil
	}
	res, err := q.ExecContext(ctx, insertOnce, append(r.appendColumns(nil), key)...)
	if err != nil {
		return UID{}, false, insertError(err)
	}
	if n, err := res.RowsAffected(); err != nil || n > 0 {
		return r.uid, err == nil, err
	}
	var there []byte
	err = q.QueryRowContext(ctx, `SELECT uid FROM main.evlog_outbox WHERE dedupe = ?1
		UNION ALL SELECT uid FROM main.evlog_outbox_kept WHERE dedupe = ?1 LIMIT 1`, dedupeKey).Scan(&there)
	copy(uid[:], there)
	return uid, false, err
}

const insertOnce = `INSERT INTO main.evlog_outbox (uid, schema, ts_ms, key, value, dedupe)
	SELECT ?1, ?2, ?3, ?4, ?5, ?6
	WHERE NOT EXISTS (SELECT 1 FROM main.evlog_outbox_kept WHERE dedupe = ?6)
	ON CONFLICT (dedupe) WHERE dedupe IS NOT NULL DO NOTHING`

func (b *Box) inTransaction(ctx context.Context, q DBTX) error {
	if b.rules.Off(outboxrule.InTx) {
		return nil
	}
	return sqldb.InTransaction(ctx, q, false, ErrNotInTx)
}

// nullIfEmpty: an empty key and none are the same to a log, and not every driver
// reads an empty blob back as one.
func nullIfEmpty(b []byte) any {
	if len(b) == 0 {
		return nil
	}
	return b
}
