package outbox

import (
	"context"
	"fmt"
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
func (r *relay) read(ctx context.Context) (rows []readRow, err error) {
	most := r.most()
	size := int64(0)
	full := func(row readRow) bool {
		rows = append(rows, row)
		size += int64(len(row.Record.Key) + len(row.Record.Value))
		return len(rows) >= most || size >= r.b.opts.BatchBytes
	}
	first, last := int64(1), int64(0) // nothing
	if n := len(r.done.rows); n > 0 {
		first, last = r.done.rows[0].id, r.done.rows[n-1].id
	}
	limit := noLimit
	if !r.b.encodes { // into something smaller, perhaps
		limit = blobSizes{evlog.MaxKeyBytes, r.log.MaxRecordBytes()}
	}
	err = r.use(ctx, func(s *session) error {
		// Before the rows: what is committed in between must not be missed. It takes
		// a moment, which Notify is there to save; then the next poll reads again.
		if r.known = false; !r.woken {
			if err := r.look(ctx, s); err != nil {
				return err
			}
		}
		r.woken = false
		return queryRows(context.WithoutCancel(ctx), s, full, limit,
			`WHERE parked IS NULL AND id NOT BETWEEN ?4 AND ?5 ORDER BY id LIMIT ?3`, most, first, last)
	})
	return rows, err
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
	if row.large != nil {
		return evlog.Record{}, tooLarge(row.large.key, row.large.value, most)
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

// park sets rows aside, with the reason.
func (r *relay) park(ctx context.Context, bad []unfit) error {
	err := r.transact(ctx, func(t *tx) error {
		for _, u := range bad {
			if _, err := t.exec(`UPDATE main.evlog_outbox SET parked = ?3, attempts = attempts + 1 WHERE id = ?1 AND uid = ?2`,
				u.row.ID, u.row.UID[:], u.err.Error()); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, u := range bad {
		u.row.Parked, u.row.Attempts = u.err.Error(), u.row.Attempts+1
		r.b.logger.Warn("outbox: row parked", "id", u.row.ID, "uid", u.row.UID, "err", u.err)
		r.event(Event{Kind: EventParked, Row: u.row, Err: u.err})
	}
	return nil
}
