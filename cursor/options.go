package cursor

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/clock"
)

// Defaults of Options.
const (
	DefaultCommitRecords  = 1000
	DefaultCommitInterval = time.Second
	DefaultStopTimeout    = 10 * time.Second
)

// Options are the choices of Run. Nil and the zero value mean defaults.
type Options struct {
	// CommitRecords commits after so many handled records. Default 1000;
	// negative: not by number.
	CommitRecords int
	// CommitInterval commits when the oldest handled record that is not
	// committed was handled this long ago, also while nothing comes. Default 1 s;
	// negative: not by time.
	CommitInterval time.Duration
	// BeforeCommit is called before each commit of handled records: whoever
	// buffers what it handles flushes it here. It may be on another goroutine
	// than the handler, but never at the same time. Its context outlives that of
	// Run by StopTimeout, so that a stop still flushes and commits. An error ends
	// the loop, and nothing is committed. Nil is none.
	BeforeCommit func(ctx context.Context) error

	// New is where a consumer starts that never committed: Earliest (the
	// default; Fail means it too) or Latest.
	New Policy
	// Reset is what to do with a cursor that does not fit the log, at the start
	// or when retention overtakes the loop. Default Fail.
	Reset Policy
	// OnReset is told where the consumer goes on in place of failing, and which
	// offsets it will never see, before that is stored. Nil is none.
	OnReset func(Start)

	// UntilEnd ends the loop, with nil, when everything is handled that was
	// durable at its start. By default it waits for more.
	UntilEnd bool
	// Limit ends the loop, with nil, after so many records. Default no limit.
	Limit uint64
	// StopTimeout is how long commits and BeforeCommit may go on after the
	// context has ended, by the system's clock whatever Clock is. Default 10 s.
	StopTimeout time.Duration

	// Logger gets resets as warnings. Nil is silent.
	Logger *slog.Logger
	// Clock replaces the system's clock. Nil is the system's.
	Clock evlog.Clock
}

// HandlerError says which record the handler could not handle. It wraps the
// handler's error. The record, and all after it, will be delivered again.
type HandlerError struct {
	Name   string
	Offset uint64
	Err    error
}

// Error names consumer and offset.
func (e *HandlerError) Error() string {
	return fmt.Sprintf("consumer %q: offset %d: %v", e.Name, e.Offset, e.Err)
}

// Unwrap gives the handler's error.
func (e *HandlerError) Unwrap() error { return e.Err }

func (o *Options) withDefaults() (Options, error) {
	var c Options
	if o != nil {
		c = *o
	}
	if c.New > Latest || c.Reset > Latest {
		return c, fmt.Errorf("cursor: options: New is %d, Reset is %d: %w", c.New, c.Reset, evlog.ErrBadOptions)
	}
	if c.CommitRecords == 0 {
		c.CommitRecords = DefaultCommitRecords
	}
	if c.CommitInterval == 0 {
		c.CommitInterval = DefaultCommitInterval
	}
	if c.StopTimeout <= 0 {
		c.StopTimeout = DefaultStopTimeout
	}
	if c.Limit == 0 {
		c.Limit = ^uint64(0)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Clock == nil {
		c.Clock = clock.NewSystem()
	}
	return c, nil
}
