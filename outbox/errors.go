package outbox

import (
	"errors"
	"fmt"
	"strings"
)

// Errors of using an outbox.
var (
	// ErrNotInTx: Put was not given an open transaction, so that the event and
	// what it tells of would not be committed together. A transaction that SQLite
	// has rolled back under its owner (a statement in it was cancelled, say) is
	// none any more. Nothing was changed.
	ErrNotInTx = errors.New("not in a transaction")
	// ErrNested: InTx was called by a function that InTx has called, on the same
	// database. It would wait for its own lock. Nothing was changed.
	ErrNested = errors.New("InTx inside InTx of the same database")
	// ErrNoTables: the database has no outbox, or somebody has dropped a table or an
	// index of it, or deleted the one row of evlog_outbox_relay. Open creates what is
	// missing; with another row it is another outbox, and a log that was relayed into
	// is ErrDatabaseChanged. A relay that finds this ends.
	ErrNoTables = errors.New("no outbox in this database")
	// ErrUnsafe: the database is in memory, or has journal_mode=OFF or MEMORY, with
	// which a crash leaves transactions in part; or SQLite is older than 3.37.
	ErrUnsafe = errors.New("exactly once is not possible with this setting")
	// ErrNoHook: the log was not opened with this outbox's Hook.
	ErrNoHook = errors.New("the log was not opened with the hook of this outbox (evlog.Options.OpenHook: box.Hook())")
	// ErrRelayRunning: a relay of this database runs already in this process.
	ErrRelayRunning = errors.New("a relay of this outbox is running")
	// ErrFenced: another relay has taken this outbox over, in another process and
	// into another log. This one has stopped, and has changed nothing since.
	ErrFenced = errors.New("another relay has taken over")
	// ErrDatabaseGone: while the relay ran, the file of the database was deleted,
	// or another one was put in its place. What is committed from now on through
	// connections that were open before is in no file any more.
	ErrDatabaseGone = errors.New("the file of the database is another one now, or is gone")
	// ErrNotParked: no row that is parked has this id.
	ErrNotParked = errors.New("no such parked row")
)

// Errors about a log and a database that do not belong together any more. They
// come from opening the log, as a *MismatchError with the numbers; Options.Policy
// says what to do in place of failing.
var (
	// ErrLogChanged: the log is not the one that this outbox was relayed into
	// before: it was deleted and made anew, or its path was changed.
	ErrLogChanged = errors.New("the outbox was relayed into another log")
	// ErrLogBehind: the log ends below an offset that was durable in it: an older
	// copy was put in its place. What was relayed since is lost, but for the rows
	// that are still there.
	ErrLogBehind = errors.New("the log has lost records")
	// ErrLogMismatch: the log has other records where this outbox has appended: an
	// older copy was put in its place and appended to.
	ErrLogMismatch = errors.New("the log has other records than were relayed")
	// ErrDatabaseChanged: the log was fed by the outbox of another database: the
	// database was deleted and made anew.
	ErrDatabaseChanged = errors.New("the log belongs to the outbox of another database")
	// ErrDatabaseBehind: the database is older than the log: a copy was put in its
	// place. The rows in it may be in the log already.
	ErrDatabaseBehind = errors.New("the database has lost what the relay did")
)

// MismatchError says how log and database disagree. It is one of the errors
// above.
type MismatchError struct {
	Err error
	// Database is the file of the database.
	Database string
	// LogID is the log at hand, Next the offset after its last record.
	LogID string
	Next  uint64
	// RelayedTo is the log that the outbox was relayed into, and End where that
	// log ended when the relay looked last.
	RelayedTo string
	End       uint64
	// Offset and Rows are the open intent: where so many rows were about to be
	// appended. Without one, Rows is 0.
	Offset uint64
	Rows   int
	// Outbox is the outbox at hand and FedBy the one that log.json names, each its
	// id and how often a relay or an opening has taken it over ("4f3a... 17").
	Outbox, FedBy string
}

// Error gives the numbers that matter, and where to decide.
func (e *MismatchError) Error() string {
	text := e.Database + ": " + e.Err.Error()
	switch {
	case errors.Is(e.Err, ErrLogChanged):
		text += fmt.Sprintf(": %s, this one is %s", e.RelayedTo, e.LogID)
	case errors.Is(e.Err, ErrLogBehind):
		text += fmt.Sprintf(": it ends at %d, and has ended at %d", e.Next, e.End)
	case errors.Is(e.Err, ErrLogMismatch):
		text += fmt.Sprintf(": at offset %d", e.Offset)
	default:
		text += fmt.Sprintf(": the log was fed by outbox %s, this one is %s", startsOf(e.FedBy), startsOf(e.Outbox))
	}
	if e.Rows > 0 {
		text += fmt.Sprintf("; %d rows were about to be appended at %d", e.Rows, e.Offset)
	}
	return text + "; put back what belongs together, or decide with outbox.Options.Policy"
}

// startsOf spells out an id with its number.
func startsOf(id string) string {
	id, starts, ok := strings.Cut(id, " ")
	if !ok {
		return id
	}
	return fmt.Sprintf("%s (start %s)", id, starts)
}

// Unwrap gives the sentinel.
func (e *MismatchError) Unwrap() error { return e.Err }

// join is two errors in one line; either may be nil.
func join(err, other error) error {
	switch {
	case err == nil:
		return other
	case other == nil:
		return err
	}
	return fmt.Errorf("%w; %w", err, other)
}

// wrap adds what was being done; nil stays nil.
func wrap(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("outbox: %s: %w", doing, err)
}
