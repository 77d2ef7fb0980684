package outbox

import (
	"crypto/rand"

	"github.com/evlog-go/evlog/internal/outboxrule"
)

// state is the row of evlog_outbox_relay.
type state struct {
	box    string
	epoch  int64
	logID  string
	logEnd int64
	intent
}

func (t *tx) state() (s state, err error) {
	var n int
	var ids string
	var uids, sums []byte
	err = t.row(`SELECT box, epoch, log_id, log_end, "offset", n, ids, uids, sums FROM main.evlog_outbox_relay WHERE one = 1`).
		Scan(&s.box, &s.epoch, &s.logID, &s.logEnd, &s.offset, &n, &ids, &uids, &sums)
	if err != nil {
		return s, relayRowError(err)
	}
	s.rows, err = decodeRefs(n, ids, uids, sums)
	return s, err
}

// fence refuses a transaction of a relay that does not hold the outbox any more:
// all of them begin with it (relay.transactOn).
func (b *Box) fence(t *tx, epoch int64) error {
	var now int64
	if err := t.row(`SELECT epoch FROM main.evlog_outbox_relay WHERE one = 1`).Scan(&now); err != nil {
		return relayRowError(err)
	}
	if now != epoch && !b.rules.Off(outboxrule.Fence) {
		return ErrFenced
	}
	return nil
}

// store writes the state, all but the id of the outbox.
func (t *tx) store(s state) error {
	ids, uids, sums := encodeRefs(s.rows)
	if len(s.rows) == 0 {
		// SQLite writes nothing for an UPDATE that changes nothing. What a COMMIT that
		// failed has left in the WAL would then stay there, and be a transaction after a
		// crash: so something changes each time.
		sums = make([]byte, sumBytes)
		rand.Read(sums) // never fails
	}
	n, err := t.changed(`UPDATE main.evlog_outbox_relay SET epoch = ?1, log_id = ?2, log_end = ?3, "offset" = ?4,
		n = ?5, ids = ?6, uids = ?7, sums = ?8 WHERE one = 1`,
		s.epoch, s.logID, s.logEnd, s.offset, len(s.rows), ids, uids, sums)
	if err == nil && n == 0 {
		err = errNoRelayRow
	}
	return err
}
