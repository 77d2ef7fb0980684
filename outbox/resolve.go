package outbox

import "github.com/evlog-go/evlog/internal/outboxrule"

// dropped is the offset in evlog_outbox_kept of a row that DropIntent gave up:
// nobody knows whether it is in a log.
const dropped = -1

// remove takes rows of an intent out of the queue, those for which take, nil for
// all, says so: they are in the log, or are dropped, where the intent's offset says
// so. Each is deleted only if it is still the row that was relayed: under its id
// there may be another one by now.
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
			first := in.offset
			if first != dropped {
				first += int64(r.at)
			}
			if _, err := t.exec(`INSERT OR REPLACE INTO main.evlog_outbox_kept
				(id, uid, schema, ts_ms, dedupe, key, value, log_id, "offset", relayed_ms)
				SELECT id, uid, schema, ts_ms, dedupe, key, value, ?4, CASE WHEN ?5 < 0 THEN ?5 ELSE ?5 + (id - ?1) END, ?6
				FROM main.evlog_outbox WHERE `+which,
				r.first, r.last, uids, logID, first, b.clock.Now().UnixMilli()); err != nil {
				return err
			}
		}
		if err := t.delete(r, which, uids); err != nil {
			return err
		}
	}
	return nil
}

// delete deletes those rows of a run for which which, with the ids and the uids as
// parameters, is true. A DELETE that calls functions, which could fail, has SQLite
// copy each page before it changes it, for that case, above 64 KB into a temporary
// file. Looking first whether all of them are there as they were is less work.
func (t *tx) delete(r run, which string, uids []byte) error {
	var there int64
	err := t.row(`SELECT count(*) FROM main.evlog_outbox WHERE `+which, r.first, r.last, uids).Scan(&there)
	switch {
	case err != nil:
	case there == r.last-r.first+1:
		_, err = t.exec(`DELETE FROM main.evlog_outbox WHERE id BETWEEN ?1 AND ?2`, r.first, r.last)
	case there > 0:
		_, err = t.exec(`DELETE FROM main.evlog_outbox WHERE `+which, r.first, r.last, uids)
	}
	return err
}

// resolution is what became of an intent: so many of its rows are in the log, so
// many were dropped, and the others stay in the queue.
type resolution struct {
	intent
	there   int
	dropped int
}

func (r resolution) again() int { return len(r.rows) - r.there - r.dropped }

func (r resolution) event() Event {
	return Event{Kind: EventResolved, Rows: r.there, Again: r.again(), Dropped: r.dropped, Offset: uint64(r.offset)}
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

// resolveAstray is resolve where nobody can tell what is in the log: the policy
// says whether all rows stay, or none.
func (b *Box) resolveAstray(t *tx, s state) (resolution, error) {
	r := resolution{intent: s.intent}
	if b.opts.Policy != DropIntent {
		return r, nil
	}
	r.dropped = len(s.rows)
	return r, b.remove(t, s.logID, intent{offset: dropped, rows: s.rows}, nil)
}
