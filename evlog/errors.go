package evlog

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/evlog-go/evlog/internal/format"
)

// Errors of using a log that is not, or no longer, open in that way.
var (
	// ErrClosed: the log or reader was closed. Followers of a log in the same
	// process end with it too.
	ErrClosed = errors.New("log is closed")
	// ErrReadOnly: the directory cannot be written to, by its permissions or
	// because its file system is mounted so. OpenReader works there.
	ErrReadOnly = errors.New("read-only directory")
	// ErrPoisoned: an earlier write or sync failed, so that nothing is known
	// about what is on disk. Close the log and open it again: opening finds out.
	// The error wraps the first failure.
	ErrPoisoned = errors.New("log is poisoned by an earlier failure")
	// ErrHookRequired: log.json names an open hook that this writer was not
	// given (see Options.OpenHook), so it may maintain the log but not append.
	ErrHookRequired = errors.New("log needs its open hook")
)

// Errors of opening.
var (
	// ErrLocked: another writer has the log open; a *LockedError says who. A
	// second process that has to write does so through the outbox.
	ErrLocked = errors.New("locked by another writer")
	// ErrNetworkFS: the directory is on a network file system, where locks and
	// syncs do not keep what evlog promises. Options.AllowNetworkFS overrules it.
	ErrNetworkFS = errors.New("network file system")
	// ErrNoLog: the directory is missing, empty, or holds no log.
	ErrNoLog = errors.New("no log here")
	// ErrVersion: the log was written by a later version of evlog.
	ErrVersion = errors.New("format version is newer than this program")
	// ErrBadOptions: a field of the options is out of range; the text names it.
	ErrBadOptions = errors.New("invalid options")
)

// Errors about what is in the log.
var (
	// ErrCorrupt: acknowledged data is damaged or missing. It comes as a
	// *CorruptError that says where. Nothing was changed; verify shows the whole
	// extent, repair is the way out.
	ErrCorrupt = errors.New("log is corrupt")
	// ErrOffsetOutOfRange: the offset asked for is below the first one left, or
	// beyond the end. It comes as an *OffsetError with the numbers.
	ErrOffsetOutOfRange = errors.New("offset out of range")
	// ErrNotFound: no record answers the question (an offset at the end, a time
	// later than every record, a key that is not there).
	ErrNotFound = errors.New("no such record")
	// ErrTooLarge: a key, a record or a time is beyond the limits. Nothing was
	// appended.
	ErrTooLarge = errors.New("too large")
	// ErrOffsetOrder: AppendExact was given an offset that is not above the last
	// one. Nothing was appended.
	ErrOffsetOrder = errors.New("offset is not above the last one")
)

// ErrUnconfirmed: the caller's context ended after the records had been
// accepted. They have the offsets that were returned, and will be or already
// are in the log unless a failure comes between. It wraps the context's error.
var ErrUnconfirmed = errors.New("accepted, but not confirmed as durable")

// CorruptError says where the log is damaged. It is ErrCorrupt.
type CorruptError struct {
	Path   string // the file
	Pos    int64  // byte position of the damage
	Offset uint64 // the first offset that cannot be vouched for
	Err    error  // what is wrong
}

// Error names file, byte and, of a log's records, offset.
func (e *CorruptError) Error() string {
	name := filepath.Base(e.Path)
	cause := strings.TrimPrefix(fmt.Sprint(e.Err), name+" is ") // the file is named once
	if filepath.Ext(name) == ".json" || name == format.DurableName && e.Offset == 0 {
		return fmt.Sprintf("%s: byte %d: %s", e.Path, e.Pos, cause)
	}
	return fmt.Sprintf("%s: byte %d, offset %d: %s", e.Path, e.Pos, e.Offset, cause)
}

// Unwrap gives ErrCorrupt and the cause.
func (e *CorruptError) Unwrap() []error { return []error{ErrCorrupt, e.Err} }

// OffsetError says what was asked for and what there is: offsets in
// [First, Next). It is ErrOffsetOutOfRange.
type OffsetError struct {
	Asked uint64
	First uint64 // lower bound of the offsets left; a reader may go on here
	Next  uint64 // the offset after the last readable record
}

// Error says on which side of the log the offset lies.
func (e *OffsetError) Error() string {
	if e.Asked < e.First {
		return fmt.Sprintf("offset %d is below the first one left, %d", e.Asked, e.First)
	}
	return fmt.Sprintf("offset %d is beyond the end, %d", e.Asked, e.Next)
}

// Unwrap gives ErrOffsetOutOfRange.
func (e *OffsetError) Unwrap() error { return ErrOffsetOutOfRange }

// LockedError says who holds the log. It is ErrLocked.
type LockedError struct {
	Path   string // the directory
	Holder Holder // what the holder wrote down; zero where nothing could be read
}

// Error names the holder.
func (e *LockedError) Error() string {
	if e.Holder.PID == 0 {
		return fmt.Sprintf("%s: %v", e.Path, ErrLocked)
	}
	return fmt.Sprintf("%s: %v, pid %d on %s", e.Path, ErrLocked, e.Holder.PID, e.Holder.Host)
}

// Unwrap gives ErrLocked.
func (e *LockedError) Unwrap() error { return ErrLocked }

// poisonedError is what every call gets after the failure cause.
type poisonedError struct{ cause error }

func (e *poisonedError) Error() string {
	return fmt.Sprintf("evlog: %v: %s", ErrPoisoned, strings.TrimPrefix(e.cause.Error(), "evlog: "))
}

func (e *poisonedError) Unwrap() []error { return []error{ErrPoisoned, e.cause} }
