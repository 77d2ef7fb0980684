package sqlbridge

import (
	"errors"
	"fmt"

	"github.com/evlog-go/evlog/cursor"
)

// Errors of this package. Those about where a cursor stands are package
// cursor's: ErrMoved, ErrAhead, ErrBehind, ErrWrongLog; a record that could not
// be handled is a *cursor.HandlerError.
var (
	// ErrNotInTx: Advance was not given an open transaction, so that cursor and
	// effects would not be committed together. A transaction that SQLite has
	// rolled back under its owner (a statement in it was cancelled, say) is none
	// any more. Nothing was changed.
	ErrNotInTx = errors.New("not in a transaction")
	// ErrTxEnded: the transaction ended while the handler ran, because SQLite
	// rolled it back (a cancelled statement, a full disk, INSERT OR ROLLBACK) or
	// the handler did, by Raw. The record counts as failed.
	ErrTxEnded = errors.New("the transaction ended under the handler")
	// ErrUnseen: the transaction ended while statements ran that the Tx does not
	// see (Raw, statements that the handler prepared), and those that came after
	// may have been committed on their own. The record is neither tried again nor
	// skipped: the consumer stops there, and applies it anew when it is started
	// again.
	ErrUnseen = errors.New("statements that were not seen may have been committed")
	// ErrControl: a handler's statement was to begin or end a transaction, which
	// is the bridge's. It was not executed.
	ErrControl = errors.New("the transaction is the bridge's")
	// ErrCommitted: a handler committed the transaction it was given, so that
	// part of a batch is done and the cursor does not say which. It comes as a
	// *CommittedError. The consumer stands still until Reset says where to go on.
	ErrCommitted = errors.New("a handler committed part of a batch by itself")
	// ErrGap: the batch given to Process leaves out records that the log has.
	// Nothing was applied.
	ErrGap = errors.New("the batch leaves out records")
	// ErrOrder: the offsets of a batch do not ascend, or a cursor was to move
	// backwards. Nothing was changed. It is cursor.ErrOrder.
	ErrOrder = cursor.ErrOrder
	// ErrNoTables: the database has no tables of this package.
	ErrNoTables = errors.New("no cursors in this database")
	// ErrUnsafe: the database is set up so that a transaction can be applied in
	// part. Report says what else is wrong.
	ErrUnsafe = errors.New("no transactions with this setting")
)

// CommittedError says which offsets were being applied when a handler committed
// by itself. It is ErrCommitted. Bridge.Reset says where to go on: at Under or
// behind it, by what its handler does.
type CommittedError struct {
	Name     string
	From, To uint64 // of the batch; the cursor stands at From
	// Under is the record whose handler has just run when the commit was noticed.
	// Those before it are applied, and those behind it not. To: it is not known,
	// since the handler began another transaction, or because that was in another
	// run.
	Under uint64
}

// Error names consumer, batch and record.
func (e *CommittedError) Error() string {
	s := fmt.Sprintf("consumer %q: %v: offsets %d to %d are applied in part", e.Name, ErrCommitted, e.From, e.To-1)
	if e.Under < e.To {
		s += fmt.Sprintf(", noticed under %d", e.Under)
	}
	return s
}

// Unwrap gives ErrCommitted.
func (e *CommittedError) Unwrap() error { return ErrCommitted }

// wrap adds what was being done, and for which consumer where the error does not
// say so itself.
func wrap(what, name string, err error) error {
	if err == nil {
		return nil
	}
	var moved *cursor.MovedError
	var wrong *cursor.LogError
	var outside *cursor.RangeError
	var half *CommittedError
	var handler *cursor.HandlerError
	if errors.As(err, &moved) || errors.As(err, &wrong) || errors.As(err, &outside) ||
		errors.As(err, &half) || errors.As(err, &handler) {
		return fmt.Errorf("sqlbridge: %s: %w", what, err)
	}
	return fmt.Errorf("sqlbridge: %s for consumer %q: %w", what, name, err)
}
