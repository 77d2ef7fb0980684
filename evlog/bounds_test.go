package evlog_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/internal/invariant"
)

// A log of very many segments, in a process that may open few files. (I10)
func TestBounds_ManySegmentsFewDescriptors(t *testing.T) {
	const n = 10_000
	p := onDisk(t)
	b := build().file("log.json", []byte(`{"format":1,"id":"`+builtID+`","created_ms":1,"config":{"segment_bytes":1}}`))
	for off := range uint64(n) {
		b.segment(off, off)
	}
	require.NoError(t, b.durable(n, n-1).im.WriteTo(p.dir))
	out, err := child(t, "many-segments", p.dir, strconv.Itoa(n)).CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Logf("%s", out)
}

func init() {
	children["many-segments"] = func(args []string) error {
		n, _ := strconv.Atoi(args[1])
		if err := limitFiles(256); err != nil {
			return err
		}
		return manySegments(args[0], n)
	}
	children["garbage-length"] = func(args []string) error { return garbageLength(args[0]) }
}

func manySegments(dir string, n int) error {
	begin := time.Now()
	l, err := evlog.Open(background, dir, nil)
	if err != nil {
		return err
	}
	opened := time.Since(begin)
	fmt.Printf("open %v\n", opened)
	if opened > 5*time.Second {
		return fmt.Errorf("opening took %v", opened)
	}
	ours := l.Reader()
	theirs, err := evlog.OpenReader(background, dir, nil)
	if err != nil {
		return err
	}
	defer theirs.Close()
	for _, r := range []*evlog.Reader{ours, theirs} {
		recs, err := readAll(background, r)
		if err != nil || len(recs) != n {
			return fmt.Errorf("%d records: %w", len(recs), err)
		}
		recs, err = collect(r.Backward(background, uint64(n)))
		if err != nil || len(recs) != n {
			return fmt.Errorf("%d records backward: %w", len(recs), err)
		}
		off, err := r.OffsetOfLast(background, n/2)
		if err != nil || off != uint64(n-n/2) {
			return fmt.Errorf("last %d is %d: %w", n/2, off, err)
		}
		for _, off := range []uint64{0, 1, uint64(n / 3), uint64(n - 1)} {
			rec, err := r.Get(background, off)
			if err != nil || rec.Offset != off {
				return fmt.Errorf("get %d: %v %w", off, rec, err)
			}
			at, err := r.OffsetAt(background, time.UnixMilli(small(off).TimeMS))
			if err != nil || at != off {
				return fmt.Errorf("at %d: %d %w", off, at, err)
			}
		}
	}
	for range 20 {
		if _, err := l.Append(background, rec("k", "v")); err != nil {
			return err
		}
	}
	recs, err := collect(theirs.Records(background, uint64(n-2)))
	if err != nil || len(recs) != 22 {
		return fmt.Errorf("%d records at the end: %w", len(recs), err)
	}
	rep, err := evlog.Verify(background, dir, nil)
	if err != nil || !rep.OK() {
		return fmt.Errorf("verify: %w", err)
	}
	fmt.Printf("all %v\n", time.Since(begin))
	return l.Close()
}

// A length field says 96 MiB, and the file is even that large: memory must not
// follow it. (I10)
func TestBounds_GarbageLength(t *testing.T) {
	p := onDisk(t)
	im := build().segment(0, upTo(0, 5)...).durable(5, 0).im
	require.NoError(t, im.WriteTo(p.dir))
	name := filepath.Join(p.dir, evtest.SegmentFile(0))
	f, err := os.OpenFile(name, os.O_RDWR|os.O_APPEND, 0)
	require.NoError(t, err)
	_, err = f.Write([]byte{0, 0, 0, 0x06, 1, 2, 3, 4, 5, 0, 0, 0, 0, 0, 0, 0})
	require.NoError(t, err)
	require.NoError(t, f.Truncate(96<<20+100_000))
	require.NoError(t, f.Close())
	out, err := child(t, "garbage-length", p.dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Logf("%s", out)
}

func garbageLength(dir string) error {
	var before, after runtime.MemStats
	debug.SetMemoryLimit(64 << 20)
	runtime.ReadMemStats(&before)
	begin := time.Now()
	r, err := evlog.OpenReader(background, dir, &evlog.ReaderOptions{BeyondDurable: true})
	if err != nil {
		return err
	}
	recs, err := readAll(background, r)
	if err != nil || len(recs) != 5 {
		return fmt.Errorf("%d records: %w", len(recs), err)
	}
	if err := r.Close(); err != nil {
		return err
	}
	fmt.Printf("read %v\n", time.Since(begin))
	if _, err := evlog.Verify(background, dir, nil); err != nil {
		return err
	}
	fmt.Printf("verified %v\n", time.Since(begin))
	l, err := evlog.Open(background, dir, nil)
	if err != nil {
		return err
	}
	if next := l.Stats().NextOffset; next != 5 {
		return fmt.Errorf("next is %d", next)
	}
	if err := l.Close(); err != nil {
		return err
	}
	runtime.ReadMemStats(&after)
	fmt.Printf("opened %v, %d MiB allocated\n", time.Since(begin), (after.TotalAlloc-before.TotalAlloc)>>20)
	if after.TotalAlloc-before.TotalAlloc > 32<<20 {
		return fmt.Errorf("%d bytes allocated", after.TotalAlloc-before.TotalAlloc)
	}
	return nil
}

// Reading does not keep what it has read.
func TestBounds_MemoryOfALongScan(t *testing.T) {
	p, _ := inMem(t)
	l := p.open(t, &evlog.Options{Sync: evlog.SyncFlush, SegmentBytes: 1 << 20})
	value := make([]byte, 1000)
	for range 30 {
		batch := make([]evlog.Record, 500)
		for i := range batch {
			batch[i] = evlog.Record{Value: value}
		}
		_, err := l.Enqueue(p.ctx, batch...)
		require.NoError(t, err)
	}
	require.NoError(t, l.Flush(p.ctx))
	r := p.reader(t, nil)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	n := 0
	for _, err := range r.Records(p.ctx, 0) {
		require.NoError(t, err)
		n++
	}
	runtime.ReadMemStats(&after)
	require.Equal(t, 15_000, n)
	most := uint64(4 << 20)
	if invariant.Enabled {
		most *= 3 // the race detector has pools lose a part of what they are given
	}
	require.Less(t, after.TotalAlloc-before.TotalAlloc, most, "15 MB were read")
	if !invariant.Enabled { // the checks of that tag allocate
		require.Less(t, after.Mallocs-before.Mallocs, uint64(n/10), "nothing is allocated for each record")
	}
}

// A follower that waits keeps no buffer: any number of them may. (I10)
func TestBounds_MemoryOfWaitingFollowers(t *testing.T) {
	const followers, perFollower = 100, 64 << 10
	p, _ := inMem(t)
	l := p.open(t, nil)
	records := make([]evlog.Record, 300)
	for i := range records {
		records[i].Value = make([]byte, 1000) // more than a reader takes from the file at once
	}
	ctx, cancel := context.WithCancel(p.ctx)
	var reading, all sync.WaitGroup
	before := liveHeap()
	for range followers {
		reading.Add(1)
		all.Go(func() {
			for rec, err := range l.Reader().Follow(ctx, 0) {
				if err != nil {
					return
				}
				if rec.Offset == uint64(len(records)-1) {
					reading.Done()
				}
			}
		})
	}
	first, err := l.Append(p.ctx, records...)
	require.NoError(t, err)
	require.Zero(t, first)
	reading.Wait()
	// The last ones are on their way to where they wait.
	require.Eventually(t, func() bool { return liveHeap() < before+followers*perFollower },
		time.Minute, 10*time.Millisecond, "heap before %d", before)
	cancel()
	all.Wait()
}

// liveHeap is what is reachable now: pools are emptied by the second collection.
func liveHeap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
