package rivals

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/bench/limit"
)

// TestStores tests that each system is used so that it keeps what it is given.
func TestStores(t *testing.T) {
	for _, r := range all() {
		for _, durable := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/durable=%t", r.name, durable), func(t *testing.T) {
				const n = 5_000
				records := limit.Records(1000, 100)
				c, dir := config{durable: durable, segmentBytes: 128 << 10}, t.TempDir()
				s, err := r.open(t, dir, c)
				require.NoError(t, err)
				for i := range 10 {
					require.NoError(t, s.append(records[i:i+1]))
				}
				require.NoError(t, s.append(records[10:]))
				for range n/len(records) - 1 {
					require.NoError(t, s.append(records))
				}
				require.NoError(t, s.flush())
				requireRecords(t, s, records, n)
				require.NoError(t, s.close())

				s, err = r.open(t, dir, c)
				require.NoError(t, err)
				requireRecords(t, s, records, n)
				before := allocated(t, dir)
				require.NoError(t, s.drop(n/2))
				key, value, err := s.get(n - 1)
				require.NoError(t, err)
				require.Equal(t, records[len(records)-1].Key, key)
				require.Equal(t, records[len(records)-1].Value, value)
				left := 0
				require.NoError(t, s.scan(func(_, _ []byte) { left++ }))
				require.InDelta(t, n/2, left, n/5)
				require.NoError(t, s.close())
				t.Logf("%d records left, %d of %d bytes", left, allocated(t, dir), before)
			})
		}
	}
}

func requireRecords(t *testing.T, s store, records []evlog.Record, n int) {
	t.Helper()
	i := 0
	require.NoError(t, s.scan(func(key, value []byte) {
		want := &records[i%len(records)]
		if string(key) != string(want.Key) || string(value) != string(want.Value) {
			t.Errorf("record %d is another", i)
		}
		i++
	}))
	require.Equal(t, n, i)
	for _, offset := range []uint64{0, 9, 10, uint64(n) - 1} {
		key, value, err := s.get(offset)
		require.NoError(t, err)
		require.Equal(t, records[offset%uint64(len(records))].Key, key)
		require.Equal(t, records[offset%uint64(len(records))].Value, value)
	}
}

// TestGroup tests that every caller's record is in the store once it returns.
func TestGroup(t *testing.T) {
	for _, r := range all() {
		if r.name == least.name {
			continue
		}
		t.Run(r.name, func(t *testing.T) {
			s := &group{store: r.mustOpen(t, config{durable: true})}
			records := limit.Records(200, 100)
			var wg sync.WaitGroup
			for c := range 20 {
				wg.Go(func() {
					for i := c; i < len(records); i += 20 {
						if err := s.append(records[i : i+1]); err != nil {
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
			got := map[string]int{}
			require.NoError(t, s.scan(func(_, value []byte) { got[string(value)]++ }))
			require.Len(t, got, len(records))
			for _, r := range records {
				require.Equal(t, 1, got[string(r.Value)])
			}
		})
	}
}

// TestFollow tests that followers see each record once.
func TestFollow(t *testing.T) {
	for _, r := range all() {
		s := r.mustOpen(t, config{durable: true})
		f, ok := s.(follower)
		if !ok {
			continue
		}
		t.Run(r.name, func(t *testing.T) {
			records := limit.Records(20, 100)
			require.NoError(t, s.append(records[:1]))
			seen := make(chan struct{}, 100)
			stop, err := f.follow(1, func() { seen <- struct{}{} })
			require.NoError(t, err)
			for i := 1; i < len(records); i++ {
				require.NoError(t, s.append(records[i:i+1]))
				<-seen
			}
			stop()
			require.Empty(t, seen)
		})
	}
}
