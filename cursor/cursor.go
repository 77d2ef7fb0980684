package cursor

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/evlog-go/evlog/evlog"
)

// Log is what a consumer needs of a log. *evlog.Reader is one; others can stand
// behind it, and package cursortest has the suite that tells whether they keep
// the contract. Methods are safe for concurrent use.
type Log interface {
	// ID names the log. A cursor is bound to it, so that it is never applied to
	// another log that happens to have the same path. Empty: not known.
	ID() string
	// Bounds returns the half-open range of offsets that can be read. first is a
	// lower bound of the records left; next is where the next durable record
	// will go, or below.
	Bounds(ctx context.Context) (first, next uint64, err error)
	// Records yields the records from offset from on up to the durable end at
	// the start, in ascending order, holes included. An offset outside the
	// bounds is evlog.ErrOffsetOutOfRange. What is yielded is valid until the
	// next step.
	Records(ctx context.Context, from uint64) iter.Seq2[evlog.Record, error]
	// Follow is Records that waits for more until ctx ends.
	Follow(ctx context.Context, from uint64) iter.Seq2[evlog.Record, error]
}

// Position is a consumer's committed offset.
type Position struct {
	Name string
	// Next is the first offset that the consumer has not finished.
	Next uint64
	// Updated is when it was last committed.
	Updated time.Time
	// LogID is the log that the cursor is bound to. Empty: not bound, or not
	// known.
	LogID string
}

// Store keeps the committed offsets of named consumers of one log. Methods are
// safe for concurrent use, also from several processes.
type Store interface {
	// Load returns a consumer's position. ErrUnknownConsumer: it never
	// committed. A *LogError: its cursor was made for another log.
	Load(ctx context.Context, name string) (Position, error)
	// Commit moves the position from from to to, which is durable when Commit
	// returns. For a consumer that never committed from is 0. Where the stored
	// position is not from, another consumer commits under this name: nothing is
	// changed, and the error is a *MovedError. A to below from is ErrOrder: see
	// Resetter. Where they are equal, the position is stored all the same, which
	// makes a new consumer known.
	//
	// After an error that is not about the arguments the stored position is
	// from or to, and may be either again after a power failure: Load says.
	Commit(ctx context.Context, name string, from, to uint64) error
	// List returns all positions, by name, those made for other logs included.
	List(ctx context.Context) ([]Position, error)
	// Remove forgets a consumer. ErrUnknownConsumer: there is none.
	Remove(ctx context.Context, name string) error
}

// Resetter is a Store that can put a cursor anywhere in one step, for policies
// and tools. Without it a reset is a Remove and a Commit.
type Resetter interface {
	// Reset moves the position from from to to, also backwards, and binds it to
	// the store's log. from is the stored position, in whichever log that was
	// (see LogError.Cursor), and 0 for a consumer that never committed. Otherwise
	// as Commit.
	Reset(ctx context.Context, name string, from, to uint64) error
}

// Bound is a Store that knows the log whose cursors it keeps. Run then refuses
// the store of another log also for a consumer that the store does not know.
type Bound interface {
	// LogID is that log's id. Empty: not known, or none yet.
	LogID() string
}

// Errors of this package.
var (
	// ErrUnknownConsumer: no position is stored under this name.
	ErrUnknownConsumer = errors.New("no such consumer")
	// ErrMoved: another consumer has committed under the same name meanwhile, or
	// the cursor was reset or removed. It comes as a *MovedError. What was done
	// since the last commit will be, or was, done by the other one too.
	ErrMoved = errors.New("the cursor was moved meanwhile, by another consumer or a reset")
	// ErrOrder: a commit would move a cursor backwards. Nothing was changed.
	ErrOrder = errors.New("a commit only goes forwards")
	// ErrAhead: the cursor is above everything in the log, and ErrBehind: it is
	// below the first offset left. Both come as a *RangeError with the numbers.
	// Policy says what to do in place of failing.
	ErrAhead  = errors.New("cursor is ahead of the log")
	ErrBehind = errors.New("cursor is behind the first offset left")
	// ErrWrongLog: the cursor belongs to a log with another id. It comes as a
	// *LogError.
	ErrWrongLog = errors.New("cursor belongs to another log")
	// ErrNoLogID: the log's id is not known, because its log.json is missing or
	// damaged, so nothing tells whether a cursor belongs to it. evlog repair
	// gives the log a new id; then cursors have to be bound again.
	ErrNoLogID = errors.New("the log's id is not known")
	// ErrBadName: no consumer can be called that; see CheckName.
	ErrBadName = errors.New("invalid consumer name")
)

// MaxNameBytes is the longest name of a consumer.
const MaxNameBytes = 255

// CheckName tests the name of a consumer: 1 to MaxNameBytes bytes of UTF-8
// without control characters. The error is ErrBadName.
func CheckName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: it is empty", ErrBadName)
	case len(name) > MaxNameBytes:
		return fmt.Errorf("%w: %d bytes (at most %d)", ErrBadName, len(name), MaxNameBytes)
	case !utf8.ValidString(name):
		return fmt.Errorf("%w: %q is not UTF-8", ErrBadName, name)
	case strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Errorf("%w: %q has a control character", ErrBadName, name)
	}
	return nil
}

// MovedError says what was expected and what is stored. It is ErrMoved.
type MovedError struct {
	Name         string
	Want, Stored uint64
}

// Error names the consumer and both offsets.
func (e *MovedError) Error() string {
	return fmt.Sprintf("consumer %q: %v: stored is %d, expected was %d", e.Name, ErrMoved, e.Stored, e.Want)
}

// Unwrap gives ErrMoved.
func (e *MovedError) Unwrap() error { return ErrMoved }

// RangeError says where a cursor stands outside the log. It is ErrAhead or
// ErrBehind.
type RangeError struct {
	Name        string
	Cursor      uint64
	First, Next uint64 // of the log
}

// Error gives the cursor and the log's bounds.
func (e *RangeError) Error() string {
	return fmt.Sprintf("consumer %q: %v: the cursor is %d, the log has [%d, %d)", e.Name, e.Unwrap(), e.Cursor, e.First, e.Next)
}

// Unwrap gives ErrAhead or ErrBehind.
func (e *RangeError) Unwrap() error {
	if e.Cursor < e.First {
		return ErrBehind
	}
	return ErrAhead
}

// LogError says which log a cursor belongs to. It is ErrWrongLog.
type LogError struct {
	Name         string
	Cursor       uint64
	LogID        string // the log at hand
	CursorsLogID string // the one the cursor was made for
	// NoCursor: there is no cursor of this name yet; the store as a whole is that
	// of the other log.
	NoCursor bool
}

// Error gives both ids.
func (e *LogError) Error() string {
	if e.NoCursor {
		return fmt.Sprintf("consumer %q: the cursors here are those of another log, %s; this one is %s", e.Name, e.CursorsLogID, e.LogID)
	}
	return fmt.Sprintf("consumer %q: %v: it was made for %s, this one is %s", e.Name, ErrWrongLog, e.CursorsLogID, e.LogID)
}

// Unwrap gives ErrWrongLog.
func (e *LogError) Unwrap() error { return ErrWrongLog }

// Policy says what a consumer does whose cursor does not fit the log.
type Policy uint8

// What to do with a cursor that is ahead, behind, or of another log.
const (
	// Fail returns the error. The default.
	Fail Policy = iota
	// Earliest goes on at the first record left.
	Earliest
	// Latest goes on behind the last durable record.
	Latest
)

// Start is where a consumer goes on.
type Start struct {
	Next uint64
	// Lost is the range of offsets that the consumer is not known to have
	// finished and will not see: removed by retention, or passed over by Latest.
	// A cursor that was ahead, or another log's, says nothing about this log, so
	// that all that Latest passes over counts. Empty if none.
	Lost evlog.OffsetRange
	// Reset is the error that Policy decided about; nil where the cursor fits.
	Reset error
}

// Resolve decides where the consumer name goes on whose cursor stands at next,
// bound to the log cursorLog (empty: not bound yet). A cursor above the durable
// end, but not above the valid records, fits: its time will come. A bound cursor
// and a log without an id are ErrNoLogID, whatever the policy.
func Resolve(ctx context.Context, log Log, name string, next uint64, cursorLog string, policy Policy) (Start, error) {
	first, end, err := log.Bounds(ctx)
	if err != nil {
		return Start{}, err
	}
	err = fits(ctx, log, name, next, cursorLog, first, end)
	if err == nil {
		return Start{Next: next}, nil
	}
	if policy == Fail || !decidable(err) {
		return Start{}, err
	}
	s := Start{Next: first, Reset: err}
	if policy == Latest {
		s.Next = end
	}
	from := next
	if !errors.Is(err, ErrBehind) {
		from = first // nothing of this log was finished that is known
	}
	if s.Next > from {
		s.Lost = evlog.OffsetRange{From: from, To: s.Next}
	}
	return s, nil
}

// Lag is how many offsets a consumer still has before it, holes included: from
// its committed offset, or the log's first one if that is higher, to the
// durable end.
func Lag(first, next, committed uint64) uint64 {
	if from := max(first, committed); from < next {
		return next - from
	}
	return 0
}

func decidable(err error) bool {
	return errors.Is(err, ErrAhead) || errors.Is(err, ErrBehind) || errors.Is(err, ErrWrongLog)
}

// fits tests a cursor against the log.
func fits(ctx context.Context, log Log, name string, next uint64, cursorLog string, first, end uint64) error {
	switch id := log.ID(); {
	case cursorLog == "" || cursorLog == id:
	case id == "":
		return fmt.Errorf("consumer %q: %w", name, ErrNoLogID)
	default:
		return &LogError{Name: name, Cursor: next, LogID: id, CursorsLogID: cursorLog}
	}
	if next >= first && next <= end {
		return nil
	}
	if next > end {
		// Only the log knows whether valid records stand there already.
		for _, err := range log.Records(ctx, next) {
			if !errors.Is(err, evlog.ErrOffsetOutOfRange) {
				return err
			}
			return &RangeError{Name: name, Cursor: next, First: first, Next: end}
		}
		return nil
	}
	return &RangeError{Name: name, Cursor: next, First: first, Next: end}
}
