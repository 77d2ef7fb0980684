package evlog

import (
	"sync"
	"sync/atomic"
)

// closedSegments keeps those apart who change closed segments or their indexes:
// retention, compaction, and the housekeeper. Appends and readers need none of
// it.
type closedSegments struct {
	// mu is held for the replacement or the removal of one segment or index,
	// never across a whole run. What was found out without it may have changed:
	// whoever prepared a change looks again under mu whether the file is still
	// the one that was read (vfs.Dir.Same), or whether changes is what it was.
	// Taken after the turn, where both are held; Log.mu may be taken under it.
	mu sync.Mutex

	// changes counts replacements, merges and removals of segments. It is moved on
	// under mu and when the name has changed, not before: who finds it unmoved, and
	// found the name leading to an open file then, knows that it still does.
	changes atomic.Uint64

	// below is the base of the active segment, once the roll that made it has
	// done its last step: segments with a lower base are closed for good. Between
	// a new name and the end of its roll the one before is not.
	below atomic.Uint64

	// activeRecords is the number of durable records in the active segment.
	activeRecords atomic.Int64
}

// change does one replacement, merge or removal.
func (c *closedSegments) change(do func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.changes.Add(1)
	return do()
}

// mark returns the number of changes so far, for asking whether there were any
// since. It waits for one that is under way.
func (c *closedSegments) mark() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changes.Load()
}
