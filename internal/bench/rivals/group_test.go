package rivals

import (
	"sync"

	"github.com/evlog-go/evlog/evlog"
)

// group is the group commit that the user of a system without one would write:
// the first caller of a batch waits for the batch before, and writes for all that
// have come until then.
type group struct {
	store
	writing sync.Mutex
	mu      sync.Mutex // guards next
	next    *groupBatch
}

type groupBatch struct {
	records []evlog.Record
	done    chan struct{}
	err     error
}

func (g *group) append(records []evlog.Record) error {
	g.mu.Lock()
	b := g.next
	if b != nil {
		b.records = append(b.records, records...)
		g.mu.Unlock()
		<-b.done
		return b.err
	}
	b = &groupBatch{records: append([]evlog.Record(nil), records...), done: make(chan struct{})}
	g.next = b
	g.mu.Unlock()

	g.writing.Lock()
	defer g.writing.Unlock()
	g.mu.Lock()
	g.next = nil
	g.mu.Unlock()
	b.err = g.store.append(b.records)
	close(b.done)
	return b.err
}
