package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"runtime/debug"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/outboxrule"
)

// batch is what is appended at once.
type batch struct {
	rows    []rowRef
	records []evlog.Record
}

// read returns the next rows: the lowest ids that are queued, whichever they are.
// An id below one that was relayed before is no reason to leave a row out, since
// ids can be given out again. Only the batch whose rows are about to be deleted
// is passed over.
func (r *relay) read(ctx context.Context) ([]readRow, error) {
	most := r.most()
	rows := make([]readRow, 0, min(most, len(r.done.rows))) // likely as many as the last time
	size, full := int64(0), false
	take := func(row readRow) bool {
		rows = append(rows, row)
		size += int64(len(row.Record.Key) + len(row.Record.Value))
		full = len(rows) >= most || size >= r.b.opts.BatchBytes
		return full
	}
	limit := noLimit
	if !r.b.encodes { // into something smaller, perhaps
		limit = blobSizes{evlog.MaxKeyBytes, r.log.MaxRecordBytes()}
	}
	err := r.use(ctx, func(s *session) error {
		// Before the rows: what is committed in between must not be missed. It takes
		// a moment, which Notify is there to save; then the next poll reads again.
		if r.known = false; !r.woken {
			if err := r.look(ctx, s); err != nil {
				return err
			}
		}
		r.woken = false
		for _, ids := range r.idsToRead() {
			if full {
				break
			}
			if err := queryRows(context.WithoutCancel(ctx), s, r.b.encodes, take, limit,
				`WHERE parked IS NULL AND id BETWEEN ?3 AND ?4 ORDER BY id LIMIT ?5`, ids[0], ids[1], most-len(rows)); err != nil {
				return err
			}
		}
		return nil
	})
	return rows, err
}

// idsToRead are the first and last ids of what is left of all ids without those
// of the batch that is about to be deleted. SQLite begins at the first one, and
// need not look at rows only to leave them out.
func (r *relay) idsToRead() [][2]int64 {
	n := len(r.done.rows)
	if n == 0 {
		return [][2]int64{{math.MinInt64, math.MaxInt64}}
	}
	first, last := r.done.rows[0].id, r.done.rows[n-1].id
	var ids [][2]int64
	if first > math.MinInt64 {
		ids = append(ids, [2]int64{math.MinInt64, first - 1})
	}
	if last < math.MaxInt64 {
		ids = append(ids, [2]int64{last + 1, math.MaxInt64})
	}
	return ids
}

// unfit is a row that cannot be appended.
type unfit struct {
	row Row
	err error
}

// encode makes the records, up to BatchBytes of them, and tells those that the
// log would refuse. What Encode makes of a row can be larger than the row.
func (r *relay) encode(rows []readRow) (b batch, bad []unfit) {
	size := int64(0)
	b.rows, b.records = make([]rowRef, 0, len(rows)), make([]evlog.Record, 0, len(rows))
	for _, row := range rows {
		rec, err := r.recordOf(row)
		if err != nil && !r.b.rules.Off(outboxrule.Park) {
			bad = append(bad, unfit{row.Row, err})
			continue
		}
		if size += rec.Size(); size > r.b.opts.BatchBytes && len(b.rows) > 0 {
			break
		}
		b.rows = append(b.rows, rowRef{id: row.ID, uid: row.UID, sum: sumOf(rec)})
		b.records = append(b.records, rec)
	}
	return b, bad
}

// recordOf is the record of a row, or why the log would refuse it.
func (r *relay) recordOf(row readRow) (evlog.Record, error) {
	most := r.log.MaxRecordBytes()
	if row.large {
		return evlog.Record{}, tooLarge(row.key, row.value, most)
	}
	rec, err := r.encodeRow(row.Row)
	if err == nil {
		err = tooLarge(int64(len(rec.Key)), int64(len(rec.Value)), most)
	}
	if err != nil {
		return rec, err
	}
	if rec.Time.IsZero() {
		rec.Time = row.Record.Time // each append of the row is to be the same
	}
	return rec, r.log.Check(rec)
}

// encodeRow calls Encode. A panic in it is that row's error: it would come again
// with every start, and nothing behind the row would get into the log.
func (r *relay) encodeRow(row Row) (rec evlog.Record, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic in Encode: %v", p)
			r.b.logger.Error("outbox: panic in Encode", "id", row.ID, "panic", p, "stack", string(debug.Stack()))
		}
	}()
	if rec, err = r.b.opts.Encode(row); err != nil && err.Error() == "" {
		err = fmt.Errorf("an error without a text from Encode: %T", err)
	}
	return rec, err
}

// park sets rows aside, with the reason. A row that is gone meanwhile is none to
// tell of.
func (r *relay) park(ctx context.Context, bad []unfit) error {
	var parked []unfit
	err := r.transact(ctx, func(t *tx) error {
		for _, u := range bad {
			var dedupe sql.NullString // read has left it out, unless Encode needed it
			err := t.row(`UPDATE main.evlog_outbox SET parked = ?3, attempts = attempts + 1 WHERE id = ?1 AND uid = ?2
				RETURNING attempts, dedupe`, u.row.ID, u.row.UID[:], u.err.Error()).Scan(&u.row.Attempts, &dedupe)
			if errors.Is(err, sql.ErrNoRows) {
				continue
			}
			if err != nil {
				return err
			}
			u.row.DedupeKey, u.row.Parked = dedupe.String, u.err.Error()
			parked = append(parked, u)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, u := range parked {
		r.b.logger.Warn("outbox: row parked", "id", u.row.ID, "uid", u.row.UID, "err", u.err)
		r.event(Event{Kind: EventParked, Row: u.row, Err: u.err})
	}
	return nil
}
