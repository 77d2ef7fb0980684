package outbox

import (
	"context"
	"fmt"
	"math"
	"time"
)

// pruneEvery is how often rows are looked for that were kept long enough.
const pruneEvery = time.Minute

// pruning deletes the rows that were kept long enough, in rounds. A round takes
// pieces, one after each batch, because the application's writers and the next
// batch wait meanwhile, and the WAL grows by what one transaction deletes.
type pruning struct {
	underWay bool          // a round is
	until    int64         // it deletes what was relayed before this millisecond
	last     time.Duration // when one ended; 0: none has
}

// pruneDue reports whether there may be rows to delete.
func (r *relay) pruneDue() bool {
	keep := r.b.opts.KeepFor
	switch {
	case r.prunes.underWay, r.prunes.last == 0:
		return true
	case keep == 0: // there was only what had been kept before
		return false
	}
	return r.b.clock.Elapsed()-r.prunes.last >= min(pruneEvery, keep)
}

// prune deletes one piece, if it is time: rows of twice the size of a batch, so
// that it gets ahead of a relay that always has something to do.
func (r *relay) prune(ctx context.Context) error {
	if !r.pruneDue() {
		return nil
	}
	if p := &r.prunes; !p.underWay {
		p.underWay, p.until = true, math.MaxInt64
		if keep := r.b.opts.KeepFor; keep > 0 {
			p.until = r.b.clock.Now().Add(-keep).UnixMilli()
		}
	}
	n := 0
	err := r.transact(ctx, func(t *tx) (err error) {
		// A length is read without its blob.
		n, err = t.changed(`DELETE FROM main.evlog_outbox_kept WHERE rowid IN (SELECT rowid FROM (
			SELECT rowid, sum(size) OVER (ORDER BY relayed_ms, rowid) - size AS before FROM (
				SELECT rowid, relayed_ms, coalesce(length(key), 0) + coalesce(length(value), 0) AS size
				FROM main.evlog_outbox_kept WHERE relayed_ms < ?1 ORDER BY relayed_ms, rowid LIMIT ?2))
			WHERE before < ?3)`, r.prunes.until, 2*r.b.opts.BatchRows, 2*r.b.opts.BatchBytes)
		return err
	})
	if err != nil {
		return fmt.Errorf("prune: %w", tables.Error(err))
	}
	if n == 0 {
		r.prunes = pruning{last: max(1, r.b.clock.Elapsed())}
	}
	return nil
}
