package evlog

import (
	"fmt"
	"time"
)

// EventKind says what an Event reports.
type EventKind uint8

// What a log reports to Options.OnEvent.
const (
	// EventOpened: the writer is open. Offset is the next offset, Bytes what
	// recovery had to cut off the active segment (zeros that a writer had
	// prepared do not count), and KeptAs the file it was saved in, if a valid
	// record stood behind the damage.
	EventOpened EventKind = iota + 1
	// EventRolled: a new segment is active; Base names it.
	EventRolled
	// EventIndexed: the index of segment Base was written.
	EventIndexed
	// EventDiskFull: a write failed for lack of space and was undone; Err.
	EventDiskFull
	// EventPoisoned: the log takes no more records; Err.
	EventPoisoned
	// EventRemoved: retention removed the segment Base, which ended at Offset, with
	// Bytes.
	EventRemoved
	// EventConfigured: options that differ from log.json were stored.
	EventConfigured
	// EventCompacted: a compaction changed segments, from Base on; Bytes is how
	// much less they take now. Err is why it did not get to its end, if it did not.
	EventCompacted
)

var eventNames = [...]string{
	EventOpened: "opened", EventRolled: "rolled", EventIndexed: "indexed", EventDiskFull: "disk full",
	EventPoisoned: "poisoned", EventRemoved: "removed", EventConfigured: "configured", EventCompacted: "compacted",
}

// String returns the kind in words.
func (k EventKind) String() string {
	if int(k) < len(eventNames) && eventNames[k] != "" {
		return eventNames[k]
	}
	return fmt.Sprintf("event %d", uint8(k))
}

// Event is something that happened inside a writer.
type Event struct {
	Kind   EventKind
	Base   uint64
	Offset uint64
	Bytes  int64
	KeptAs string
	Err    error
}

// Stats are counters since the writer was opened, and its present state.
type Stats struct {
	Records        uint64 // accepted
	Bytes          uint64 // of these records, as they stand in the log
	Batches        uint64 // calls that were accepted
	Writes         uint64 // writes to segments
	Syncs          uint64 // syncs that made records durable
	SyncTime       time.Duration
	Rolls          uint64
	DiskFull       uint64 // writes that failed for lack of space
	Removed        uint64 // segments, by retention
	RemovedBytes   uint64 // of these, with their indexes
	Compactions    uint64 // that changed something
	CompactedBytes int64  // by which they made the log smaller
	RoomWaits      uint64 // calls that had to wait for buffer space
	GateWaits      uint64 // calls that had to wait for the append gate
	GateHolder     string // who holds the gate now, as it was told; "" if nobody
	// NextOffset is what the next record will get. Offsets of records for which the
	// disk had no room stay a hole while the log is open: above DurableNext then,
	// with nothing buffered, and given out after all by a writer that opens a log
	// with nothing behind them.
	NextOffset  uint64
	DurableNext uint64 // first offset that is not durable; what opening found counts: see Open
	Buffered    int64  // bytes accepted and not yet written
}
