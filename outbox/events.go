package outbox

import (
	"fmt"
	"sync"
	"time"
)

// EventKind is what an Event tells of.
type EventKind uint8

const (
	// EventRelayed: Rows rows are durable in the log, from Offset on.
	EventRelayed EventKind = iota + 1
	// EventParked: Row cannot be appended, because of Err, and is parked. If it was
	// larger than the log takes it was not read, and has neither key nor value.
	EventParked
	// EventRetry: something failed for now, with Err: the database is locked, or a
	// disk is full. The rows stay, and it is tried again after Wait. Of those that
	// come while the relay holds the append gate the last is told, once the gate is
	// free: Stats has them at once.
	EventRetry
	// EventResolved: of an intent that a crash or a failure left, which names rows
	// for the offsets from Offset on, Rows are in the log, Again will be appended
	// again, and Dropped were given up, because Options.Policy says so.
	EventResolved
	// EventMismatch: log and database do not belong together, Err says how, and
	// Options.Policy went on.
	EventMismatch
)

// String is the kind in one word.
func (k EventKind) String() string {
	switch k {
	case EventRelayed:
		return "relayed"
	case EventParked:
		return "parked"
	case EventRetry:
		return "retry"
	case EventResolved:
		return "resolved"
	case EventMismatch:
		return "mismatch"
	}
	return fmt.Sprintf("EventKind(%d)", uint8(k))
}

// Event is something that happened.
type Event struct {
	Kind    EventKind
	Rows    int
	Again   int
	Dropped int
	Offset  uint64
	Row     Row
	Err     error
	Wait    time.Duration
}

// Stats are counters since Open, and the present state of the relay. What is
// queued, and since when, is in the database: see ReadStatus.
type Stats struct {
	Running bool
	Relayed uint64 // rows that are durable in the log
	Batches uint64 // in which they went
	Parked  uint64 // rows that were parked
	Retries uint64 // see EventRetry
	// LastErr is why the relay tries again at the moment; nil if it does not.
	LastErr error
}

// recorder keeps Stats and calls the hook.
type recorder struct {
	onEvent func(Event)

	mu    sync.Mutex // guards stats
	stats Stats

	hookMu sync.Mutex // one event at a time
}

func (r *recorder) get() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stats
}

func (r *recorder) running(is bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.Running = is
	r.stats.LastErr = nil
}

func (r *recorder) well() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.LastErr = nil
}

// event counts and tells.
func (r *recorder) event(e Event) {
	r.count(e)
	r.tell(e)
}

func (r *recorder) count(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch e.Kind {
	case EventRelayed:
		r.stats.Relayed += uint64(e.Rows)
		r.stats.Batches++
		r.stats.LastErr = nil
	case EventParked:
		r.stats.Parked++
	case EventRetry:
		r.stats.Retries++
		r.stats.LastErr = e.Err
	}
}

func (r *recorder) tell(e Event) {
	if r.onEvent == nil {
		return
	}
	r.hookMu.Lock()
	defer r.hookMu.Unlock()
	r.onEvent(e)
}
