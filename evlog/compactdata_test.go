package evlog_test

import (
	"bufio"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/evlog/evlogtest"
	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/internal/format"
	"github.com/evlog-go/evlog/internal/jsonl"
	"github.com/evlog-go/evlog/testdata/events"
)

// A repository's history by path: what compaction leaves is the tree at its end.
func TestCompact_FinalTree(t *testing.T) {
	p, _ := inMem(t)
	l := p.open(t, &evlog.Options{SegmentBytes: 20_000})
	for e, err := range events.All("git_bbolt_paths") {
		require.NoError(t, err)
		_, err = l.Enqueue(p.ctx, evlog.Record{Time: e.Time, Key: e.Key, Value: e.Value})
		require.NoError(t, err)
	}
	require.NoError(t, l.Roll(p.ctx))
	o := purging()
	o.MemoryBytes = 32 * 50 // of 310 keys
	rep := compact(t, p, l, o)
	require.Greater(t, rep.Passes, 3)
	tree := map[string]string{}
	for r, err := range p.reader(t, nil).Records(p.ctx, 0) {
		require.NoError(t, err)
		var v struct{ Blob string }
		require.NoError(t, json.Unmarshal(r.Value, &v))
		require.NotContains(t, tree, string(r.Key), "once each")
		tree[string(r.Key)] = v.Blob
	}
	want, err := events.FinalTree()
	require.NoError(t, err)
	require.Equal(t, want, tree)
	p.verified(t)
}

// swissMap appends the changes of a map, of which 16,778 delete what was never
// there, or where that stream is not at hand one with as many.
func swissMap(t *testing.T, p place, l *evlog.Log) (values, deletes map[string]bool) {
	t.Helper()
	values, deletes = map[string]bool{}, map[string]bool{}
	put := func(r evlog.Record) {
		if len(r.Value) == 0 {
			deletes[string(r.Key)] = true
			delete(values, string(r.Key))
		} else {
			values[string(r.Key)] = true
			delete(deletes, string(r.Key))
		}
		_, err := l.Enqueue(p.ctx, r)
		require.NoError(t, err)
	}
	f, err := os.Open(filepath.Join(os.Getenv("EVLOG_SHARED_DATA"), "osm_swiss.jsonl.gz"))
	if err != nil {
		for i := range 40_000 {
			put(rec(fmt.Sprint("node/", i%30_000), "moved"))
			if i < 16_778 {
				put(tombstone(fmt.Sprint("way/", i)))
			}
		}
		return values, deletes
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	lines := bufio.NewScanner(z)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		r, err := jsonl.Decode(lines.Bytes())
		require.NoError(t, err)
		put(r)
	}
	require.NoError(t, lines.Err())
	return values, deletes
}

// Deletes of keys never seen: before the grace, within it, and after.
func TestCompact_DeletesOfKeysNeverSeen(t *testing.T) {
	p, m := inMem(t)
	clock := evlogtest.NewClock(time.UnixMilli(1_700_000_000_000))
	l := p.open(t, &evlog.Options{Clock: clock, Sync: evlog.SyncFlush, SegmentBytes: 1 << 20})
	values, deletes := swissMap(t, p, l)
	require.NoError(t, l.Roll(p.ctx))
	next := l.Stats().NextOffset
	state := func() (v, d int) {
		for r, err := range l.Reader().Records(p.ctx, 0) {
			require.NoError(t, err)
			if len(r.Value) == 0 {
				require.True(t, deletes[string(r.Key)])
				d++
			} else {
				require.True(t, values[string(r.Key)])
				v++
			}
		}
		return v, d
	}
	require.GreaterOrEqual(t, len(deletes), 16_778)
	compact(t, p, l, fast())
	v, d := state()
	require.Equal(t, []int{len(values), len(deletes)}, []int{v, d}, "cleaned, the grace begins")
	clock.Advance(24*time.Hour - time.Millisecond)
	changed := writes(m)
	compact(t, p, l, fast())
	require.Zero(t, changed(), "within the grace")
	clock.Advance(time.Millisecond)
	compact(t, p, l, fast())
	v, d = state()
	require.Equal(t, []int{len(values), 0}, []int{v, d}, "after it")
	require.Equal(t, next, l.Stats().NextOffset)
	p.verified(t)
	t.Logf("%d keys, %d deleted", len(values), len(deletes))
}

// Far more keys than there is room for: bounded memory, every pass gets on, and
// in the end the files are those that a run with room for all leaves. 5 million
// keys with EVLOG_SOAK=1.
func TestCompact_ManyMoreKeysThanMemory(t *testing.T) {
	n := uint64(max(50_000, evtest.Count(5_000_000)) / 1000 * 1000)
	const budget = 1 << 20
	roomy, tight := onDisk(t), onDisk(t)
	l := twiceEachKey(t, roomy, n)
	rep := compact(t, roomy, l, &evlog.CompactOptions{MinLag: -1, BytesPerSecond: -1, MemoryBytes: 1 << 30})
	require.Equal(t, 1, rep.Passes)
	require.NoError(t, l.Close())

	l = twiceEachKey(t, tight, n)
	filtersWritten(t, tight) // which takes memory of its own
	before := liveHeap()
	o := fast()
	o.MemoryBytes = budget
	var most int64
	last := int64(-1)
	o.Progress = func(done, total int64) { // a hundred times at least, and so at the end of most passes
		require.LessOrEqual(t, done, total)
		require.GreaterOrEqual(t, done, last)
		last = done
		most = max(most, liveHeap()-before)
	}
	start := time.Now()
	rep = compact(t, tight, l, o)
	took := time.Since(start).Round(time.Millisecond)
	require.EqualValues(t, n, rep.Superseded)
	require.GreaterOrEqual(t, rep.Passes, int(2*n*24/budget))
	seen := uint64(0)
	for r, err := range l.Reader().Records(tight.ctx, 0) {
		require.NoError(t, err)
		require.Equal(t, n+seen, r.Offset)
		require.Equal(t, "1", string(r.Value))
		seen++
	}
	require.Equal(t, n, seen)
	require.NoError(t, l.Close())
	require.Equal(t, logSum(t, roomy.dir), logSum(t, tight.dir))
	t.Logf("%d keys, budget %d: %d passes, %v, %d KiB of live heap above what was", n, budget, rep.Passes, took, most>>10)
	require.Positive(t, most)
	hashes := 8 * min(int64(2*n), 1<<20) // for the filters of copies
	require.Less(t, most, budget+hashes+4*256<<10+128<<10, "four buffers, and what is small")
}

// filtersWritten waits for the indexes of the closed segments.
func filtersWritten(t *testing.T, p place) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(p.dir, "*.log"))
	require.NoError(t, err)
	for _, name := range names[:len(names)-1] {
		require.Eventually(t, func() bool {
			b, err := os.ReadFile(strings.TrimSuffix(name, ".log") + ".idx")
			if err != nil {
				return false
			}
			h, err := format.ParseIndexHeader(b)
			return err == nil && h.Filter.There
		}, 10*time.Minute, time.Millisecond)
	}
}

// twiceEachKey is a log in which n keys were set twice each, all of them closed.
func twiceEachKey(t *testing.T, p place, n uint64) *evlog.Log {
	t.Helper()
	l := p.open(t, &evlog.Options{Sync: evlog.SyncFlush, SegmentBytes: 8 << 20, NoPreallocate: true})
	batch := make([]evlog.Record, 0, 1000)
	for i := range 2 * n {
		batch = append(batch, evlog.Record{Time: time.UnixMilli(1), Key: fmt.Appendf(nil, "key-%08d", i%n), Value: fmt.Append(nil, i/n)})
		if len(batch) == cap(batch) {
			_, err := l.Enqueue(p.ctx, batch...)
			require.NoError(t, err)
			batch = batch[:0]
		}
	}
	require.NoError(t, l.Roll(p.ctx))
	return l
}

// logSum is a hash of the records of all segments in a directory: which of them are
// merged depends on what one pass finds out about.
func logSum(t *testing.T, dir string) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.log"))
	require.NoError(t, err)
	require.NotEmpty(t, names)
	h := sha256.New()
	for _, name := range names {
		f, err := os.Open(name)
		require.NoError(t, err)
		_, err = io.Copy(h, f)
		require.NoError(t, errors.Join(err, f.Close()))
	}
	return hex.EncodeToString(h.Sum(nil))
}
