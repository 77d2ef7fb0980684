package outbox

import (
	"crypto/rand"

	"github.com/evlog-go/evlog/internal/outboxrule"
)

// remove takes rows of an intent out of the queue, those for which take, nil for
// all, says so: they are in the log. Each is deleted only if it is still the row
// that was relayed: under its id there may be another one by now.
func (b *Box) remove(t *tx, logID string, in intent, take func(i int) bool) error {
	for _, r := range runsOf(in.rows, take) {
		var uids []byte
		for _, row := range in.rows[r.at : int64(r.at)+r.last-r.first+1] {
			uids = append(uids, row.uid[:]...)
		}
		which := `id BETWEEN ?1 AND ?2 AND uid = substr(?3, (id - ?1) * 16 + 1, 16)`
		if b.rules.Off(outboxrule.ByUID) {
			which = `id BETWEEN ?1 AND ?2 AND ?3 IS NOT NULL`
		}
		if b.opts.KeepFor > 0 {
			if _, err := t.exec(`INSERT OR REPLACE INTO main.evlog_outbox_kept
				(id, uid, schema, ts_ms, dedupe, key, value, log_id, "offset", relayed_ms)
				SELECT id, uid, schema, ts_ms, dedupe, key, value, ?4, ?5 + (id - ?1), ?6
				FROM main.evlog_outbox WHERE `+which,
				r.first, r.last, uids, logID, in.offset+int64(r.at), b.clock.Now().UnixMilli()); err != nil {
				return err
			}
		}
		if _, err := t.exec(`DELETE FROM main.evlog_outbox WHERE `+which, r.first, r.last, uids); err != nil {
			return err
		}
	}
	return nil
}

// store writes the state, if it is still that of epoch. s.epoch is the new one.
func (b *Box) store(t *tx, epoch int64, s state) error {
	ids, uids, sums := encodeRefs(s.rows)
	if len(s.rows) == 0 {
		// SQLite writes nothing for an UPDATE that changes nothing. What a COMMIT that
		// failed has left in the WAL would then stay there, and be a transaction after a
		// crash: so something changes each time.
		sums = make([]byte, sumBytes)
		rand.Read(sums) // never fails
	}
	where := ` WHERE one = 1 AND epoch = ?9`
	if b.rules.Off(outboxrule.Fence) {
		where = ` WHERE one = 1 AND ?9 IS NOT NULL`
	}
	n, err := t.changed(`UPDATE main.evlog_outbox_relay SET epoch = ?1, log_id = ?2, log_end = ?3, "offset" = ?4,
		n = ?5, ids = ?6, uids = ?7, sums = ?8`+where,
		s.epoch, s.logID, s.logEnd, s.offset, len(s.rows), ids, uids, sums, epoch)
	if err == nil && n == 0 {
		err = ErrFenced
	}
	return err
}

// resolution is what became of an intent.
type resolution struct {
	intent
	there int // rows of it that are in the log
}

func (r resolution) event() Event {
	return Event{Kind: EventResolved, Rows: r.there, Again: len(r.rows) - r.there, Offset: uint64(r.offset)}
}

// resolve removes the rows of the intent that are in the log; the others stay.
// Storing a state without an intent completes it, in the same transaction.
func (b *Box) resolve(t *tx, s state, in func(i int) bool) (resolution, error) {
	r := resolution{intent: s.intent}
	for i := range s.rows {
		if in(i) {
			r.there++
		}
	}
	return r, b.remove(t, s.logID, s.intent, in)
}
