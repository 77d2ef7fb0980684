package evlog

import (
	"runtime"
	"time"
)

// gathering is what the turn knows of callers who come back. The callers that a
// commit covers wake up when it is done, and many append again at once, a moment
// too late for the sync that would start without them. So the next one waits for
// them: one sync for all, in place of two that each take half of them.
type gathering struct {
	covered  int64         // callers whose records were taken, and who were not told yet
	expected int64         // for the next commit
	told     time.Time     // when those of the last commit were told
	sync     time.Duration // what the last sync took
}

// expect is called when the covered callers are about to be told. Those who have
// joined the next commit by then are expected beside them. Where fewer have come
// than were expected, it takes some commits to believe that the others will not.
func (g *gathering) expect(joined int64) {
	g.expected = max(g.covered+joined, g.expected-(g.expected+7)/8)
}

// gather waits until the expected callers have joined, or none has for a quarter
// of the time that a sync takes, and for two such times at most. A single caller
// never waits.
func (l *Log) gather() {
	g := &l.act.gathering
	if g.expected < 2 {
		return
	}
	took := min(g.sync, maxGather/2)
	last, joined := g.told, l.joined.Load()
	for joined < g.expected {
		runtime.Gosched()
		now := time.Now()
		if n := l.joined.Load(); n != joined {
			last, joined = now, n
		} else if now.Sub(last) >= took/4 {
			return
		}
		if now.Sub(g.told) >= 2*took {
			return
		}
	}
}

const maxGather = 2 * time.Millisecond
