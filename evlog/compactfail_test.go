package evlog_test

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/evlog/evlogtest"
	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/internal/format"
	"github.com/evlog-go/evlog/internal/vfs"
)

// worn is a log whose compaction has everything to do: records to drop, a
// tombstone, segments to merge, one that was merged halfway by a run before.
func worn(t testing.TB, p place) []evtest.Rec {
	t.Helper()
	l := p.open(t, &evlog.Options{SegmentBytes: 1000, IndexBytes: 100, NoPreallocate: true})
	var want []evtest.Rec
	for i := range 4 {
		want = append(want, appendEach(t, p.ctx, l, rec("a", fmt.Sprint(i)), rec(fmt.Sprint("k", i), "v"), rec("b", "v"), rec("", "no key"))...)
		if i == 2 {
			want = append(want, appendEach(t, p.ctx, l, tombstone("k0"))...)
		}
		require.NoError(t, l.Roll(p.ctx))
	}
	want = append(want, appendEach(t, p.ctx, l, rec("b", "last"))...)
	require.NoError(t, l.Close())
	return want
}

// Each operation of a compaction fails in turn: for lack of space, and as on a
// dying disk. Nothing is lost, no temporary file stays, the log goes on unless a
// directory could not be synced, and a run after that does the rest.
func TestCompact_EveryOperationFails(t *testing.T) {
	for _, failure := range []error{syscall.ENOSPC, syscall.EIO, vfs.ErrUnsupported} {
		t.Run(failure.Error(), func(t *testing.T) {
			clean, _ := inMem(t)
			recs := worn(t, clean)
			want := newestOf(recs, activeBase(t, clean), true)
			image := clean.image(t)
			for n := 1; ; n++ {
				p, m := inMem(t)
				p.put(t, image)
				var mu sync.Mutex // guards the next four; the log has goroutines of its own
				count, hit := 0, vfs.Op{}
				armed, settled := false, false
				arm := func(on bool) {
					mu.Lock()
					defer mu.Unlock()
					armed = on
				}
				p = p.on(vfs.Inject(m, func(op vfs.Op) error {
					mu.Lock()
					defer mu.Unlock()
					settled = settled || op.Kind == vfs.OpSyncParent
					if !armed || op.Name == "DURABLE" {
						return nil
					}
					if count++; count == n {
						hit = op
						return failure
					}
					return nil
				}))
				l := p.open(t, &evlog.Options{NoPreallocate: true})
				quiet(t, p) // or the housekeeper takes the failure
				soon(t, "what goes on beside opening is over", func() bool {
					mu.Lock()
					defer mu.Unlock()
					return settled
				})
				arm(true)
				rep, err := l.Compact(p.ctx, purging())
				arm(false)
				if count < n {
					require.NoError(t, err)
					sameRecs(t, want, p.all(t))
					return
				}
				what := fmt.Sprintf("operation %d, %v", n, hit)
				require.NotNil(t, rep)
				sameAnswers(t, p, l.Reader(), recs, what)
				sameAnswers(t, p, p.reader(t, nil), recs, what+", another process")
				for name := range p.image(t) {
					if hit.Kind != vfs.OpRemove {
						require.False(t, strings.HasSuffix(name, ".log.tmp"), "%s: %s stays", what, name)
					}
				}
				poisoned := hit.Kind == vfs.OpDirSync
				_, appendErr := l.Append(p.ctx, rec("after", ""))
				if poisoned {
					require.ErrorIs(t, err, evlog.ErrPoisoned, what)
					require.ErrorIs(t, appendErr, evlog.ErrPoisoned, what)
				} else {
					require.NoError(t, appendErr, what)
				}
				_ = l.Close()
				l = p.open(t, nil)
				soon(t, what+": no temporary file outlives opening", func() bool {
					for name := range p.image(t) {
						if strings.HasSuffix(name, ".log.tmp") {
							return false // for a moment, where a removal is settled
						}
					}
					return true
				})
				_, err = l.Compact(p.ctx, purging())
				require.NoError(t, err, what)
				got := p.all(t)
				if !poisoned {
					got = got[:len(got)-1]
				}
				sameRecs(t, want, got, what)
				sameAnswers(t, p, l.Reader(), append(recs, recsAt(recs[len(recs)-1].Offset+1, rec("after", ""))...), what)
				require.NoError(t, l.Close())
				p.verified(t)
			}
		})
	}
}

func indexed(im evtest.Image) (n int) {
	for name := range im {
		if strings.HasSuffix(name, ".idx") {
			n++
		}
	}
	return n
}

// A disk without room for the copy: the error says so, and nothing has changed.
func TestCompact_DiskFull(t *testing.T) {
	p, m := inMem(t)
	recs := worn(t, p)
	l := p.open(t, &evlog.Options{NoPreallocate: true})
	soon(t, "the housekeeper is done", func() bool { return indexed(p.image(t)) == 5 })
	m.SetCapacity(m.Used() + 530)
	_, err := l.Compact(p.ctx, fast())
	require.ErrorIs(t, err, syscall.ENOSPC)
	m.SetCapacity(-1)
	sameRecs(t, recs, p.all(t))
	_, err = l.Append(p.ctx, rec("after", "v"))
	require.NoError(t, err)
	compact(t, p, l, fast())
	require.Less(t, len(p.all(t)), len(recs))
}

// The sync of a directory fails after a replacement, or after a merged segment
// was unlinked. The page cache shows the result, the disk has the old one, and
// the next writer in the same machine must not build on it: a tombstone that
// goes would let the deleted record come back with the next power failure. (I5)
func TestCompact_FailedDirectorySyncIsNoEvidence(t *testing.T) {
	// Small segments are merged, and with that written again anyway.
	for _, segmentBytes := range []int64{400, 40} {
		t.Run(fmt.Sprint(segmentBytes), func(t *testing.T) { failEachDirectorySync(t, segmentBytes) })
	}
}

func failEachDirectorySync(t *testing.T, segmentBytes int64) {
	for n := 1; ; n++ {
		p, m := inMem(t)
		clock := evlogtest.NewClock(noon)
		o := &evlog.Options{
			Clock: clock, SegmentBytes: segmentBytes, IndexBytes: 100, TombstoneGrace: time.Hour, NoPreallocate: true,
		}
		l := p.open(t, o)
		var wrote []evtest.Rec
		for _, segment := range [][]evlog.Record{
			{rec("a", "deleted"), rec("x", "1")},
			{rec("a", "deleted too"), rec("y", "1"), rec("later", "deleted afterwards")},
			{tombstone("a"), rec("x", "2")},
			{rec("z", "1")},
		} {
			if len(wrote) > 0 {
				require.NoError(t, l.Roll(p.ctx))
			}
			_, err := l.Append(p.ctx, segment...)
			require.NoError(t, err)
			wrote = append(wrote, recsAt(uint64(len(wrote)), segment...)...)
		}
		p.settled(t)
		m.FailSync(vfs.OpDirSync, "", n, errDying)
		_, err := l.Compact(p.ctx, fast())
		if err == nil {
			require.Greater(t, n, 2, "a compaction syncs the directory")
			return
		}
		require.ErrorIs(t, err, evlog.ErrPoisoned)
		require.ErrorIs(t, err, errDying)
		what := fmt.Sprintf("sync %d failed", n)
		sameAnswers(t, p, l.Reader(), wrote, what+", the poisoned process")
		sameAnswers(t, p, p.reader(t, nil), wrote, what+", another one")
		_ = l.Close()
		for _, lost := range []bool{false, true} { // the index too
			for _, grace := range []bool{false, true} { // the tombstones go at once, or in a later run
				q := onFS(t, m.KillImage())
				what := fmt.Sprintf("%s, index lost %v, grace %v", what, lost, grace)
				if lost {
					removeNames(t, q, "*.idx")
				}
				again := q.open(t, &evlog.Options{Clock: clock, NoPreallocate: true})
				sameAnswers(t, q, again.Reader(), wrote, what)
				compaction := purging()
				if grace {
					compaction = fast()
				}
				compact(t, q, again, compaction)
				sameAnswers(t, q, again.Reader(), wrote, what)
				appendEach(t, q.ctx, again, tombstone("later"))
				require.NoError(t, again.Roll(q.ctx))
				for range 2 {
					compact(t, q, again, compaction)
					clock.Advance(2 * time.Hour)
				}
				compact(t, q, again, compaction)
				image := q.fsys.(*vfs.Mem)
				for seed := range uint64(20) {
					after := onFS(t, image.Crash(seed))
					if !lost { // a mark of a removal that is not certain was among them
						every := recsAt(uint64(len(wrote)), tombstone("later"))
						sameAnswers(t, after, after.reader(t, nil), append(every, wrote...), fmt.Sprintf("%s, crash %d", what, seed))
					}
					for _, r := range after.all(t) {
						if len(r.Value) == 0 {
							continue // the tombstone may wait for somebody who has a file open
						}
						require.NotContains(t, []string{"a", "later"}, string(r.Key), "%s, crash %d: %v is back", what, seed, r)
					}
				}
				if !windowsRules { // there, an index that was open when it was to be written waits for the next opening
					quiet(t, q)
				}
				noLoneIndex(t, q)
				require.NoError(t, again.Close())
			}
		}
	}
}

// failedRemoval is the disk after a merge in which the sync failed that followed the
// removal of the second segment: of segments of two records, whose first one has a
// value of so many bytes. It ends with an empty one.
func failedRemoval(t *testing.T, sizes ...int) (disk *vfs.Mem, wrote []evtest.Rec) {
	t.Helper()
	p, m := inMem(t)
	l := p.open(t, &evlog.Options{SegmentBytes: 400, IndexBytes: 100, NoPreallocate: true})
	for i, size := range sizes {
		wrote = append(wrote, appendEach(t, p.ctx, l, rec(fmt.Sprint("k", i), strings.Repeat("v", size)), rec(fmt.Sprint("l", i), "v"))...)
		require.NoError(t, l.Roll(p.ctx))
	}
	p.settled(t)
	m.FailSync(vfs.OpDirSync, "", 3, errDying) // of the rename, of the index, of the removal
	_, err := l.Compact(p.ctx, fast())
	require.ErrorIs(t, err, errDying)
	_ = l.Close()
	require.NotContains(t, p.image(t), evtest.SegmentFile(2))
	require.Contains(t, p.image(t), evtest.IndexFile(2))
	return m.KillImage(), wrote
}

// The sync after the removal of a merged segment fails. The next writer puts a file
// under that name once more, to remove it for good: whoever reads meanwhile sees
// what was merged, and so does whoever comes after a kill or a power failure.
func TestCompact_RemovalIsSettledInView(t *testing.T) {
	disk, wrote := failedRemoval(t, 1, 1, 1, 1)
	var mu sync.Mutex // guards the next two
	var moments []*vfs.Mem
	var said []string
	q := onFS(t, vfs.Inject(disk, func(op vfs.Op) error {
		if op.Kind == vfs.OpRename || op.Kind == vfs.OpRemove || op.Kind == vfs.OpDirSync {
			mu.Lock()
			defer mu.Unlock()
			moments = append(moments, disk.KillImage(), disk.Crash(uint64(len(said))))
			said = append(said, op.String(), op.String()+", power lost")
		}
		return nil
	}))
	l := q.open(t, &evlog.Options{NoPreallocate: true})
	soon(t, "it is settled", func() bool {
		_, there := q.image(t)[evtest.IndexFile(2)]
		return !there
	})
	require.NoError(t, l.Close())
	require.Contains(t, said, "rename "+evtest.SegmentFile(2)+".tmp -> "+evtest.SegmentFile(2))
	for i, at := range moments {
		after := onFS(t, at)
		sameAnswers(t, after, after.reader(t, nil), wrote, said[i])
		again := after.open(t, nil)
		sameRecs(t, wrote, after.all(t), "%s", said[i])
		compact(t, after, again, fast())
		sameRecs(t, wrote, after.all(t), "%s", said[i])
		require.NoError(t, again.Close())
		after.verified(t)
	}
}

// The same by the rules of Windows, with somebody who has that file open in the
// moment: it stays. The merge that goes on beside it removes the next segments, and
// nobody misses what stood in there.
func TestCompact_RemovalIsSettledBesideAMerge(t *testing.T) {
	disk, wrote := failedRemoval(t, 1, 1, 1, 1)
	stays := make(chan struct{})
	var once sync.Once
	q := onFS(t, vfs.Inject(disk, func(op vfs.Op) error {
		if op.Kind != vfs.OpRemove || op.Name != evtest.SegmentFile(2) {
			return nil
		}
		once.Do(func() { close(stays) })
		return fs.ErrPermission
	}))
	l := q.open(t, &evlog.Options{NoPreallocate: true})
	inTime(t, "it is settled", stays)
	require.NoError(t, l.Close())
	require.Equal(t, []uint64{0, 2, 4, 6, 8}, q.image(t).Bases())
	for _, next := range []uint64{4, 6} {
		removeNames(t, onFS(t, disk), evtest.SegmentFile(next))
		after := onFS(t, disk.KillImage())
		sameAnswers(t, after, after.reader(t, nil), wrote, fmt.Sprintf("%d is gone", next))
		l = after.open(t, nil)
		compact(t, after, l, fast())
		sameRecs(t, wrote, after.all(t))
		require.NoError(t, l.Close())
		after.verified(t)
	}
}

// A compaction begins while the housekeeper makes such a removal durable: the file
// that stands there for a moment is no segment, and the next one's records are
// nowhere else.
func TestCompact_RemovalIsSettledBesideTheListing(t *testing.T) {
	disk, wrote := failedRemoval(t, 1, 1, 300, 300) // the first two are merged
	stands, goOn := make(chan struct{}), make(chan struct{})
	var removing, looks atomic.Bool
	q := onFS(t, vfs.Inject(disk, func(op vfs.Op) error {
		switch {
		case op.Kind == vfs.OpRemove && op.Name == evtest.SegmentFile(2) && removing.CompareAndSwap(false, true):
			close(stands)
			select {
			case <-goOn:
			case <-time.After(200 * time.Millisecond): // the compaction waits for this
			}
		case op.Kind == vfs.OpOpen && op.Name == evtest.SegmentFile(0) && removing.Load() && looks.CompareAndSwap(false, true):
			close(goOn)
			soon(t, "it is gone", func() bool {
				im, err := evtest.ReadFS(disk, onFS(t, disk).dir)
				_, there := im[evtest.IndexFile(2)]
				return err == nil && !there
			})
		}
		return nil
	}))
	l := q.open(t, &evlog.Options{NoPreallocate: true})
	inTime(t, "it is settled", stands)
	compact(t, q, l, fast())
	sameRecs(t, wrote, q.all(t))
	require.NoError(t, l.Close())
	require.Equal(t, []uint64{0, 4, 6, 8}, onFS(t, disk).image(t).Bases())
	onFS(t, disk).verified(t)
}

// noLoneIndex asserts that no index without a segment stays.
func noLoneIndex(t testing.TB, p place) {
	t.Helper()
	soon(t, "there is no index without a segment", func() bool {
		im := p.image(t)
		for name := range im {
			base, ok := format.ParseIndexName(name)
			if _, there := im[evtest.SegmentFile(base)]; ok && !there {
				return false
			}
		}
		return true
	})
}

// Errors of reading are no damage, and damage found on the way takes back what
// was concluded from that segment.
func TestCompact_DamageFoundOnTheWay(t *testing.T) {
	p, m := inMem(t)
	l := p.open(t, &evlog.Options{SegmentBytes: 1 << 20, NoPreallocate: true})
	want := appendEach(t, p.ctx, l, rec("a", "1"), rec("b", "1"))
	require.NoError(t, l.Roll(p.ctx))
	want = append(want, appendEach(t, p.ctx, l, rec("a", "2"), rec("c", "1"), rec("b", "2"))...)
	require.NoError(t, l.Roll(p.ctx))
	require.NoError(t, l.Close())
	soon(t, "indexed", func() bool { return indexed(p.image(t)) >= 2 })
	damage(t, p, evtest.SegmentFile(2), 59) // behind a:2, which is read first
	l = p.open(t, &evlog.Options{NoPreallocate: true})
	rep := compact(t, p, l, fast())
	require.Len(t, rep.Refused, 1)
	require.Empty(t, rep.Changes, "a:2 stands in a damaged segment")
	sameRecs(t, want[:2], evtest.DecodeSegment(0, p.image(t)[evtest.SegmentFile(0)]).Recs)
	require.NoError(t, l.Close())

	q := p.on(vfs.Inject(m, func(op vfs.Op) error {
		if op.Kind == vfs.OpRead && op.Name == evtest.SegmentFile(2) {
			return errDying
		}
		return nil
	}))
	l = q.open(t, &evlog.Options{NoPreallocate: true})
	_, err := l.Compact(q.ctx, fast())
	require.ErrorIs(t, err, errDying)
}

// By the rules of Windows a segment that somebody reads cannot be replaced. It
// is left for later, and tombstones above it too.
func TestCompact_SegmentInUse(t *testing.T) {
	m := vfs.NewMem()
	p := onFS(t, vfs.Windows(m))
	l := p.open(t, &evlog.Options{SegmentBytes: 1 << 20, NoPreallocate: true})
	appendEach(t, p.ctx, l, rec("a", "1"), rec("b", "1"))
	require.NoError(t, l.Roll(p.ctx))
	appendEach(t, p.ctx, l, tombstone("a"), rec("b", "2"))
	require.NoError(t, l.Roll(p.ctx))
	d, err := p.fsys.OpenDir(p.dir)
	require.NoError(t, err)
	f, err := d.OpenFile(evtest.SegmentFile(0), 0, 0)
	require.NoError(t, err)
	var rep *evlog.CompactReport
	soon(t, "nobody has another one open", func() bool {
		rep = compact(t, p, l, purging())
		return len(rep.Refused) == 1 // with the housekeeper at the other one there are two
	})
	require.ErrorIs(t, rep.Refused[0], fs.ErrPermission)
	require.Zero(t, rep.Tombstones)
	require.Len(t, p.all(t), 4)
	require.NoError(t, errors.Join(f.Close(), d.Close()))
	_, err = readAll(p.ctx, l.Reader())
	require.NoError(t, err, "what the writer's own reader keeps open is no hindrance")
	soon(t, "the housekeeper is not reading a segment", func() bool {
		rep = compact(t, p, l, purging())
		return len(rep.Refused) == 0
	})
	require.EqualValues(t, 1, rep.Tombstones)
	require.Len(t, p.all(t), 1)
}

// What the writer's own reader keeps open is no hindrance either to noting that a
// segment is clean: the grace of its tombstones would never begin.
func TestCompact_NotedThoughOwnReaderLooked(t *testing.T) {
	q, m := inMem(t)
	p := q.on(vfs.Windows(m))
	clock := evlogtest.NewClock(noon)
	l := p.open(t, &evlog.Options{Clock: clock, TombstoneGrace: time.Hour, NoPreallocate: true})
	appendEach(t, p.ctx, l, tombstone("a"), rec("b", "1"))
	require.NoError(t, l.Roll(p.ctx))
	quiet(t, q)
	looksAndCompacts := func() {
		_, err := l.Reader().Get(p.ctx, 1) // by the index
		require.NoError(t, err)
		compact(t, p, l, fast())
	}
	soon(t, "it is noted", func() bool { // the housekeeper may have it open as well, for a moment
		looksAndCompacts()
		h, err := format.ParseIndexHeader(q.image(t)[evtest.IndexFile(0)])
		require.NoError(t, err)
		return h.CleanedMS == noon.UnixMilli()
	})
	require.Len(t, p.all(t), 2)
	clock.Advance(time.Hour)
	soon(t, "the tombstone goes", func() bool {
		looksAndCompacts()
		return len(p.all(t)) == 1
	})
}

// A dry run closes what it opens: by the rules of Windows nothing that it looked
// at could be replaced otherwise.
func TestCompact_DryRunLeavesNothingOpen(t *testing.T) {
	m := vfs.NewMem()
	q, p := onFS(t, m), onFS(t, vfs.Windows(m))
	recs := worn(t, p)
	want := newestOf(recs, activeBase(t, p), true)
	l := p.open(t, &evlog.Options{NoPreallocate: true})
	quiet(t, q)
	dry := purging()
	dry.DryRun = true
	plan := compact(t, p, l, dry)
	require.NotEmpty(t, plan.Changes)
	soon(t, "the housekeeper is not reading a segment", func() bool {
		return len(compact(t, p, l, purging()).Refused) == 0
	})
	sameRecs(t, want, p.all(t))
}

// The writer compacts by itself: when enough is dirty, when what is dirty has
// been so for the length of the grace, and when a grace is over; a quiet active
// segment is rolled for it.
func TestCompact_ByItself(t *testing.T) {
	p, _ := inMem(t)
	w := newWorld(t, 1, evlog.Options{
		Compact: evlog.On, MinLag: time.Second, TombstoneGrace: time.Hour, SegmentBytes: 1 << 20, NoPreallocate: true,
	})
	p = w.p
	require.NoError(t, w.open())
	l := w.l
	advance := func(total, step time.Duration) {
		for ; total > 0; total -= step {
			w.clock.Advance(min(step, total))
			time.Sleep(time.Millisecond)
		}
	}
	appendEach(t, p.ctx, l, rec("a", "1"), rec("b", "1"))
	require.NoError(t, l.Roll(p.ctx))
	appendEach(t, p.ctx, l, rec("b", "2"), tombstone("a"))
	require.NoError(t, l.Roll(p.ctx))
	soon(t, "compacted: all was dirty", func() bool {
		advance(time.Second, time.Second/4)
		return l.Stats().Compactions > 0
	})
	require.Equal(t, []string{"2 b 2", "3 a "}, keysOf(p.all(t)), "the tombstone has its grace")
	soon(t, "the tombstone goes, though nothing is appended", func() bool {
		advance(10*time.Minute, time.Minute)
		return len(p.all(t)) == 1
	})
	appendEach(t, p.ctx, l, rec("b", "3"))
	soon(t, "the quiet active segment is rolled and cleaned", func() bool {
		advance(10*time.Minute, time.Minute)
		all := p.all(t)
		return len(all) == 1 && string(all[0].Value) == "3"
	})
	require.NoError(t, l.Close())
}

// A segment that is left empty is merged into one that does not change by that.
// Its old index still matches, and claims an end at the one that goes: after a
// power failure at any moment no segment seems to be missing.
func TestCompact_EmptyNeighbourLeavesNoGap(t *testing.T) {
	for n := int64(0); ; n++ {
		p, m := inMem(t)
		l := p.open(t, &evlog.Options{SegmentBytes: 400, IndexBytes: 100, NoPreallocate: true})
		wrote := appendEach(t, p.ctx, l, rec("", "no key"))
		require.NoError(t, l.Roll(p.ctx))
		wrote = append(wrote, appendEach(t, p.ctx, l, rec("a", "1"))...)
		require.NoError(t, l.Roll(p.ctx))
		wrote = append(wrote, appendEach(t, p.ctx, l, rec("a", strings.Repeat("2", 300)))...)
		want := []evtest.Rec{wrote[0], wrote[2]}
		require.NoError(t, l.Roll(p.ctx))
		require.NoError(t, l.Close())
		l = p.open(t, &evlog.Options{NoPreallocate: true})
		p.settled(t)
		m.SetCut(n)
		_, err := l.Compact(p.ctx, fast())
		for seed := range uint64(40) {
			after := onFS(t, m.Crash(seed))
			after.verified(t)
			what := fmt.Sprintf("cut at %d, crash %d", n, seed)
			require.Subset(t, keysOf(after.all(t)), keysOf(want), what)
			sameAnswers(t, after, after.reader(t, nil), wrote, what)
		}
		_ = l.Close()
		if err == nil {
			require.Equal(t, []uint64{0, 2, 3}, p.image(t).Bases())
			return
		}
		require.ErrorIs(t, err, vfs.ErrCut)
	}
}

// The index of a segment that was rolled waits for the housekeeper's turn. If
// compaction has been through the segment by then, what it noted stays.
func TestCompact_NoteOutlivesTheRollsIndex(t *testing.T) {
	m := vfs.NewMem()
	var mu sync.Mutex
	written, looked := false, false
	looks, goOn := make(chan struct{}), make(chan struct{})
	p := onFS(t, vfs.Inject(m, func(op vfs.Op) error {
		mu.Lock()
		written = written || op.Kind == vfs.OpRename && strings.HasPrefix(op.Name, evtest.IndexFile(0))
		first := written && !looked && op.Kind == vfs.OpOpen && op.Name == evtest.SegmentFile(0)
		looked = looked || first
		mu.Unlock()
		if first { // for the filter; it holds no lock
			close(looks)
			<-goOn
		}
		return nil
	}))
	l := p.open(t, &evlog.Options{Clock: evlogtest.NewClock(noon), NoPreallocate: true, SegmentBytes: 20})
	appendEach(t, p.ctx, l, rec("a", strings.Repeat("1", 100)))
	require.NoError(t, l.Roll(p.ctx))
	inTime(t, "the housekeeper looks at segment 0", looks)
	appendEach(t, p.ctx, l, rec("b", "2"))
	require.NoError(t, l.Roll(p.ctx))
	compact(t, p, l, fast())
	close(goOn)
	require.NoError(t, l.Close())
	for _, base := range []uint64{0, 1} {
		h, err := format.ParseIndexHeader(onFS(t, m).image(t)[evtest.IndexFile(base)])
		require.NoError(t, err)
		require.Equal(t, noon.UnixMilli(), h.CleanedMS, "segment %d", base)
	}
}

// The same where the segment was active when the log was closed the last time: then
// there is an index already, which knows nothing of the roll.
func TestCompact_NoteOutlivesTheRollsIndexAfterOpening(t *testing.T) {
	p, m := inMem(t)
	opts := &evlog.Options{Clock: evlogtest.NewClock(noon), NoPreallocate: true, SegmentBytes: 20}
	l := p.open(t, opts)
	appendEach(t, p.ctx, l, rec("a", strings.Repeat("1", 100)))
	require.NoError(t, l.Roll(p.ctx))
	appendEach(t, p.ctx, l, rec("b", "2"))
	require.NoError(t, l.Close())
	removeNames(t, p, evtest.IndexFile(0))
	require.Contains(t, p.image(t), evtest.IndexFile(1))

	var looked atomic.Bool
	looks, goOn := make(chan struct{}), make(chan struct{})
	p = onFS(t, vfs.Inject(m, func(op vfs.Op) error {
		if op.Kind == vfs.OpOpen && op.Name == evtest.SegmentFile(0) && looked.CompareAndSwap(false, true) {
			close(looks) // it holds no lock
			<-goOn
		}
		return nil
	}))
	l = p.open(t, opts)
	inTime(t, "the housekeeper looks at segment 0", looks)
	require.NoError(t, l.Roll(p.ctx))
	compact(t, p, l, fast())
	close(goOn)
	require.NoError(t, l.Close())
	for _, base := range []uint64{0, 1} {
		h, err := format.ParseIndexHeader(onFS(t, m).image(t)[evtest.IndexFile(base)])
		require.NoError(t, err)
		require.Equal(t, noon.UnixMilli(), h.CleanedMS, "segment %d", base)
	}
}

// A merge may leave a file of the size, and with the closing time, that the name
// had before. A reader that knows the old one's times must not take it for that.
func TestCompact_AnotherFileOfTheSameSize(t *testing.T) {
	p, _ := inMem(t)
	early, late := time.UnixMilli(1_600_000_000_000), time.UnixMilli(1_700_000_000_000)
	l := p.open(t, &evlog.Options{Clock: evlogtest.NewClock(noon), SegmentBytes: 200, NoPreallocate: true})
	for _, r := range []evlog.Record{
		{Time: early, Key: []byte("a"), Value: []byte("1")},
		{Time: late, Key: []byte("b"), Value: []byte("2")},
		{Time: early, Key: []byte("a"), Value: make([]byte, 150)}, // too large to be merged
	} {
		appendEach(t, p.ctx, l, r)
		require.NoError(t, l.Roll(p.ctx))
	}
	quiet(t, p)
	r := p.reader(t, nil)
	at, err := r.OffsetAt(p.ctx, late)
	require.NoError(t, err)
	require.EqualValues(t, 1, at)
	before := p.image(t)
	r = p.lets(t, r)
	compact(t, p, l, fast())
	after := p.image(t)
	require.Equal(t, []uint64{0, 2, 3}, after.Bases(), "segment 1 is in segment 0, of which nothing was left")
	require.Len(t, after[evtest.SegmentFile(0)], len(before[evtest.SegmentFile(0)]))
	at, err = r.OffsetAt(p.ctx, late)
	require.NoError(t, err)
	require.EqualValues(t, 1, at)
}
