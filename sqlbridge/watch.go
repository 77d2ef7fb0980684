package sqlbridge

import (
	"database/sql"
	"errors"
	"fmt"

	"github.com/evlog-go/evlog/internal/sqldb"
	"github.com/evlog-go/evlog/internal/sqlrule"
)

// watch is what a Tx knows of its transaction and of the record at hand.
type watch struct {
	doubt  bool // something ran that may have ended the transaction
	blind  bool // statements may run that are not seen here
	ended  bool
	unseen bool // what ran between the end and its being noticed was not seen

	// Of the record:
	open   []open // rows whose statements may still run
	writes int    // of those, such as may write
	used   bool   // it may have left a trace
	locked bool   // a statement met a lock
	fault  bool   // a statement failed for a reason outside of the record
}

// open are the rows of one query: rows or row.
type open struct {
	rows *sql.Rows
	row  *sql.Row
}

// maxOpen bounds what is kept of a record. One that has more is not seen through.
const maxOpen = 64

func (w *watch) add(o open, k kind) {
	if len(w.open) == maxOpen {
		w.open, w.blind = nil, true
	}
	w.open = append(w.open, o)
	if k != reads {
		w.writes++
	}
}

// failed notes the error of a statement.
func (w *watch) failed(err error) {
	if err != nil {
		w.doubt = true
		w.locked = w.locked || sqldb.IsBusy(err)
		w.fault = w.fault || sqldb.IsFault(err)
	}
}

// close closes the rows, and notes what they ran into.
func (w *watch) close() {
	for _, o := range w.open {
		if o.rows != nil {
			w.failed(o.rows.Close())
			w.failed(o.rows.Err())
			continue
		}
		// This closes it, and runs what has not run before: nobody can tell
		// whether the handler did. After the first time there are no rows.
		if err := o.row.Scan(); !errors.Is(err, sql.ErrNoRows) {
			w.failed(err)
		}
	}
	clear(w.open)
	w.open, w.writes = w.open[:0], 0
}

// checkLocked returns ErrTxEnded if the transaction has ended.
func (t *Tx) checkLocked() error {
	w := &t.watch
	switch {
	case t.u.b.rules.Off(sqlrule.Guard):
		return nil
	case w.ended:
		return ErrTxEnded
	case !w.doubt && !w.blind && len(w.open) == 0:
		return nil
	}
	if err := inTransaction(t.u.ctx, t.u.tx); err != nil {
		w.unseen = w.blind || w.writes > 1
		t.endLocked()
		return fmt.Errorf("%w: %w", ErrTxEnded, err)
	}
	w.doubt = false
	return nil
}

// afterLocked is called with the error of a statement that was seen. It looks at
// once what has become of the transaction: rows that are open, and others who
// have it, would go on outside.
func (t *Tx) afterLocked(err error) {
	if err != nil && !t.watch.ended {
		t.watch.failed(err)
		_ = t.checkLocked()
		t.watch.unseen = false // it was there before, and nothing ran since
	}
}

// start begins a record.
func (t *Tx) start() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.watch.used, t.watch.locked, t.watch.fault = false, false, false
}

// finish ends a record: it returns ErrTxEnded if the transaction has ended, and
// closes what the handler left open, so that nothing goes on unseen.
func (t *Tx) finish() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	err := t.checkLocked() // first: what runs from here on has to run inside
	t.watch.close()
	if err == nil {
		err = t.checkLocked()
	}
	return err
}

// leave ends the use of the Tx: a handler may have kept it, and what is known of
// texts belongs to the next one.
func (t *Tx) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.watch.ended, t.texts = true, nil
}

// end gives the transaction up. From here on the *sql.Tx refuses everything,
// whoever holds it.
func (t *Tx) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.endLocked()
}

func (t *Tx) endLocked() {
	t.watch.ended = true
	_ = t.u.tx.Rollback()
}

func (t *Tx) hasEnded() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.watch.ended
}

// endedUnseen reports whether the transaction has ended, and something may have
// been committed after that.
func (t *Tx) endedUnseen() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.watch.ended && t.watch.unseen
}

// metLock reports whether a lock was in the way of the record that failed with
// err. What the error says counts only for statements that are not seen here: a
// handler's error can quote anything.
func (t *Tx) metLock(err error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.watch.locked || t.watch.blind && sqldb.IsBusy(err)
}

// metFault is metLock for a full disk and the like.
func (t *Tx) metFault(err error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.watch.fault || t.watch.blind && sqldb.IsFault(err)
}

// untouched reports whether the record has left no trace.
func (t *Tx) untouched() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.watch.used && !t.watch.blind
}
