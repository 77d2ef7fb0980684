package outbox

import (
	"context"

	"github.com/evlog-go/evlog/evlog"
)

// What is here is for the tests of the rules: with all rules kept, as everybody
// has them, nobody calls it.

// guess is what one would do without intents: the rows that are queued are taken
// for relayed if the log has such records. It is there to show that this loses
// events, since two can be equal.
func (b *Box) guess(ctx context.Context, t *tx, s state, hs evlog.HookState) (intent, func(i int) bool, error) {
	in := intent{offset: s.logEnd}
	err := queryRows(ctx, t, false, func(r readRow) bool {
		in.rows = append(in.rows, rowRef{id: r.ID, uid: r.UID, sum: sumOf(r.Record)})
		return false
	}, noLimit, `WHERE parked IS NULL ORDER BY id LIMIT ?3`, b.opts.BatchRows)
	k := 0
	if err == nil {
		err = eachRecord(ctx, hs, uint64(s.logEnd), hs.Next, func(r evlog.Record) error {
			if k < len(in.rows) && sumOf(r) == in.rows[k].sum {
				k++
			}
			return nil
		})
	}
	return in, func(i int) bool { return i < k }, err
}
