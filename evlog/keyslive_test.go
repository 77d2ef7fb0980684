package evlog_test

import (
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/internal/vfs"
)

// Look-ups by key while a writer sets the keys anew, rolls, compacts and merges
// as fast as it can: a key that was set is always found, and never with a value
// older than the one that was durable before the look-up began; its history
// rises. (I6, I7)
func TestKeys_BesideAppendsAndCompaction(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		const keys = 12
		steps := max(evtest.Count(100_000), 1000)
		if p.fsys == (vfs.OS{}) {
			steps /= 10 // each of them a sync
		}
		l := p.open(t, &evlog.Options{SegmentBytes: 900, IndexBytes: 200, Sync: evlog.SyncFlush})
		var durable [keys]atomic.Int64
		set := func(k, n int) {
			_, err := l.Append(p.ctx, rec(fmt.Sprint("key-", k), fmt.Sprint(n)), rec(fmt.Sprint("filler-", n), "x"))
			require.NoError(t, err)
			durable[k].Store(int64(n))
		}
		for k := range keys {
			set(k, 0)
		}
		var ended atomic.Bool
		var lookUps atomic.Int64
		var wg sync.WaitGroup
		for _, r := range []*evlog.Reader{l.Reader(), p.reader(t, nil), p.reader(t, nil)} {
			wg.Go(func() {
				for n := 0; !ended.Load() && !t.Failed(); n++ {
					k := n % keys
					key := []byte(fmt.Sprint("key-", k))
					before := durable[k].Load()
					got, err := r.Latest(p.ctx, key)
					value, _ := strconv.ParseInt(string(got.Value), 10, 64)
					if err != nil || value < before {
						t.Errorf("key %d: %d was durable, found %q at offset %d: %v", k, before, got.Value, got.Offset, err)
					}
					last := int64(-1)
					for rec, err := range r.ByKey(p.ctx, key, 0) {
						value, _ := strconv.ParseInt(string(rec.Value), 10, 64)
						if err != nil || value <= last {
							t.Errorf("history of key %d: %q behind %d: %v", k, rec.Value, last, err)
						}
						last = value
					}
					lookUps.Add(1)
				}
			})
		}
		g := evtest.NewGen(11)
		for n := 1; n <= steps && !t.Failed(); n++ {
			set(g.Rng.IntN(keys), n)
			if n%60 == 0 {
				_, err := l.Compact(p.ctx, &evlog.CompactOptions{MinLag: -1, Grace: -1})
				require.NoError(t, err)
			}
		}
		ended.Store(true)
		wg.Wait()
		t.Logf("%d look-ups", lookUps.Load())
		require.Positive(t, lookUps.Load())
	})
}
