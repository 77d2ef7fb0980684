package evlog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// maxClockLead is how far the wall clock may run ahead of the one that never
// jumps, from one look to the next, and still be believed.
const maxClockLead = time.Hour

// clockWatch notices when the wall clock jumps forwards: what was just written by
// a clock that was behind looks old then. Retention and compaction look at it.
type clockWatch struct {
	clock Clock

	mu            sync.Mutex // guards the rest
	wall          time.Time  // the clocks when last looked at
	elapsed, boot time.Duration
	steady        time.Duration // passed since the start, by the clocks that never jump
	jumped        time.Duration // of steady, when a jump was noticed last
	doubt         bool          // there was a jump
	unsaved       bool          // and log.json does not know it yet
}

// start begins with what the last writer has stored: when the clock jumped, by
// the wall clock, and 0 for never. A jump that lies in the future was one too
// far, and the clock was set back since: the wait begins anew.
func (c *clockWatch) start(clock Clock, jumpedMS int64) {
	c.clock = clock
	c.wall, c.elapsed, c.boot = c.read()
	if jumpedMS != 0 {
		c.doubt = true
		c.jumped = -sinceJump(c.wall, jumpedMS)
		c.unsaved = timeOf(jumpedMS).After(c.wall)
	}
}

// sinceJump is how long ago the clock jumped, by what log.json says.
func sinceJump(now time.Time, jumpedMS int64) time.Duration {
	return max(0, now.Sub(timeOf(jumpedMS)))
}

// read reads the clocks. boot goes on while the machine sleeps, where there is
// such a clock: waking up is no jump.
func (c *clockWatch) read() (wall time.Time, elapsed, boot time.Duration) {
	wall, elapsed = c.clock.Now().Round(0), c.clock.Elapsed() // without Go's monotonic part
	boot = elapsed
	if b, ok := c.clock.(interface{ SinceBoot() time.Duration }); ok {
		boot = b.SinceBoot()
	}
	return wall, elapsed, boot
}

// look compares the clocks with what they showed when last looked at. unsaved
// says that a jump was noticed which is not stored, and at when.
func (c *clockWatch) look() (at time.Time, unsaved bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	wall, elapsed, boot := c.read()
	passed := max(elapsed-c.elapsed, boot-c.boot)
	c.steady += passed
	if wall.Sub(c.wall)-passed > maxClockLead {
		c.doubt, c.jumped, c.unsaved = true, c.steady, true
	}
	c.wall, c.elapsed, c.boot = wall, elapsed, boot
	return wall.Add(c.jumped - c.steady), c.unsaved
}

// saved notes that log.json knows of the jump.
func (c *clockWatch) saved() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unsaved = false
}

// wait is for how long an age of limit does not count: that long after a jump.
func (c *clockWatch) wait(limit time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.doubt {
		return 0
	}
	return max(0, limit-(c.steady-c.jumped))
}

// lookAtClock looks at the clocks before ages are counted.
func (l *Log) lookAtClock(ctx context.Context) {
	if _, unsaved := l.clocks.look(); unsaved && l.acquireTurn(ctx) == nil {
		l.saveJump()
		l.releaseTurn()
	}
}

// saveJump stores that the wall clock has jumped, if it has, so that the next
// writer knows of it. If that fails, a later look tries again; ages wait in any
// case. The turn is held.
func (l *Log) saveJump() {
	at, unsaved := l.clocks.look()
	if !unsaved {
		return
	}
	err := l.changeMeta(func(m *meta) { m.JumpedMS = at.UnixMilli() })
	switch {
	case err == nil:
		l.clocks.saved()
		l.logger.Warn("the wall clock has jumped ahead; no age counts until its limit has passed once more", "at", at.UTC())
	case errors.Is(err, errSyncDir):
		l.poison(fmt.Errorf("evlog: store that the clock has jumped: %w", err)) //nolint:errcheck // the log carries it
	case l.failure() == nil:
		l.logger.Warn("that the wall clock has jumped ahead could not be stored", "err", err)
	}
}

// changeMeta stores a change of log.json. The turn is held.
func (l *Log) changeMeta(change func(*meta)) error {
	l.mu.Lock()
	m := *l.meta
	err := l.err
	l.mu.Unlock()
	if err != nil {
		return err
	}
	change(&m)
	if err := m.store(l.dir); err != nil {
		return err
	}
	l.mu.Lock()
	l.meta = &m
	l.mu.Unlock()
	return nil
}
