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

// BenchmarkDisk reports sizes; its times are those of writing the log once.
func BenchmarkDisk(b *testing.B) {
	for _, valueBytes := range []int{100, 1 << 10} {
		b.Run("value="+sizeName(int64(valueBytes)), func(b *testing.B) {
			const n = 200_000
			records := limit.Records(1000, valueBytes)
			var all, logs, idx, sqlite int64
			for b.Loop() {
				dir := b.TempDir()
				l, err := evlog.Open(background, dir, &evlog.Options{Sync: evlog.SyncFlush})
				require.NoError(b, err)
				fillLog(b, l, records, n)
				require.NoError(b, l.Close())
				all, logs, idx = sizeOf(b, dir, "*"), sizeOf(b, dir, "*"+format.LogSuffix), sizeOf(b, dir, "*"+format.IndexSuffix)
			}
			db := newSQLite(b)
			db.fill(records, n, 1_700_000_000_000)
			require.NoError(b, db.db.QueryRow(`PRAGMA page_count`).Scan(&sqlite))
			var page int64
			require.NoError(b, db.db.QueryRow(`PRAGMA page_size`).Scan(&page))
			b.ReportMetric(float64(all)/n, "B/record")
			b.ReportMetric(100*float64(idx)/float64(logs), "index-%")
			b.ReportMetric(float64(sqlite*page)/n, "sqlite-B/record")
			b.ReportMetric(float64(limit.RecordSize(valueBytes)), "limit-B/record")
		})
	}
}

// sizeOf adds up the sizes of the files of that pattern.
func sizeOf(b testing.TB, dir, pattern string) (size int64) {
	names, err := filepath.Glob(filepath.Join(dir, pattern))
	require.NoError(b, err)
	require.NotEmpty(b, names, fmt.Sprint(pattern))
	for _, name := range names {
		info, err := os.Stat(name)
		require.NoError(b, err)
		size += info.Size()
	}
	return size
}
