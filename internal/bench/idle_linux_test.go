package bench

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/internal/bench/limit"
	"github.com/evlog-go/evlog/internal/bench/turns"
)

// idleTime is how long nothing is written.
const idleTime = 2 * time.Second

// BenchmarkIdle measures the processor time that a follower uses while
// nothing happens. An op is an idle time; the limit is a process of ours that
// only sleeps.
func BenchmarkIdle(b *testing.B) {
	for _, c := range []struct{ process, events string }{
		{"own", "none"}, {"other", "yes"}, {"other", "no"},
	} {
		b.Run(fmt.Sprintf("process=%s/events=%s", c.process, c.events), func(b *testing.B) {
			dir := b.TempDir()
			l := openLog(b, dir, nil)
			cpu := cpuTime
			if c.process == "own" {
				seen := followOwn(b, l)
				_, err := l.Append(background, limit.Records(1, 100)...)
				require.NoError(b, err)
				seen()
			} else {
				_, err := l.Append(background, limit.Records(1, 100)...)
				require.NoError(b, err)
				f := startFollower(b, "follow", dir, c.events)
				f.seen()
				cpu = f.cpu
			}
			asleep := startFollower(b, "idle")
			time.Sleep(500 * time.Millisecond) // what is done after activity is over
			var used, asleepUsed time.Duration
			for b.Loop() {
				used -= cpu()
				asleepUsed -= asleep.cpu()
				time.Sleep(idleTime)
				used += cpu()
				asleepUsed += asleep.cpu()
			}
			seconds := float64(b.N) * idleTime.Seconds()
			b.ReportMetric(turns.Micros(used)/seconds, "cpu-us/s")
			b.ReportMetric(turns.Micros(asleepUsed)/seconds, "limit-cpu-us/s")
		})
	}
}
