package bench

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/bench/limit"
	"github.com/evlog-go/evlog/internal/bench/turns"
)

// BenchmarkLatest looks up keys that are in the oldest segment alone, of a log
// in which nearly every record has a key of its own, beside a scan of the log
// that compares keys.
func BenchmarkLatest(b *testing.B) {
	const segmentBytes = 4 << 20
	for _, segments := range []int{100, 1000} {
		for _, reader := range []string{"own", "other"} {
			b.Run(fmt.Sprintf("value=100B/segments=%d/reader=%s", segments, reader), func(b *testing.B) {
				dir := b.TempDir()
				l := openLog(b, dir, &evlog.Options{Sync: evlog.SyncFlush, SegmentBytes: segmentBytes})
				n := segments * int(segmentBytes/limit.RecordSize(100))
				fillKeys(b, l, n)
				_, err := l.Reindex(background, nil)
				require.NoError(b, err)
				r := readerOf(b, l, dir, reader)
				turns.Take(b, 0, latestSide(b, r, int(segmentBytes/limit.RecordSize(100))), scanForKey(b, r, &n))
			})
		}
	}
}

// fillKeys enqueues n records with different keys.
func fillKeys(b testing.TB, l *evlog.Log, n int) {
	b.Helper()
	records := limit.Records(1000, 100)
	for i := 0; i < n; i += len(records) {
		batch := records[:min(n-i, len(records))]
		for j := range batch {
			batch[j].Key = fmt.Appendf(batch[j].Key[:0], "key-%012d", i+j)
		}
		_, err := l.Enqueue(background, batch...)
		require.NoError(b, err)
	}
	require.NoError(b, l.Flush(background))
}

// latestSide looks up keys of the first n records.
func latestSide(b *testing.B, r *evlog.Reader, n int) *turns.Side {
	rng := rand.New(rand.NewPCG(1, 2))
	s := &turns.Side{Name: "evlog", Ops: 20}
	s.Run = func(ops int) {
		for range ops {
			i := rng.IntN(n)
			start := time.Now()
			rec, err := r.Latest(background, fmt.Appendf(nil, "key-%012d", i))
			s.Lat = append(s.Lat, time.Since(start))
			if err != nil || rec.Offset != uint64(i) {
				b.Fatal(rec.Offset, err)
			}
		}
	}
	s.Run(2) // warm
	s.Lat = nil
	return s
}

// scanForKey reads the whole log and compares each key: what a look-up takes
// without a filter.
func scanForKey(b *testing.B, r *evlog.Reader, n *int) *turns.Side {
	s := &turns.Side{Name: "scan", Ops: 1}
	s.Run = func(int) {
		found, seen := 0, 0
		for rec, err := range r.Records(background, 0) {
			if err != nil {
				b.Fatal(err)
			}
			if bytes.Equal(rec.Key, []byte("key-000000000001")) {
				found++
			}
			seen++
		}
		if found != 1 || seen != *n {
			b.Fatal(found, seen)
		}
	}
	return s
}

// BenchmarkLatestActive looks up a key that was set once in an active segment of 64
// MiB of other keys, and one that nobody has, while records are appended in
// between: beside a scan of that segment.
func BenchmarkLatestActive(b *testing.B) {
	const segmentBytes = 64 << 20
	for _, reader := range []string{"own", "other"} {
		b.Run("value=100B/reader="+reader, func(b *testing.B) {
			dir := b.TempDir()
			l := openLog(b, dir, &evlog.Options{Sync: evlog.SyncFlush, SegmentBytes: 2 * segmentBytes})
			n := int(segmentBytes / limit.RecordSize(100))
			fillKeys(b, l, n)
			r := readerOf(b, l, dir, reader)
			s := latestSide(b, r, n/100) // near the beginning
			look := s.Run
			s.Run = func(ops int) {
				for range ops {
					_, err := l.Append(background, limit.Records(1, 100)...)
					require.NoError(b, err)
					n++
					look(1)
				}
			}
			s.ByLatency = true
			turns.Take(b, 0, s, scanForKey(b, r, &n))
		})
	}
}
