package evlog_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/internal/vfs"
)

// long is a log of two segments of 6 MiB, the second one active. Every
// 2500th record is larger than what is read at once.
func long(t *testing.T, p place) (want []evtest.Rec) {
	t.Helper()
	l := p.open(t, &evlog.Options{NoPreallocate: true, SegmentBytes: 1 << 30})
	for i := range 10_000 {
		if i == 5000 {
			require.NoError(t, l.Roll(p.ctx))
		}
		size := 1000
		if i%2500 == 2499 {
			size = 300_000
		}
		r := numbered(i, 1)[0]
		r.Value = []byte(strings.Repeat(fmt.Sprintf("%8d", i), size/8))
		off, err := l.Enqueue(p.ctx, r)
		require.NoError(t, err)
		r.Offset = off
		want = append(want, evtest.RecOf(r))
	}
	require.NoError(t, l.Close())
	return want
}

// twoProcessors lets readers read ahead, for the length of a test.
func twoProcessors(t *testing.T) {
	before := runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0)))
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
}

// A long scan reads on while the records before are looked at.
func TestRecords_ReadAhead(t *testing.T) {
	twoProcessors(t)
	p, m := inMem(t)
	long(t, p)
	var read atomic.Int64
	p = p.on(vfs.Inject(m, func(op vfs.Op) error {
		if op.Kind == vfs.OpRead && op.Name == evtest.SegmentFile(0) {
			read.Store(op.Off + op.Len)
		}
		return nil
	}))
	r := p.reader(t, nil)
	pos := int64(0)
	for rec, err := range r.Records(p.ctx, 0) {
		require.NoError(t, err)
		pos += rec.Size()
		if rec.Offset != 1500 {
			continue
		}
		// A scan by itself has read less than 256 KiB beyond this.
		require.Eventually(t, func() bool { return read.Load() > pos+512<<10 }, 10*time.Second, time.Millisecond)
		break
	}
}

// What is read ahead is what is read without, wherever the caller leaves off.
func TestRecords_ReadAheadIsTheSame(t *testing.T) {
	twoProcessors(t)
	p, _ := inMem(t)
	want := long(t, p)
	r := p.reader(t, nil)
	got, err := readAll(p.ctx, r)
	require.NoError(t, err)
	sameRecs(t, want, got)

	rng := evtest.Rand(evtest.Seed(t))
	for range evtest.Count(200) {
		from, n := rng.Uint64N(10_000), rng.IntN(6000)
		next := from
		for rec, err := range r.Records(p.ctx, from) {
			require.NoError(t, err)
			require.True(t, evtest.RecOf(rec).Same(want[next]), "offset %d", next)
			next++
			if n--; n < 0 {
				break
			}
		}
	}
}

// Damage is found where it stands, and reported as ever.
func TestRecords_ReadAheadMeetsDamage(t *testing.T) {
	twoProcessors(t)
	p, _ := inMem(t)
	want := long(t, p)
	im := p.image(t)
	im[evtest.SegmentFile(0)][4<<20] ^= 1
	p.put(t, im)
	r := p.reader(t, nil)
	next := 0
	for rec, err := range r.Records(p.ctx, 0) {
		if err != nil {
			var damage *evlog.CorruptError
			require.ErrorAs(t, err, &damage)
			require.Equal(t, uint64(next), damage.Offset)
			require.InDelta(t, 4<<20, damage.Pos, 2000)
			return
		}
		require.True(t, evtest.RecOf(rec).Same(want[next]))
		next++
	}
	require.Fail(t, "the damage was not met")
}
