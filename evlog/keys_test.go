package evlog_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/internal/format"
	"github.com/evlog-go/evlog/internal/vfs"
)

// keyedLog is a log of n closed segments, each with two keys of its own and one
// that all share, and filters.
func keyedLog(t testing.TB, n int) (evtest.Image, []evtest.Rec) {
	t.Helper()
	p, _ := inMem(t)
	l := p.open(t, nil)
	var want []evtest.Rec
	for i := range n {
		want = append(want, appendEach(t, p.ctx, l,
			rec(fmt.Sprintf("a%d", i), "first"), rec(fmt.Sprintf("b%d", i), "second"), rec("all", fmt.Sprint(i)))...)
		require.NoError(t, l.Roll(p.ctx))
	}
	want = append(want, appendEach(t, p.ctx, l, rec("last", "x"))...)
	reindex(t, p, l)
	require.NoError(t, l.Close())
	return p.image(t), want
}

// opened counts the segments that are opened through a file system.
func opened(p place) (place, func() (logs, idx int64)) {
	var logs, idx atomic.Int64
	p = p.on(vfs.Inject(p.fsys, func(op vfs.Op) error {
		if op.Kind == vfs.OpOpen {
			switch filepath.Ext(op.Name) {
			case ".log":
				logs.Add(1)
			case ".idx":
				idx.Add(1)
			}
		}
		return nil
	}))
	return p, func() (int64, int64) { return logs.Swap(0), idx.Swap(0) }
}

// Segments whose filter denies the key are not opened, and of their indexes one
// block is read, in either direction.
func TestKeys_SegmentsWithoutTheKeyArePassedOver(t *testing.T) {
	const n = 60
	im, want := keyedLog(t, n)
	p, count := opened(placeWith(t, im))
	r := p.reader(t, nil)
	// What has to be learnt first: each segment is opened once.
	_, err := r.Latest(p.ctx, []byte("nowhere"))
	require.ErrorIs(t, err, evlog.ErrNotFound)
	logs, _ := count()
	require.GreaterOrEqual(t, logs, int64(n))

	before := r.Visited()
	got, err := r.Latest(p.ctx, []byte("a3"))
	require.NoError(t, err)
	require.Equal(t, uint64(9), got.Offset)
	logs, idx := count()
	require.LessOrEqual(t, logs, int64(4), "the active segment, the one with the key, and what passes by chance")
	require.LessOrEqual(t, idx, int64(n+4))
	require.LessOrEqual(t, r.Visited()-before, uint64(20))

	recs, err := collect(r.ByKey(p.ctx, []byte("b57"), 0))
	require.NoError(t, err)
	sameRecs(t, want[57*3+1:57*3+2], recs)
	logs, _ = count()
	require.LessOrEqual(t, logs, int64(4))
	recs, err = collect(r.ByKey(p.ctx, []byte("b3"), 10))
	require.NoError(t, err)
	sameRecs(t, want[10:11], recs)
	recs, err = collect(r.ByKey(p.ctx, []byte("b3"), 11))
	require.NoError(t, err)
	require.Empty(t, recs)

	recs, err = collect(r.ByKey(p.ctx, []byte("all"), 0))
	require.NoError(t, err)
	require.Len(t, recs, n)
}

// What a filter says ends with it: whatever becomes of the segments and their
// indexes after a reader has learnt their filters, it finds what is there.
func TestKeys_SegmentsChangeAfterTheirFiltersAreKnown(t *testing.T) {
	im, _ := logWith(t, &evlog.Options{SegmentBytes: 230, IndexBytes: 50}, 30)
	for _, s := range surgeries() {
		t.Run(s.name, func(t *testing.T) {
			p := placeWith(t, im)
			r := p.reader(t, nil)
			_, err := r.Latest(p.ctx, []byte("nowhere"))
			require.ErrorIs(t, err, evlog.ErrNotFound)
			s.cut(t, p, im)
			left := p.image(t)
			if want := from(left.Reader().Recs, left.Bases()[0]); len(want) > 0 {
				checkKeys(t, p.ctx, r, want)
			}
		})
	}
}

// A merge into a file of the same size and time: only its index, which is
// replaced before the other segment goes, tells that the filter is another one.
func TestKeys_MergeThatLooksTheSame(t *testing.T) {
	im, want := keyedLog(t, 4)
	p := placeWith(t, im)
	r := p.reader(t, nil)
	_, err := r.Latest(p.ctx, []byte("nowhere"))
	require.ErrorIs(t, err, evlog.ErrNotFound)
	segs := im.Segments()
	a, b := segs[1], segs[2]
	recs := append(append([]evtest.Rec{}, a.Recs[1:]...), b.Recs[0])
	require.Len(t, evtest.EncodeRecs(recs...), len(im[a.Name]))
	dir, err := p.fsys.OpenDir(p.dir)
	require.NoError(t, err)
	defer dir.Close()
	info, err := dir.Stat(a.Name)
	require.NoError(t, err)
	replaceFile(t, p, a.Name, evtest.EncodeRecs(recs...))
	require.NoError(t, dir.Chtimes(a.Name, info.ModTime()))
	replaceFile(t, p, evtest.IndexFile(a.Base), indexOf(a.Base, segs[3].Base, recs))
	removeFile(t, p, b.Name)
	removeFile(t, p, evtest.IndexFile(b.Base))

	got, err := r.Latest(p.ctx, []byte("a2"))
	require.NoError(t, err)
	require.Equal(t, want[6].Offset, got.Offset)
	all, err := collect(r.ByKey(p.ctx, []byte("a2"), 0))
	require.NoError(t, err)
	sameRecs(t, want[6:7], all)
}

// An index counts while it matches the segment as it is now: what is remembered
// of one, too.
func TestKeys_IndexThatDoesNotMatchAnyMore(t *testing.T) {
	im, _ := keyedLog(t, 4)
	p := placeWith(t, im)
	r := p.reader(t, nil)
	_, err := r.Latest(p.ctx, []byte("nowhere"))
	require.ErrorIs(t, err, evlog.ErrNotFound)
	s := im.Segments()[1]
	other := evtest.RecOf(rec("nowhere", "but now"))
	other.Offset = s.Base + 1
	replaceFile(t, p, s.Name, evtest.EncodeRecs(s.Recs[0], other))
	got, err := r.Latest(p.ctx, []byte("nowhere"))
	require.NoError(t, err)
	require.Equal(t, "but now", string(got.Value))
}

// indexOf is a complete index of a segment with these records.
func indexOf(base, end uint64, recs []evtest.Rec) []byte {
	raw := evtest.EncodeRecs(recs...)
	h := format.IndexHeader{Base: base, LogSize: int64(len(raw)), End: end, ClosedMS: 1}
	var entries []format.IndexEntry
	var hashes []uint64
	for pos := 0; pos < len(raw); {
		x := format.ParseHeader(raw[pos:])
		if h.Records == 0 {
			h.FirstOffset, h.FirstCRC, h.MaxTimeMS, h.MinTimeMS = x.Offset, x.CRC, x.TimeMS, x.TimeMS
			entries = append(entries, format.IndexEntry{Offset: x.Offset, MaxTimeMS: x.TimeMS})
		}
		h.Records++
		h.LastOffset, h.LastPos, h.LastCRC = x.Offset, int64(pos), x.CRC
		hashes = append(hashes, format.KeyHash(x.Key(raw[pos:])))
		pos += int(x.Size())
	}
	h.Entries, h.Keys = uint32(len(entries)), uint64(len(hashes))
	if len(hashes) == 0 {
		return format.EncodeIndex(h, entries)
	}
	h.SetFilter(format.ShapeFor(h.Keys))
	var maker format.FilterMaker
	return maker.AppendBlock(format.EncodeIndex(h, entries), h.Filter, hashes)
}

// A segment file that is missing between two others is found by a look-up that
// would pass over both.
func TestKeys_MissingSegmentIsNotPassedOver(t *testing.T) {
	im, _ := keyedLog(t, 5)
	segs := im.Segments()
	delete(im, segs[2].Name)
	delete(im, evtest.IndexFile(segs[2].Base))
	p := placeWith(t, im)
	r := p.reader(t, nil)
	for range 2 { // the second time from what is remembered
		_, err := r.Latest(p.ctx, []byte("a0"))
		require.ErrorIs(t, err, evlog.ErrCorrupt)
		_, err = collect(r.ByKey(p.ctx, []byte("a4"), 0))
		require.ErrorIs(t, err, evlog.ErrCorrupt)
	}
}

// A key is set anew, its segment closed, and the record before compacted away,
// while a look-up is between the two: it does not miss both.
func TestLatest_BesideCompaction(t *testing.T) {
	for _, withOlder := range []bool{false, true} {
		im, _ := keyedLog(t, 4)
		p := placeWith(t, im)
		l := p.open(t, nil)
		under := p
		segs := im.Segments()
		done := false
		p = p.on(vfs.Inject(p.fsys, func(op vfs.Op) error {
			// On its way down, the reader comes to the segment with b1.
			if op.Kind == vfs.OpOpen && op.Name == segs[1].Name && !done {
				done = true
				_, err := l.Append(under.ctx, rec("b1", "new"))
				require.NoError(t, err)
				require.NoError(t, l.Roll(under.ctx))
				removeFile(t, under, evtest.IndexFile(segs[1].Base))
				replaceFile(t, under, segs[1].Name, evtest.EncodeRecs(segs[1].Recs[0], segs[1].Recs[2]))
				if withOlder { // one that compaction has not come to yet, as if it were damaged
					removeFile(t, under, evtest.IndexFile(segs[0].Base))
					old := segs[1].Recs[1]
					old.Offset = 1
					replaceFile(t, under, segs[0].Name, evtest.EncodeRecs(old))
				}
			}
			return nil
		}))
		r := p.reader(t, nil)
		got, err := r.Latest(p.ctx, []byte("b1"))
		require.True(t, done)
		require.NoError(t, err)
		require.Equal(t, "new", string(got.Value))
	}
}

// A damaged filter, or none, makes a look-up slower and never wrong; an error of
// this process is one.
func TestKeys_FiltersThatCannotBeRead(t *testing.T) {
	im, want := keyedLog(t, 6)
	for name, err := range map[string]error{"of the disk": fmt.Errorf("input/output error"), "no file": nil} {
		t.Run(name, func(t *testing.T) {
			p := placeWith(t, im)
			fail := false
			p = p.on(vfs.Inject(p.fsys, func(op vfs.Op) error {
				if fail && strings.HasSuffix(op.Name, ".idx") && op.Kind&(vfs.OpOpen|vfs.OpRead) != 0 {
					return err
				}
				return nil
			}))
			r := p.reader(t, nil)
			checkKeys(t, p.ctx, r, want)
			fail = true
			checkKeys(t, p.ctx, r, want)
		})
	}
}

// Backward reads each byte once, and gives the same with every size of records
// and of steps.
func TestBackward_ReadsEachRecordOnce(t *testing.T) {
	p, _ := inMem(t)
	l := p.open(t, &evlog.Options{SegmentBytes: 1 << 20})
	var want []evtest.Rec
	for i := range 4000 {
		size := 10 + i%300
		if i%1000 == 500 {
			size = 100_000
		}
		r := rec(fmt.Sprint(i), strings.Repeat("x", size))
		r.Offset = uint64(i)
		require.NoError(t, l.EnqueueExact(p.ctx, r))
		want = append(want, evtest.RecOf(r))
	}
	require.NoError(t, l.Close())
	var read atomic.Int64
	p = p.on(vfs.Inject(p.fsys, func(op vfs.Op) error {
		if op.Kind == vfs.OpRead && filepath.Ext(op.Name) == ".log" {
			read.Add(op.Len)
		}
		return nil
	}))
	r := p.reader(t, nil)
	got, err := collect(r.Backward(p.ctx, 4000))
	require.NoError(t, err)
	sameRecs(t, reversed(want), got)
	size := int64(len(evtest.EncodeRecs(want...)))
	t.Logf("%d bytes read for %d", read.Load(), size)
	require.Less(t, read.Load(), size*14/10)
	require.Less(t, r.Visited(), uint64(4000*11/10))
	got, err = collect(r.Backward(p.ctx, 1777))
	require.NoError(t, err)
	sameRecs(t, reversed(want[:1777]), got)
}

// Damage ends a walk backward close above it, however much is read at a time.
func TestBackward_GoesCloseToDamage(t *testing.T) {
	im, want := logWith(t, nil, 8000)
	name := evtest.SegmentFile(0)
	at := len(im[name]) / 4
	im[name][at] ^= 1
	p := placeWith(t, im)
	got, err := collect(p.reader(t, nil).Backward(p.ctx, 8000))
	require.ErrorIs(t, err, evlog.ErrCorrupt)
	sameRecs(t, reversed(want)[:len(got)], got)
	above := len(evtest.EncodeRecs(reversed(got)...))
	require.Less(t, len(im[name])-at-above, 3*4096)
}

// Retention takes a key's record while Latest is on its way there, after a newer
// one was appended to the same active segment.
func TestLatest_BesideRetention(t *testing.T) {
	m := vfs.NewMem()
	p := onFS(t, m)
	l := p.open(t, &evlog.Options{NoPreallocate: true})
	appendEach(t, p.ctx, l, rec("k", "1"))
	require.NoError(t, l.Roll(p.ctx))
	appendEach(t, p.ctx, l, rec("x", "1"))
	var once sync.Once
	q := p.on(vfs.Inject(m, func(op vfs.Op) error {
		if op.Kind == vfs.OpOpen && op.Name == evtest.SegmentFile(1) {
			once.Do(func() {
				appendEach(t, p.ctx, l, rec("k", "2"))
				retain(t, p, l, evlog.RetainOptions{Below: 1})
			})
		}
		return nil
	}))
	got, err := q.reader(t, nil).Latest(p.ctx, []byte("k"))
	require.NoError(t, err, "the key has had a record all the time")
	require.EqualValues(t, 2, got.Offset)
	_, err = q.reader(t, nil).Latest(p.ctx, []byte("none"))
	require.ErrorIs(t, err, evlog.ErrNotFound)
}
