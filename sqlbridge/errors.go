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
	// the handler did. The record counts as failed.
	ErrTxEnded = errors.New("the transaction ended under the handler")
	// ErrCommitted: a handler committed the transaction it was given, so that
	// part of a batch is done and the cursor does not say which. It comes as a
	// *CommittedError. The consumer stands still until Reset says where to go on.
	ErrCommitted = errors.New("a handler committed part of a batch by itself")
	// ErrGap: the batch given to Process leaves out records that the log has.
	// Nothing was applied.
	ErrGap = errors.New("the batch leaves out records")
	// ErrOrder: the offsets of a batch do not ascend, or a cursor was to move
	// backwards. Nothing was changed.
	ErrOrder = errors.New("offsets do not ascend")
	// ErrNoTables: the database has no tables of this package.
	ErrNoTables = errors.New("no cursors in this database")
	// ErrUnsafe: the database is set up so that a transaction can be applied in
	// part. Report says what else is wrong.
	ErrUnsafe = errors.New("no transactions with this setting")
)

// CommittedError says which offsets were being applied when a handler committed
// by itself. It is ErrCommitted.
type CommittedError struct {
	Name     string
	From, To uint64 // of the batch; the cursor stands at From
}

// Error names consumer and batch.
func (e *CommittedError) Error() string {
	return fmt.Sprintf("consumer %q: %v: offsets %d to %d are applied in part", e.Name, ErrCommitted, e.From, e.To-1)
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
