package limit

import (
	"sync"
	"testing"
	"time"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/bench/turns"
)

// Append is the side that commits the records of all callers together, without
// waiting for them or waking them: syncs times in a turn. The latency is that of a
// whole commit.
func Append(b testing.TB, name string, records []evlog.Record, callers, syncs int, zeroed int64) *turns.Side {
	l := New(b, b.TempDir(), zeroed)
	s := &turns.Side{Name: name, Ops: syncs * callers}
	s.Before = func() {
		size := int64(0)
		for i := range s.Ops {
			size += records[i%len(records)].Size()
		}
		l.Room(size)
	}
	s.Run = func(ops int) {
		for i := 0; i < ops; i += callers {
			start := time.Now()
			at := i % len(records)
			l.Add(records[at : at+callers]...)
			l.Write()
			l.Sync()
			s.Lat = append(s.Lat, time.Since(start))
		}
	}
	return s
}

// Woken is Append with each caller a goroutine that waits until its record is durable, as
// one of a library's does: the last to come writes and syncs for all, and wakes the
// others. That all of them come each time is known beforehand, so nobody is waited for in
// vain. The latency is that of a call.
func Woken(b testing.TB, name string, records []evlog.Record, callers, syncs int, zeroed int64) *turns.Side {
	w := &woken{l: New(b, b.TempDir(), zeroed), callers: callers, done: make(chan struct{})}
	s := &turns.Side{Name: name, Ops: syncs * callers}
	s.Before = func() {
		size := int64(0)
		for i := range s.Ops {
			size += records[i%len(records)].Size()
		}
		w.l.Room(size)
	}
	s.Run = func(ops int) {
		s.Lat.Together(callers, ops, func(i int) { w.append(&records[i%len(records)]) })
	}
	return s
}

// woken is a log that so many callers append to.
type woken struct {
	callers int

	mu   sync.Mutex // guards the rest
	l    *Log
	come int
	done chan struct{} // closed when those who have come are durable
}

func (w *woken) append(r *evlog.Record) {
	now := time.Now().UnixMilli()
	w.mu.Lock()
	w.l.Buf = Encode(w.l.Buf, w.l.Next, now, r)
	w.l.Next++
	w.come++
	done := w.done
	if w.come < w.callers {
		w.mu.Unlock()
		<-done
		return
	}
	w.l.Write()
	w.l.Sync()
	w.come, w.done = 0, make(chan struct{})
	w.mu.Unlock()
	close(done)
}
