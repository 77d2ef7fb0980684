package bench

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/bench/limit"
	"github.com/evlog-go/evlog/internal/bench/turns"
	"github.com/evlog-go/evlog/internal/format"
)

// BenchmarkRetain drops the older half of a million records: evlog with one
// call, the limit by the same unlinks and directory syncs written by hand,
// SQLite by DELETE and VACUUM. One op is the whole of it.
func BenchmarkRetain(b *testing.B) {
	const records = 1_000_000
	for _, valueBytes := range []int{100, 1000} {
		b.Run(fmt.Sprintf("value=%dB", valueBytes), func(b *testing.B) {
			r := &retaining{b: b, records: limit.Records(1000, valueBytes), n: records}
			turns.Take(b, 0, r.evlog(), r.limit(), r.sqlite())
		})
	}
}

// settle is more than it takes to see that no index has to be written.
const settle = 500 * time.Millisecond

type retaining struct {
	b       *testing.B
	records []evlog.Record
	n       int
	below   uint64 // a segment ends here, as near to the middle of the log as one does
}

func (r *retaining) evlog() *turns.Side {
	var l *evlog.Log
	var dir string
	s := &turns.Side{Name: "evlog", Ops: 1}
	s.Before = func() {
		dir = r.b.TempDir()
		l = r.fill(dir)
	}
	s.Run = func(int) {
		rep, err := l.Retain(background, &evlog.RetainOptions{Below: r.below})
		require.NoError(r.b, err)
		require.Equal(r.b, r.below, rep.First)
	}
	s.After = func() {
		require.NoError(r.b, l.Close())
		require.NoError(r.b, os.RemoveAll(dir))
	}
	return s
}

// fill makes the log, and finds the middle of it.
func (r *retaining) fill(dir string) *evlog.Log {
	l, err := evlog.Open(background, dir, &evlog.Options{SegmentBytes: 64 << 20})
	require.NoError(r.b, err)
	fillLog(r.b, l, r.records, r.n)
	_, err = l.Reindex(background, nil)
	require.NoError(r.b, err)
	require.NoError(r.b, l.Close())
	l, err = evlog.Open(background, dir, nil)
	require.NoError(r.b, err)
	time.Sleep(settle)
	reader, err := evlog.OpenReader(background, dir, nil) // that keeps no file open
	require.NoError(r.b, err)
	segments, err := reader.Segments(background)
	require.NoError(r.b, err)
	require.NoError(r.b, reader.Close())
	half := float64(r.n) / 2
	r.below = 0
	for _, s := range segments {
		if math.Abs(float64(s.End)-half) < math.Abs(float64(r.below)-half) {
			r.below = s.End
		}
	}
	return l
}

// limit unlinks and syncs what evlog does, in files of the same sizes, under a log
// that is open as well: zeroing ahead of its records has the disk busy.
func (r *retaining) limit() *turns.Side {
	var dir *os.File
	var l *evlog.Log
	var names []string
	s := &turns.Side{Name: "limit", Ops: 1}
	s.Before = func() {
		path := r.b.TempDir()
		l = r.fill(path)
		segments, err := filepath.Glob(filepath.Join(path, "*"+format.LogSuffix))
		require.NoError(r.b, err)
		names = names[:0]
		for _, name := range segments { // ascending
			if base, _ := format.ParseSegmentName(filepath.Base(name)); base < r.below {
				names = append(names, name)
			}
		}
		dir, err = os.Open(path)
		require.NoError(r.b, err)
	}
	s.Run = func(int) {
		for _, name := range names {
			if err := os.Remove(name); err != nil {
				r.b.Fatal(err)
			}
			if err := os.Remove(name[:len(name)-len(format.LogSuffix)] + format.IndexSuffix); err != nil {
				r.b.Fatal(err)
			}
			if err := dir.Sync(); err != nil {
				r.b.Fatal(err)
			}
		}
	}
	s.After = func() {
		require.NoError(r.b, l.Close())
		require.NoError(r.b, dir.Close())
		require.NoError(r.b, os.RemoveAll(dir.Name()))
	}
	return s
}

func (r *retaining) sqlite() *turns.Side {
	db := newSQLite(r.b)
	s := &turns.Side{Name: "sqlite", Ops: 1}
	s.Before = func() { db.build(r.records, r.n) }
	s.After = func() { db.build(r.records, 0) } // leaves the disk to the others
	s.Run = func(int) {
		// Offsets in the table begin at 1.
		if _, err := db.db.Exec(`DELETE FROM log WHERE offset <= ?`, int64(r.below)); err != nil {
			r.b.Fatal(err)
		}
		if _, err := db.db.Exec(`VACUUM`); err != nil {
			r.b.Fatal(err)
		}
	}
	return s
}

// BenchmarkAppendWhileRetaining appends, one record at a time, while segments
// are removed, and, as the side "quiet", while nothing is.
func BenchmarkAppendWhileRetaining(b *testing.B) {
	const segments = 12
	records := limit.Records(1000, 1000)
	dirs := 0
	appending := func(name string, retain bool) *turns.Side {
		s := &turns.Side{Name: name, Ops: 400}
		var l *evlog.Log
		var dir string
		s.Before = func() {
			dirs++
			dir = filepath.Join(b.TempDir(), fmt.Sprint(dirs))
			var err error
			l, err = evlog.Open(background, dir, &evlog.Options{SegmentBytes: 16 << 20})
			require.NoError(b, err)
			fillLog(b, l, records, segments*(16<<20)/int(limit.RecordSize(1000)))
			require.NoError(b, l.Roll(background))
		}
		s.Run = func(ops int) {
			var wg sync.WaitGroup
			if retain {
				wg.Go(func() {
					if _, err := l.Retain(background, &evlog.RetainOptions{MaxRecords: 1}); err != nil {
						b.Error(err)
					}
				})
			}
			s.Lat.Together(1, ops, func(i int) {
				if _, err := l.Append(background, records[i%len(records)]); err != nil {
					b.Error(err)
				}
			})
			wg.Wait()
		}
		s.After = func() {
			require.NoError(b, l.Close())
			require.NoError(b, os.RemoveAll(dir))
		}
		return s
	}
	turns.Take(b, limit.RecordSize(1000), appending("evlog", true), appending("quiet", false))
}
