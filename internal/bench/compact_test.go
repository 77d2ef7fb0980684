package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/bench/limit"
	"github.com/evlog-go/evlog/internal/bench/turns"
)

// overwritten makes a log of which every record was written twice, all of it
// closed: one half behind the other, so that nothing stays of the first half, or,
// scattered, each time after some hundred others, so that half of each segment
// stays.
func overwritten(b testing.TB, valueBytes, records int, scattered bool) (dir string) {
	b.Helper()
	dir = filepath.Join(b.TempDir(), "log")
	l, err := evlog.Open(background, dir, &evlog.Options{Sync: evlog.SyncFlush, NoPreallocate: true})
	require.NoError(b, err)
	batch := limit.Records(1000, valueBytes)
	for i := 0; i < records; i += len(batch) {
		for j := range batch {
			n := (i + j) % (records / 2)
			if scattered {
				n = i/2 + (j*7)%(len(batch)/2)
			}
			batch[j].Key = fmt.Appendf(nil, "key-%012d", n)
		}
		_, err := l.Enqueue(background, batch...)
		require.NoError(b, err)
	}
	require.NoError(b, l.Roll(background))
	_, err = l.Reindex(background, nil) // so that opening finds nothing to do
	require.NoError(b, err)
	require.NoError(b, l.Close())
	return dir
}

// again makes another log of the same closed segments, which are never written
// to: they are the same files.
func again(b testing.TB, from string) (dir string) {
	b.Helper()
	dir, err := os.MkdirTemp(filepath.Dir(from), "again")
	require.NoError(b, err)
	logs, err := filepath.Glob(filepath.Join(from, "*.log"))
	require.NoError(b, err)
	entries, err := os.ReadDir(from)
	require.NoError(b, err)
	for _, e := range entries {
		old, name := filepath.Join(from, e.Name()), filepath.Join(dir, e.Name())
		if strings.HasSuffix(name, ".log") && old != logs[len(logs)-1] {
			require.NoError(b, os.Link(old, name))
			continue
		}
		content, err := os.ReadFile(old)
		require.NoError(b, err)
		require.NoError(b, os.WriteFile(name, content, 0o600))
	}
	return dir
}

// BenchmarkCompact drops half of the records, beside a copy of all of them:
// read, checksum of every record, write, fsync of each file.
func BenchmarkCompact(b *testing.B) {
	for _, c := range []struct {
		valueBytes, records int
		stays               string
	}{{100, 2_000_000, "second"}, {100, 2_000_000, "scattered"}, {1 << 10, 400_000, "second"}} {
		b.Run(fmt.Sprintf("value=%s/stays=%s", sizeName(int64(c.valueBytes)), c.stays), func(b *testing.B) {
			from := overwritten(b, c.valueBytes, c.records, c.stays == "scattered")
			turns.Take(b, limit.RecordSize(c.valueBytes), compactEvlog(b, from, c.records), copyLimit(b, from, c.records))
		})
	}
}

func compactEvlog(b *testing.B, from string, records int) *turns.Side {
	var dir string
	var l *evlog.Log
	s := &turns.Side{Name: "evlog", Ops: records}
	s.Before = func() {
		dir = again(b, from)
		var err error
		l, err = evlog.Open(background, dir, &evlog.Options{NoPreallocate: true})
		require.NoError(b, err)
	}
	s.Run = func(ops int) {
		rep, err := l.Compact(background, &evlog.CompactOptions{MinLag: -1, BytesPerSecond: -1})
		if err != nil || int(rep.Superseded) != ops/2 {
			b.Fatal(rep.Superseded, err)
		}
	}
	s.After = func() {
		require.NoError(b, l.Close())
		require.NoError(b, os.RemoveAll(dir))
	}
	return s
}

func copyLimit(b *testing.B, from string, records int) *turns.Side {
	var dir string
	s := &turns.Side{Name: "limit", Ops: records}
	s.Before = func() {
		var err error
		dir, err = os.MkdirTemp(filepath.Dir(from), "copy")
		require.NoError(b, err)
	}
	s.Run = func(ops int) {
		logs, err := filepath.Glob(filepath.Join(from, "*.log"))
		require.NoError(b, err)
		n := 0
		for _, name := range logs {
			n += copyRecords(b, name, filepath.Join(dir, filepath.Base(name)))
		}
		if n != ops {
			b.Fatalf("%d records", n)
		}
	}
	s.After = func() { require.NoError(b, os.RemoveAll(dir)) }
	return s
}

// copyRecords copies a segment, checking every record, and syncs the copy.
func copyRecords(b *testing.B, from, to string) (n int) {
	in, err := os.Open(from)
	require.NoError(b, err)
	defer in.Close()
	out, err := os.Create(to)
	require.NoError(b, err)
	buf := make([]byte, 0, 256<<10)
	flush := func() {
		if _, err := out.Write(buf); err != nil {
			b.Fatal(err)
		}
		buf = buf[:0]
	}
	limit.ScanWhole(b, in, make([]byte, 256<<10), func(_ uint64, _ int64, rec []byte) {
		if len(buf)+len(rec) > cap(buf) {
			flush()
		}
		buf = append(buf, rec...)
		n++
	})
	flush()
	require.NoError(b, out.Sync())
	require.NoError(b, out.Close())
	return n
}

// BenchmarkAppendBesideCompact measures one caller's durable appends while a
// compaction runs that is throttled as by default, beside a log at rest.
func BenchmarkAppendBesideCompact(b *testing.B) {
	from := overwritten(b, 100, 4_000_000, false)
	compact := func(ctx context.Context, l *evlog.Log) error {
		_, err := l.Compact(ctx, &evlog.CompactOptions{MinLag: -1})
		return err
	}
	turns.Take(b, limit.RecordSize(100),
		appending(b, "evlog", 1500, func() string { return again(b, from) }, compact),
		appending(b, "limit", 1500, func() string { return again(b, from) }, nil))
}

// BenchmarkAppendBesideFilters does so while a log that was opened for the first
// time gets the indexes and key filters that it has not.
func BenchmarkAppendBesideFilters(b *testing.B) {
	from := overwritten(b, 100, 4_000_000, false)
	without := func() string {
		dir := again(b, from)
		indexes, err := filepath.Glob(filepath.Join(dir, "*.idx"))
		require.NoError(b, err)
		for _, name := range indexes[:len(indexes)-1] {
			require.NoError(b, os.Remove(name))
		}
		return dir
	}
	turns.Take(b, limit.RecordSize(100),
		appending(b, "evlog", 500, without, nil),
		appending(b, "limit", 500, func() string { return again(b, from) }, nil))
}

// appending appends, with pauses, to logs in logDir, beside something else.
func appending(b *testing.B, name string, ops int, logDir func() string, beside func(context.Context, *evlog.Log) error) *turns.Side {
	var dir string
	var l *evlog.Log
	var stop context.CancelFunc
	done := make(chan error, 1)
	s := &turns.Side{Name: name, Ops: ops, ByLatency: true}
	s.Before = func() {
		dir = logDir()
		var err error
		l, err = evlog.Open(background, dir, nil)
		require.NoError(b, err)
		var ctx context.Context
		ctx, stop = context.WithCancel(background)
		if beside == nil {
			done <- context.Canceled
			return
		}
		go func() { done <- beside(ctx, l) }()
	}
	s.Run = func(ops int) {
		record := limit.Records(1, 100)[0]
		for range ops {
			start := time.Now()
			if _, err := l.Append(background, record); err != nil {
				b.Fatal(err)
			}
			s.Lat = append(s.Lat, time.Since(start))
			time.Sleep(time.Millisecond)
		}
	}
	s.After = func() {
		stop()
		if err := <-done; !errors.Is(err, context.Canceled) {
			b.Fatalf("it was over before the appends were: %v", err)
		}
		require.NoError(b, l.Close())
		require.NoError(b, os.RemoveAll(dir))
	}
	return s
}
