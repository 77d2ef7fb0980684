package evlog_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/evlog/evlogtest"
	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/internal/vfs"
)

// Retention removes a record, its sync fails, and the process ends. For the next
// one the record is gone, and so its tombstone may go; but on the disk the segment
// is still there. (I5)
func TestRetain_FailedSyncThenTombstoneGoes(t *testing.T) {
	p, m := inMem(t)
	clock := evlogtest.NewClock(noon)
	l := p.open(t, &evlog.Options{SegmentBytes: 40, IndexBytes: 100, NoPreallocate: true, Clock: clock, TombstoneGrace: time.Hour})
	for _, segment := range [][]evlog.Record{{rec("a", "deleted"), rec("x", "1")}, {tombstone("a"), rec("y", "2")}} {
		_, err := l.Append(p.ctx, segment...)
		require.NoError(t, err)
		require.NoError(t, l.Roll(p.ctx))
	}
	appendEach(t, p.ctx, l, rec("z", "1"))
	p.settled(t)
	m.FailSync(vfs.OpDirSync, "", 1, errDying)
	_, err := l.Retain(p.ctx, &evlog.RetainOptions{Below: 2})
	require.ErrorIs(t, err, errDying)
	_ = l.Close()
	q := onFS(t, m.KillImage())
	l = q.open(t, &evlog.Options{NoPreallocate: true, Clock: clock})
	compact(t, q, l, fast())
	clock.Advance(2 * time.Hour)
	require.EqualValues(t, 1, compact(t, q, l, fast()).Tombstones)
	for seed := range uint64(20) {
		after := onFS(t, q.fsys.(*vfs.Mem).Crash(seed))
		require.Equal(t, []string{"3 y 2", "4 z 1"}, keysOf(after.all(t)), "crash %d", seed)
	}
	quiet(t, q)
	noLoneIndex(t, q)
}

// Killed at any moment of a merge, or after it without power: no index is left
// without a segment when the next writer is done.
func TestCompact_NoIndexStaysAlone(t *testing.T) {
	for n := int64(0); ; n++ {
		p, m := inMem(t)
		l := p.open(t, &evlog.Options{SegmentBytes: 400, IndexBytes: 100, NoPreallocate: true})
		for i := range 3 {
			appendEach(t, p.ctx, l, rec(fmt.Sprint("a", i), "1"))
			require.NoError(t, l.Roll(p.ctx))
		}
		p.settled(t)
		m.SetCut(n)
		_, failed := l.Compact(p.ctx, fast())
		for _, image := range []*vfs.Mem{m.KillImage(), m.Crash(uint64(n))} {
			after := onFS(t, image)
			l := after.open(t, nil)
			quiet(t, after)
			compact(t, after, l, fast())
			quiet(t, after)
			noLoneIndex(t, after)
			require.Len(t, after.all(t), 3)
			require.NoError(t, l.Close())
		}
		_ = l.Close()
		if failed == nil {
			return
		}
	}
}

// An error of reading one of the segments that are merged is told with the name of
// that one. Only damage is called so.
func TestCompact_MergeNamesTheSegment(t *testing.T) {
	reads := eachReadFails(t, 1, fast(), func(p place, l *evlog.Log) {
		for i := range 3 {
			appendEach(t, p.ctx, l, rec(fmt.Sprint("k", i), "1"))
			require.NoError(t, l.Roll(p.ctx))
		}
	}, func(rep *evlog.CompactReport, err error) {
		require.Empty(t, rep.Refused)
		if err != nil { // an index that cannot be compared is made anew
			require.ErrorIs(t, err, errDying)
			require.ErrorContains(t, err, evtest.SegmentFile(1))
		}
	})
	require.Greater(t, reads, int64(1))
}

// Every error of reading a segment in a later pass says which one it was.
func TestCompact_LaterPassNamesTheSegment(t *testing.T) {
	o := fast()
	o.MemoryBytes = 32 * 20
	reads := eachReadFails(t, 0, o, func(p place, l *evlog.Log) {
		for i := range 60 {
			appendEach(t, p.ctx, l, rec(fmt.Sprint("k", i), "1"))
		}
		appendEach(t, p.ctx, l, rec("k59", "2"))
		require.NoError(t, l.Roll(p.ctx))
	}, func(_ *evlog.CompactReport, err error) {
		if err != nil {
			require.ErrorContains(t, err, "evlog: compact")
			require.ErrorContains(t, err, evtest.SegmentFile(0))
		}
	})
	require.Greater(t, reads, int64(4))
}

// eachReadFails compacts what fill has written, as often as the segment with this
// base is read, and has another one of these reads fail each time. It returns how
// many there were.
func eachReadFails(
	t *testing.T, base uint64, o *evlog.CompactOptions, fill func(place, *evlog.Log), check func(*evlog.CompactReport, error),
) (reads int64) {
	for at := int64(1); ; at++ {
		var armed atomic.Bool
		var n atomic.Int64
		p := onFS(t, vfs.Inject(vfs.NewMem(), func(op vfs.Op) error {
			if armed.Load() && op.Kind == vfs.OpRead && op.Name == evtest.SegmentFile(base) && n.Add(1) == at {
				return errDying
			}
			return nil
		}))
		l := p.open(t, &evlog.Options{SegmentBytes: 1 << 20, NoPreallocate: true})
		fill(p, l)
		quiet(t, p)
		armed.Store(true)
		rep, err := l.Compact(p.ctx, o)
		armed.Store(false)
		require.NoError(t, l.Close())
		check(rep, err)
		if n.Load() < at {
			require.NoError(t, err)
			return n.Load()
		}
	}
}

// Closed while compaction looks at the segments: it says so.
func TestCompact_CloseEndsTheSurvey(t *testing.T) {
	looks, goOn := make(chan struct{}), make(chan struct{})
	var armed atomic.Bool
	p := onFS(t, vfs.Inject(vfs.NewMem(), func(op vfs.Op) error {
		if op.Kind == vfs.OpOpen && op.Name == evtest.SegmentFile(0) && armed.CompareAndSwap(true, false) {
			close(looks)
			<-goOn
		}
		return nil
	}))
	l := p.open(t, &evlog.Options{SegmentBytes: 1, NoPreallocate: true})
	appendEach(t, p.ctx, l, rec("a", "1"), rec("b", "1"), rec("c", "1"))
	quiet(t, p)
	armed.Store(true)
	result := make(chan error, 2)
	o := fast()
	o.BytesPerSecond = 1 // so that it does not get to its end otherwise
	go func() { _, err := l.Compact(p.ctx, o); result <- err }()
	inTime(t, "it looks at the segments", looks)
	closed := make(chan error, 1)
	go func() { closed <- l.Close() }()
	soon(t, "close has begun", func() bool {
		_, err := l.Append(p.ctx, rec("d", "1"))
		return errors.Is(err, evlog.ErrClosed)
	})
	time.Sleep(10 * time.Millisecond)
	close(goOn)
	require.ErrorIs(t, inTime(t, "it ends", result), evlog.ErrClosed)
	require.NoError(t, inTime(t, "close ends", closed))
}

// Two neighbours that were emptied have been merged into the one below, and only
// their indexes are left. While their removal is settled, one of them is put back
// as it was; its index said that it ended where the other one began, which must not
// look like a missing file, to readers or after a crash.
func TestCompact_EmptiedSegmentsAreSettled(t *testing.T) {
	records := smalls(upTo(0, 5)...)
	p, disk := inMem(t)
	p.put(t, build().segment(0, upTo(0, 5)...).segment(8).durable(8, 8).
		file(evtest.IndexFile(0), indexOf(0, 8, records)).
		file(evtest.IndexFile(5), indexOf(5, 7, nil)).
		file(evtest.IndexFile(7), indexOf(7, 8, nil)).im)
	var mu sync.Mutex // guards the next two
	var moments []*vfs.Mem
	var said []string
	q := onFS(t, vfs.Inject(disk, func(op vfs.Op) error {
		if op.Kind&(vfs.OpRename|vfs.OpRemove|vfs.OpDirSync) != 0 {
			mu.Lock()
			defer mu.Unlock()
			moments, said = append(moments, disk.KillImage()), append(said, op.String())
			for range 20 {
				moments, said = append(moments, disk.Crash(uint64(len(said)))), append(said, op.String()+", power lost")
			}
		}
		return nil
	}))
	l := q.open(t, &evlog.Options{NoPreallocate: true})
	soon(t, "it is settled", func() bool {
		im := q.image(t)
		return im[evtest.IndexFile(5)] == nil && im[evtest.IndexFile(7)] == nil
	})
	require.NoError(t, l.Close())
	require.Contains(t, said, "rename "+evtest.SegmentFile(5)+".tmp -> "+evtest.SegmentFile(5))
	for i, at := range moments {
		after := onFS(t, at)
		require.NoError(t, after.image(t).Writer().Err, said[i])
		got, err := readAll(after.ctx, after.reader(t, nil))
		require.NoError(t, err, said[i])
		sameRecs(t, records, got, "%s", said[i])
		again := after.open(t, nil)
		sameRecs(t, records, after.all(t), "%s", said[i])
		require.NoError(t, again.Close())
	}
}

// A compaction lists the directory while retention has removed a segment and not its
// index yet. By its turn that removal has ended, and nothing of it is put back: not
// even an empty file, which would show readers an old end that is gone.
func TestCompact_BesideRemoval(t *testing.T) {
	var l *evlog.Log
	var compacting sync.WaitGroup
	var once sync.Once
	var removing, back atomic.Bool
	listed := make(chan struct{}, 100)
	m := vfs.NewMem()
	p := onFS(t, m)
	p = p.on(vfs.Inject(m, func(op vfs.Op) error {
		switch {
		case op.Kind == vfs.OpRemove && op.Name == evtest.IndexFile(0):
			once.Do(func() {
				removing.Store(true)
				compacting.Go(func() {
					if _, err := l.Compact(p.ctx, fast()); err != nil {
						t.Error(err)
					}
				})
				<-listed
			})
		case op.Kind == vfs.OpRename && op.To == evtest.SegmentFile(0) && removing.Load():
			back.Store(true)
		}
		return nil
	}).After(func(op vfs.Op, _ error) {
		if op.Kind == vfs.OpList && removing.Load() {
			listed <- struct{}{}
		}
	}))
	l = p.open(t, &evlog.Options{NoPreallocate: true})
	for range 3 {
		appendEach(t, p.ctx, l, rec("", "value"))
		require.NoError(t, l.Roll(p.ctx))
	}
	p.settled(t)
	_, err := l.Retain(p.ctx, &evlog.RetainOptions{Below: 1})
	require.NoError(t, err)
	compacting.Wait()
	require.True(t, removing.Load())
	require.False(t, back.Load())
	noLoneIndex(t, p)
}
