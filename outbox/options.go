package outbox

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/evlog-go/evlog/evlog"
)

// Defaults of Options.
const (
	DefaultBatchRows    = 1000
	DefaultBatchBytes   = 4 << 20
	DefaultPollInterval = 50 * time.Millisecond
)

// maxBatchBytes: what is read can be larger by one row, and is in memory twice, as
// rows and as the batch that the log writes. A log takes batches of up to 2 GiB.
const maxBatchBytes = 512 << 20

// Policy says what to do when log and database do not belong together any more
// (see ErrLogChanged and the errors beside it). It decides about the rows of the
// open intent, if there is one whose fate cannot be told. About the others it
// cannot promise anything: those that a database lost that was put back are
// queued there again and come twice (their UIDs are the same), and records that a
// log lost that was put back are not relayed again, since their rows are gone.
//
// Set it for the one start that somebody has thought about. Left in place, it goes
// on after the next mistake too.
type Policy uint8

const (
	// Fail refuses to open the log. The default.
	Fail Policy = iota
	// ResendIntent goes on, and appends the rows of the open intent, of which
	// nobody can tell whether they are in the log that is gone: none of them is
	// lost, and some may come twice.
	ResendIntent
	// DropIntent goes on, and deletes the rows of the open intent: none of them comes
	// twice, and some may be lost. With Options.KeepFor they are kept as the others
	// are, for their dedupe keys; FindRelayed does not find them.
	DropIntent
)

// Options are the choices of Open. Nil and the zero value mean defaults.
type Options struct {
	// Encode makes the log's record of a row; by default it is the record as it
	// was put. It may be called several times for a row, and has to return the
	// same each time. What it returns is used at once and not changed; an error
	// parks the row. It is where Row.UID can go into the record, so that a
	// consumer can drop what a restored database sends again.
	Encode func(Row) (evlog.Record, error)
	// KeepFor keeps rows for so long after they were relayed, with their offsets:
	// see Relayed. Dedupe keys are remembered as long. Those that were kept long
	// enough are deleted within a minute while a relay runs, some at a time. Default
	// 0: rows are deleted, and so are those that were kept before.
	KeepFor time.Duration
	// Policy is what to do with a log that does not fit. Default Fail.
	Policy Policy

	// BatchRows and BatchBytes bound what the relay appends at once, by number and
	// by the size of the records; a larger record goes alone. There is no waiting:
	// what was committed while the last batch was at work is the next one. Defaults
	// 1000 and 4 MiB; BatchBytes is at most 512 MiB.
	BatchRows  int
	BatchBytes int64
	// PollInterval is how often the relay asks the database whether another
	// connection has committed, as a net below Notify: for other processes, and
	// for transactions after which nobody calls it. Default 50 ms.
	PollInterval time.Duration

	// OnEvent is called for each Event, one at a time, on the relay's goroutine and,
	// while a log is opened, on the one that opens it. The relay holds nothing then:
	// OnEvent may use the database, and the log that is relayed into. It must be
	// quick, and must not wait for the relay. Nil is none.
	OnEvent func(Event)
	// Logger gets what happened: rows that were parked, what is in the way of the
	// relay and when it is gone, and what opening found. It may be called while the
	// relay holds the log's append gate, and must not append to that log. Nil is
	// silent.
	Logger *slog.Logger
	// Clock replaces the system's clock. Nil is the system's.
	Clock evlog.Clock
}

func (o *Options) withDefaults() (Options, error) {
	var c Options
	if o != nil {
		c = *o
	}
	bad := func(field string, value any) (Options, error) {
		return c, fmt.Errorf("outbox: options: %s is %v: %w", field, value, evlog.ErrBadOptions)
	}
	switch {
	case c.KeepFor < 0:
		return bad("KeepFor", c.KeepFor)
	case c.Policy > DropIntent:
		return bad("Policy", c.Policy)
	case c.BatchRows < 0:
		return bad("BatchRows", c.BatchRows)
	case c.BatchBytes < 0, c.BatchBytes > maxBatchBytes:
		return bad("BatchBytes", c.BatchBytes)
	case c.PollInterval < 0:
		return bad("PollInterval", c.PollInterval)
	}
	if c.Encode == nil {
		c.Encode = func(r Row) (evlog.Record, error) { return r.Record, nil }
	}
	if c.BatchRows == 0 {
		c.BatchRows = DefaultBatchRows
	}
	if c.BatchBytes == 0 {
		c.BatchBytes = DefaultBatchBytes
	}
	if c.PollInterval == 0 {
		c.PollInterval = DefaultPollInterval
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Clock == nil {
		c.Clock = systemClock{time.Now()}
	}
	return c, nil
}

type systemClock struct{ start time.Time }

func (systemClock) Now() time.Time           { return time.Now() }
func (c systemClock) Elapsed() time.Duration { return time.Since(c.start) }
func (systemClock) Timer(d time.Duration) (<-chan time.Time, func()) {
	t := time.NewTimer(d)
	return t.C, func() { t.Stop() }
}
