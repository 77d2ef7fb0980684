package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/bench/limit"
	"github.com/evlog-go/evlog/internal/bench/turns"
)

func BenchmarkScan(b *testing.B) {
	for _, c := range []struct{ valueBytes, records int }{{100, 400_000}, {1 << 10, 60_000}} {
		for _, reader := range []string{"own", "other"} {
			b.Run(fmt.Sprintf("value=%s/reader=%s", sizeName(int64(c.valueBytes)), reader), func(b *testing.B) {
				dir := b.TempDir()
				records := limit.Records(1000, c.valueBytes)
				l := openLog(b, dir, &evlog.Options{Sync: evlog.SyncFlush, SegmentBytes: 16 << 20})
				fillLog(b, l, records, c.records)
				turns.Take(b, limit.RecordSize(c.valueBytes),
					scanEvlog(b, readerOf(b, l, dir, reader), c.records),
					scanLimit(b, dir, c.records),
					scanSQLite(b, records, c.records/20))
			})
		}
	}
}

// readerOf is the log's own reader, or another one as other processes have it.
func readerOf(b testing.TB, l *evlog.Log, dir, which string) *evlog.Reader {
	if which == "own" {
		return l.Reader()
	}
	r, err := evlog.OpenReader(background, dir, nil)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, r.Close()) })
	return r
}

// sink keeps the compiler from leaving reads out.
var sink int

func scanEvlog(b *testing.B, r *evlog.Reader, records int) *turns.Side {
	s := &turns.Side{Name: "evlog", Ops: records}
	s.Run = func(ops int) {
		n := 0
		for rec, err := range r.Records(background, 0) {
			if err != nil {
				b.Fatal(err)
			}
			sink += len(rec.Key) + len(rec.Value)
			n++
		}
		if n != ops {
			b.Fatalf("%d records", n)
		}
	}
	return s
}

func scanLimit(b *testing.B, dir string, records int) *turns.Side {
	files := openSegments(b, dir)
	buf := make([]byte, limit.Buffer)
	s := &turns.Side{Name: "limit", Ops: records}
	s.Run = func(ops int) {
		n := 0
		for _, f := range files {
			limit.Scan(b, f, buf, func(_ uint64, _ int64, key, value []byte) {
				sink += len(key) + len(value)
				n++
			})
		}
		if n != ops {
			b.Fatalf("%d records", n)
		}
	}
	return s
}

// openSegments opens the segments of a log in order.
func openSegments(b testing.TB, dir string) []*os.File {
	names, err := filepath.Glob(filepath.Join(dir, "*.log"))
	require.NoError(b, err)
	var files []*os.File
	for _, name := range names {
		f, err := os.Open(name)
		require.NoError(b, err)
		b.Cleanup(func() { f.Close() })
		files = append(files, f)
	}
	return files
}

func scanSQLite(b *testing.B, records []evlog.Record, n int) *turns.Side {
	db := newSQLite(b)
	db.fill(records, n, 1)
	s := &turns.Side{Name: "sqlite", Ops: n}
	s.Run = func(ops int) {
		if n := db.scan(); n != ops {
			b.Fatalf("%d records", n)
		}
	}
	return s
}
