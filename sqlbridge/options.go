package sqlbridge

import (
	"context"
	"fmt"
	"time"

	"github.com/evlog-go/evlog/cursor"
	"github.com/evlog-go/evlog/evlog"
)

// Handler applies one record in a transaction. An error undoes what it did in
// tx; RunOptions say what happens then. It may be called again for a record
// whose transaction was not committed, and of all those calls exactly one takes
// effect in the database.
//
// Everything that it does in this database goes through tx, which holds the write
// lock: a write by the *sql.DB waits for the busy timeout and fails, and with a
// pool of one connection even a read waits for ever.
//
// ctx has the values of the caller's context but never ends, because SQLite
// rolls a transaction back in which a statement is cancelled. A handler that
// waits for something else watches the caller's context itself, before it uses
// tx. rec and tx are valid during the call only: see evlog.Record.Clone.
//
// A lock that a statement of tx meets is no failure of the record: the
// transaction is done again, for as long as Options.BusyFor says. Whether the
// handler meets one elsewhere, or in a statement that tx does not see (Raw,
// prepared by the handler), is told by the text of its error in the latter case,
// and not at all in the former.
type Handler func(ctx context.Context, tx *Tx, rec evlog.Record) error

const (
	defaultBatchRecords = 1000
	defaultBatchBytes   = 4 << 20
	defaultBatchTime    = 200 * time.Millisecond
	defaultRetryDelay   = 100 * time.Millisecond
)

// maxRetryDelay is where the growth of RunOptions.RetryDelay ends.
const maxRetryDelay = time.Minute

// Poison says what to do with a record whose attempts have all failed.
type Poison uint8

const (
	// Stop returns a *cursor.HandlerError with the record's offset, where the
	// cursor stays. What came before it is committed. The default.
	Stop Poison = iota
	// Skip undoes what the record did, notes it with its error in the same
	// transaction (see Skips), and goes on. Each record then has a savepoint of
	// its own, which costs a few microseconds.
	Skip
)

// RunOptions are the choices of Run and Process. Nil and the zero value mean
// defaults.
type RunOptions struct {
	// New is where a consumer starts that never committed: cursor.Earliest (the
	// default) or cursor.Latest.
	New cursor.Policy
	// Reset is what to do with a cursor that does not fit the log, at the start
	// or when retention overtakes Run. A reset is noted in the database in the
	// transaction that moves the cursor (see Skips). Default cursor.Fail.
	Reset cursor.Policy
	// OnReset is told where the consumer goes on in place of failing, and which
	// offsets it will never see, before that is stored. Nil is none.
	OnReset func(cursor.Start)
	// UntilEnd ends Run, with nil, when everything is applied that was durable
	// at its start. By default it waits for more.
	UntilEnd bool

	// BatchRecords and BatchBytes bound what one transaction of Run applies, by
	// number and by the size of keys and values. There is no waiting: what came
	// while the last transaction was at work is the next batch. Defaults 1000
	// and 4 MiB.
	BatchRecords int
	BatchBytes   int64
	// BatchDelay lets an incomplete batch wait so long for more records, counted
	// from when its first was read. At most one batch is then read ahead. Default
	// not at all.
	BatchDelay time.Duration
	// BatchTime is how long a transaction of Run may last: it is then committed
	// with what it has, so that slow handlers do not keep other writers out.
	// Default 200 ms; negative: no limit.
	BatchTime time.Duration

	// Attempts is how often a record is tried that fails. Default 1.
	Attempts int
	// RetryDelay is the pause before the second attempt; it doubles up to a
	// minute. No transaction is open meanwhile. Default 100 ms.
	RetryDelay time.Duration
	// Poison is what to do after the last attempt. Default Stop.
	Poison Poison
}

func (o *RunOptions) withDefaults() (RunOptions, error) {
	var c RunOptions
	if o != nil {
		c = *o
	}
	bad := func(field string, value any) (RunOptions, error) {
		return c, fmt.Errorf("sqlbridge: options: %s is %v: %w", field, value, evlog.ErrBadOptions)
	}
	switch {
	case c.New > cursor.Latest:
		return bad("New", c.New)
	case c.Reset > cursor.Latest:
		return bad("Reset", c.Reset)
	case c.BatchRecords < 0:
		return bad("BatchRecords", c.BatchRecords)
	case c.BatchBytes < 0:
		return bad("BatchBytes", c.BatchBytes)
	case c.BatchDelay < 0:
		return bad("BatchDelay", c.BatchDelay)
	case c.Attempts < 0:
		return bad("Attempts", c.Attempts)
	case c.RetryDelay < 0:
		return bad("RetryDelay", c.RetryDelay)
	case c.Poison > Skip:
		return bad("Poison", c.Poison)
	}
	setDefault(&c.BatchRecords, defaultBatchRecords)
	setDefault(&c.BatchBytes, defaultBatchBytes)
	setDefault(&c.BatchTime, defaultBatchTime)
	setDefault(&c.Attempts, 1)
	setDefault(&c.RetryDelay, defaultRetryDelay)
	return c, nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
