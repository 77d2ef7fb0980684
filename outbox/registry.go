package outbox

import (
	"fmt"
	"path/filepath"
	"sync"

	"github.com/evlog-go/evlog/internal/outboxrule"
)

// running are the databases that a relay of this process works on, or that a
// hook is taking over. Relays of two processes fence each other.
var running struct {
	mu    sync.Mutex // guards files
	files map[string]bool
}

// register notes that the box's database is being relayed.
func (b *Box) register() (release func(), err error) {
	if b.rules.Off(outboxrule.OneRelay) {
		return func() {}, nil
	}
	file := b.file
	if path, err := filepath.EvalSymlinks(file); err == nil {
		file = path
	}
	running.mu.Lock()
	defer running.mu.Unlock()
	if running.files[file] {
		return nil, fmt.Errorf("outbox: %s: %w", b.file, ErrRelayRunning)
	}
	if running.files == nil {
		running.files = map[string]bool{}
	}
	running.files[file] = true
	return func() {
		running.mu.Lock()
		defer running.mu.Unlock()
		delete(running.files, file)
	}, nil
}
