package evlog

import (
	"sync/atomic"
	"time"

	"github.com/evlog-go/evlog/internal/clock"
)

// stamper tells the time for records, in milliseconds. To ask for the wall clock
// takes a quarter of the time of enqueueing a record, and twice as long as to ask how
// much time has passed: until a millisecond is over, it is not asked again. So a jump
// is seen a millisecond late at most.
//
// A stamp is never changed once it is stored. One that takes the place of a later one is
// over already, so that the clock is asked again.
//
// A Clock that is not the system's is asked each time: it may jump while no time
// passes.
type stamper struct {
	clock  Clock
	system bool // clock is the system's
	last   atomic.Pointer[stamp]
}

// stamp is a time, and for how long it is the one.
type stamp struct {
	ms    int64
	until time.Duration // by Clock.Elapsed
}

func (s *stamper) use(c Clock) {
	s.clock = c
	_, s.system = c.(clock.System)
}

// now may be called by any number of goroutines.
func (s *stamper) now() int64 {
	if !s.system {
		return s.clock.Now().UnixMilli()
	}
	elapsed := s.clock.Elapsed() // before the wall clock, so that it ends too early and not too late
	if last := s.last.Load(); last != nil && elapsed < last.until {
		return last.ms
	}
	now := s.clock.Now()
	over := time.Duration(now.Nanosecond()) % time.Millisecond
	s.last.Store(&stamp{ms: now.UnixMilli(), until: elapsed + time.Millisecond - over})
	return now.UnixMilli()
}
