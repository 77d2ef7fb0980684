package evlog_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/vfs"
)

// A call of Retain removes also what the log is just rolling, by the age of the
// active segment for one: it waits for that.
func TestRetain_WaitsForARoll(t *testing.T) {
	p, _ := inMem(t)
	at, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	var armed atomic.Bool
	p = p.on(vfs.Inject(p.fsys, func(op vfs.Op) error {
		if op.Kind&(vfs.OpSync|vfs.OpSyncData) != 0 && op.Name == "DURABLE" && armed.Load() {
			once.Do(func() { // the old segment is not active, and not closed for good
				close(at)
				<-goOn
			})
		}
		return nil
	}))
	l := p.open(t, &evlog.Options{NoRetention: true})
	appendEach(t, p.ctx, l, numbered(0, 3)...)
	armed.Store(true)
	rolled := make(chan error, 1)
	go func() { rolled <- l.Roll(p.ctx) }()
	inTime(t, "rolling", at)
	type result struct {
		rep *evlog.RetainReport
		err error
	}
	retained := make(chan result, 1)
	go func() {
		rep, err := l.Retain(p.ctx, &evlog.RetainOptions{Below: 3})
		retained <- result{rep, err}
	}()
	time.Sleep(10 * time.Millisecond) // for it to get there; sooner is no failure
	close(goOn)
	require.NoError(t, inTime(t, "Roll", rolled))
	got := inTime(t, "Retain", retained)
	require.NoError(t, got.err)
	require.Len(t, got.rep.Removed, 1)
	require.EqualValues(t, 3, got.rep.First)
	require.Equal(t, []uint64{3}, p.image(t).Bases())
}
