package bench

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/bench/limit"
	"github.com/evlog-go/evlog/internal/bench/turns"
)

// BenchmarkProfile is evlog alone, without the other sides, for make profile.
func BenchmarkProfile(b *testing.B) {
	size := limit.RecordSize(100)
	a := &appender{b: b, records: limit.Records(1024, 100)}
	for _, c := range []struct {
		name    string
		callers int
	}{{"append1", 1}, {"append64", 64}} {
		b.Run(c.name, func(b *testing.B) {
			a := &appender{b, a.records, c.callers}
			turns.Take(b, size, a.evlog("evlog", c.callers, false))
		})
	}
	b.Run("enqueue", func(b *testing.B) {
		e := &enqueuer{b: b, records: limit.Records(1000, 100), batch: 1, segment: 1 << 30, ops: 1_000_000}
		turns.Take(b, size, e.evlog())
	})
	b.Run("scan", func(b *testing.B) {
		const n = 1_000_000
		l := openLog(b, b.TempDir(), &evlog.Options{Sync: evlog.SyncFlush})
		fillLog(b, l, limit.Records(1000, 100), n)
		turns.Take(b, size, scanEvlog(b, l.Reader(), n))
	})
	b.Run("follow", func(b *testing.B) { turns.Take(b, size, followBatches(b)) })
}

// followBatches has a follower read durable batches as they come. A turn ends when
// it has read all of them.
func followBatches(b *testing.B) *turns.Side {
	const batch, batches = 100, 1000
	records := limit.Records(batch, 100)
	l := openLog(b, b.TempDir(), nil)
	s := &turns.Side{Name: "evlog", Ops: batch * batches}
	s.Run = func(ops int) {
		last := l.Stats().NextOffset + uint64(ops) - 1
		done := make(chan error, 1)
		go func() {
			for rec, err := range l.Reader().Follow(background, last+1-uint64(ops)) {
				if err != nil || rec.Offset == last {
					done <- err
					return
				}
			}
		}()
		for range batches {
			_, err := l.Append(background, records...)
			require.NoError(b, err)
		}
		require.NoError(b, <-done)
	}
	return s
}
