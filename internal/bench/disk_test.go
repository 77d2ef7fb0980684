package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/bench/limit"
	"github.com/evlog-go/evlog/internal/format"
)

// BenchmarkDisk reports sizes; its times are those of writing the log once. Segments
// are smaller than by default, so that nearly all records are in closed ones: only they
// have a key filter.
func BenchmarkDisk(b *testing.B) {
	for _, c := range []struct {
		keys       string
		valueBytes int
		records    int
	}{{"1000", 100, 200_000}, {"own", 100, 200_000}, {"1000", 1 << 10, 50_000}} {
		b.Run(fmt.Sprintf("value=%s/keys=%s", sizeName(int64(c.valueBytes)), c.keys), func(b *testing.B) {
			n := c.records
			records := limit.Records(1000, c.valueBytes)
			var used diskUse
			for b.Loop() {
				dir := b.TempDir()
				l, err := evlog.Open(background, dir, &evlog.Options{Sync: evlog.SyncFlush, SegmentBytes: 2 << 20})
				require.NoError(b, err)
				if c.keys == "own" {
					fillKeys(b, l, n) // as large as the others
				} else {
					fillLog(b, l, records, n)
				}
				_, err = l.Reindex(background, nil) // with all filters: Close waits a second for them
				require.NoError(b, err)
				require.NoError(b, l.Close())
				used = diskUseOf(b, dir)
				require.NoError(b, os.RemoveAll(dir))
			}
			db := newSQLite(b)
			db.fill(records, n, 1_700_000_000_000)
			sqlite, least := float64(db.size()), float64(int64(n)*limit.RecordSize(c.valueBytes))
			all, each := float64(used.all), float64(n)
			b.ReportMetric(all/each, "B/record")
			b.ReportMetric(sqlite/each, "sqlite-B/record")
			b.ReportMetric(least/each, "limit-B/record")
			b.ReportMetric(sqlite/all, "ratio-sqlite")
			b.ReportMetric(least/all, "ratio")
			b.ReportMetric(100*float64(used.index)/float64(used.logs), "index-%")
			b.ReportMetric(float64(used.filters)/float64(used.keys), "filter-B/key")
		})
	}
}

// diskUse is how many bytes a log takes.
type diskUse struct {
	all, logs int64
	// index and filters are what .idx files have without and as key filters.
	index, filters int64
	keys           uint64 // that the filters tell of
}

// diskUseOf adds up a closed log, of which every segment but the last has a filter.
func diskUseOf(b testing.TB, dir string) (u diskUse) {
	entries, err := os.ReadDir(dir)
	require.NoError(b, err)
	closed, filtered := -1, 0
	for _, e := range entries {
		info, err := e.Info()
		require.NoError(b, err)
		u.all += info.Size()
		switch filepath.Ext(e.Name()) {
		case format.LogSuffix:
			u.logs += info.Size()
			closed++
		case format.IndexSuffix:
			content, err := os.ReadFile(filepath.Join(dir, e.Name()))
			require.NoError(b, err)
			h, err := format.ParseIndexHeader(content)
			require.NoError(b, err)
			require.Equal(b, info.Size(), h.FilterBlockPos(h.Filter.Blocks), e.Name())
			u.filters += h.Filter.Size()
			u.index += info.Size() - h.Filter.Size()
			if h.Filter.There {
				u.keys += h.Keys
				filtered++
			}
		}
	}
	require.Positive(b, filtered)
	require.Equal(b, closed, filtered)
	return u
}
