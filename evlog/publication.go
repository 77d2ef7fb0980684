package evlog

import (
	"sync"

	"github.com/evlog-go/evlog/internal/format"
)

// publication is the durable position as readers in this process see it.
type publication struct {
	mu      sync.Mutex // guards the rest
	d       format.Durable
	closed  bool
	changed chan struct{} // closed at the next change; nil where nobody waits
}

func (p *publication) load() format.Durable {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.d
}

// set publishes d and wakes everybody who waits.
func (p *publication) set(d format.Durable) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.d = d
	p.wakeLocked()
}

// close wakes everybody for good.
func (p *publication) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.wakeLocked()
}

func (p *publication) wakeLocked() {
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

// watch returns a channel that is closed when something has changed since next
// was the durable offset; nil where that has happened already.
func (p *publication) watch(next uint64) (changed <-chan struct{}, closed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.d.NextOffset > next {
		return nil, p.closed
	}
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	return p.changed, false
}
