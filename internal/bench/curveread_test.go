package bench

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/bench/limit"
	"github.com/evlog-go/evlog/internal/bench/turns"
)

// BenchmarkCurveScan reads and checks all records of logs of one size, from the page
// cache.
func BenchmarkCurveScan(b *testing.B) {
	const logBytes = 48 << 20
	xs := []int64{16, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10}
	curve(b, "scan", "value_bytes", xs, func(b *testing.B, x int64) []*turns.Side {
		dir := b.TempDir()
		n := int(logBytes / limit.RecordSize(int(x)))
		records := limit.Records(min(n, 1000), int(x))
		l := openLog(b, dir, &evlog.Options{Sync: evlog.SyncFlush, SegmentBytes: 16 << 20})
		fillLog(b, l, records, n)
		return []*turns.Side{
			scanEvlog(b, l.Reader(), n), scanLimit(b, dir, n), scanSQLite(b, records, min(n, 50_000)),
		}
	})
}

// BenchmarkCurveOpen opens logs of records of 100 B in segments of 64 MiB. The active
// one has at most 8 MiB.
func BenchmarkCurveOpen(b *testing.B) {
	xs := []int64{1000, 10_000, 100_000, 1_000_000, 3_000_000, 10_000_000}
	curve(b, "open", "records", xs, func(b *testing.B, x int64) []*turns.Side {
		clean, crashed := makeLong(b, x), makeLong(b, x)
		return []*turns.Side{
			named("evlog", clean.evlog(false)), named("limit", clean.limit(false)),
			named("evlog-crash", crashed.evlog(true)), named("limit-crash", crashed.limit(true)),
			clean.sqlite(false),
		}
	})
}

// makeLong writes a log of n records by hand.
func makeLong(b *testing.B, n int64) *many {
	active := min(n, activeBytes/limit.RecordSize(100))
	m := &many{b: b, dir: b.TempDir(), segments: 1, records: limit.Records(1000, 100)}
	l, err := evlog.Open(background, m.dir, nil)
	require.NoError(b, err)
	require.NoError(b, l.Close()) // for log.json
	for closed := n - active; closed > 0; m.segments++ {
		records := min(closed, evlog.DefaultSegmentBytes/limit.RecordSize(100))
		m.segment(int(records), true)
		closed -= records
	}
	m.segment(int(active), false)
	return m
}
