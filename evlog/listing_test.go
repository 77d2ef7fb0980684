package evlog_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/internal/vfs"
)

// forgetful is a file system whose every second listing lacks a name, as a
// directory's may that is changed while it is read.
type forgetful struct {
	vfs.FS
	mu    sync.Mutex
	calls int
	whole bool // for now, nothing is missed
	pick  func(n int) int
}

func (f *forgetful) OpenDir(path string) (vfs.Dir, error) {
	d, err := f.FS.OpenDir(path)
	return &forgetfulDir{d, f}, err
}

type forgetfulDir struct {
	vfs.Dir
	f *forgetful
}

func (d *forgetfulDir) Names() ([]string, error) {
	names, err := d.Dir.Names()
	d.f.mu.Lock()
	defer d.f.mu.Unlock()
	d.f.calls++
	if d.f.calls%2 == 1 || d.f.whole || err != nil {
		return names, err
	}
	logs := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !isLog(name) })
	gone := logs[d.f.pick(len(logs))]
	return slices.DeleteFunc(names, func(name string) bool { return name == gone }), nil
}

// FORMAT.md: "fallen behind" and "missing" are only said when two listings
// agree.
func TestReader_OneListingIsNoEvidence(t *testing.T) {
	whole, want := logWith(t, &evlog.Options{SegmentBytes: 230, IndexBytes: 50}, 30)
	evtest.Seeds(t, 3000, func(t *testing.T, seed uint64) {
		m := vfs.NewMem()
		im := whole.Clone()
		if seed%2 == 0 {
			eachIndex(im, func(name string) { delete(im, name) })
		}
		onFS(t, m).put(t, im)
		rng := evtest.Rand(seed)
		p := onFS(t, &forgetful{FS: m, pick: rng.IntN, calls: rng.IntN(2)})
		r := p.reader(t, nil)
		for range 4 {
			off := rng.Uint64N(30)
			got, err := collect(r.Records(p.ctx, off))
			require.NoError(t, err, "seed %d, from %d", seed, off)
			sameRecs(t, want[off:], got, "seed %d, from %d", seed, off)
			one, err := r.Get(p.ctx, off)
			require.NoError(t, err, "seed %d, get %d", seed, off)
			require.Equal(t, off, one.Offset, "seed %d", seed)
			what := fmt.Sprintf("seed %d", seed)
			got, err = collect(r.Backward(p.ctx, off))
			require.NoError(t, err, what)
			sameRecs(t, reversed(want[:off]), got, "backward from %d: %s", off, what)
			checkSome(t, p.ctx, r, want, rng, what)
			first, next, err := r.Bounds(p.ctx)
			require.NoError(t, err, what)
			require.Equal(t, []uint64{0, 30}, []uint64{first, next}, what)
			bases, err := r.Bases(p.ctx)
			require.NoError(t, err, what)
			require.Equal(t, im.Bases(), bases, what)
			segments, err := r.Segments(p.ctx)
			require.NoError(t, err, what)
			require.Len(t, segments, len(bases), what)
			checkTimeRanges(t, p.ctx, r, want)
			p.verified(t)
		}
	})
}

// missing is a file system whose next listing lacks a name.
type missing struct {
	vfs.FS
	name atomic.Pointer[string]
}

func (f *missing) OpenDir(path string) (vfs.Dir, error) {
	d, err := f.FS.OpenDir(path)
	return &missingDir{d, f}, err
}

type missingDir struct {
	vfs.Dir
	f *missing
}

func (d *missingDir) Names() ([]string, error) {
	names, err := d.Dir.Names()
	if lacks := d.f.name.Swap(nil); lacks != nil {
		names = slices.DeleteFunc(names, func(name string) bool { return name == *lacks })
	}
	return names, err
}

// A merge takes the next segment away while a reader is in the middle of the log,
// and the listing it then makes misses the file that took it in: that is no
// evidence that the reader has fallen behind the first offset.
func TestReader_OneListingInMidWalkIsNoEvidence(t *testing.T) {
	whole := build().segment(0, upTo(0, 4)...).segment(4, upTo(4, 8)...).segment(8, upTo(8, 12)...).segment(12, 12).durable(13, 12).im
	m := vfs.NewMem()
	onFS(t, m).put(t, whole)
	f := &missing{FS: m}
	p := onFS(t, f)
	d, err := m.OpenDir(p.dir)
	require.NoError(t, err)
	defer d.Close()
	var got []evtest.Rec
	for rec, err := range p.reader(t, nil).Records(p.ctx, 0) {
		require.NoError(t, err)
		got = append(got, evtest.RecOf(rec))
		if rec.Offset == 3 {
			merged := evtest.Image{"merged": evtest.EncodeRecs(smalls(upTo(0, 8)...)...)}
			require.NoError(t, merged.WriteFS(m, p.dir))
			require.NoError(t, d.Rename("merged", evtest.SegmentFile(0)))
			require.NoError(t, d.Remove(evtest.SegmentFile(4)))
			first := evtest.SegmentFile(0)
			f.name.Store(&first)
		}
	}
	require.Nil(t, f.name.Load(), "the listing was made")
	sameRecs(t, smalls(upTo(0, 13)...), got)
}

// A segment that was prepared ahead has its exact size once it is closed,
// however the roll meets the one who prepares it.
func TestPreallocation_ClosedSegmentsAreExact(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		l := p.open(t, nil)
		big := evlog.Record{Time: time.UnixMilli(1), Value: make([]byte, 1<<20)}
		var want []evtest.Rec
		for range 10 {
			want = append(want, appendEach(t, p.ctx, l, big, rec("k", "starts preparing"))...)
			require.NoError(t, l.Roll(p.ctx))
			want = append(want, appendEach(t, p.ctx, l, rec("k", "again"))...)
			require.NoError(t, l.Roll(p.ctx))
		}
		segs := p.image(t).Segments()
		for _, s := range segs[:len(segs)-1] {
			require.Equal(t, s.End, s.Size, "segment %d ends in something", s.Base)
		}
		require.NoError(t, l.Close())
		active, _ := p.image(t).Active()
		require.Equal(t, active.End, active.Size)
		sameRecs(t, want, p.image(t).Writer().Recs)
	})
}

// The same where a write meets a full disk: nothing is prepared behind the cut.
func TestPreallocation_FullDisk(t *testing.T) {
	p, m := inMem(t)
	l := p.open(t, nil)
	want := appendEach(t, p.ctx, l, evlog.Record{Time: time.UnixMilli(1), Value: make([]byte, 2<<20)}, rec("k", "starts preparing"))
	for range 20 {
		m.SetCapacity(m.Used() + 100)
		_, err := l.Append(p.ctx, evlog.Record{Value: make([]byte, 2<<20)})
		require.Error(t, err)
		m.SetCapacity(-1)
		want = append(want, appendEach(t, p.ctx, l, rec("k", "goes on"), rec("k", "and on"))...)
	}
	sameRecs(t, want, p.all(t))
	require.NoError(t, l.Close())
	sameRecs(t, want, p.image(t).Writer().Recs)
	p.verified(t)
}

// vanishing is a file system whose next listings have no segment, as one may
// while a roll adds the next segment and retention removes all before it.
type vanishing struct {
	vfs.FS
	mu    sync.Mutex
	empty int
}

func (f *vanishing) OpenDir(path string) (vfs.Dir, error) {
	d, err := f.FS.OpenDir(path)
	return &vanishingDir{d, f}, err
}

type vanishingDir struct {
	vfs.Dir
	f *vanishing
}

func (d *vanishingDir) Names() ([]string, error) {
	names, err := d.Dir.Names()
	d.f.mu.Lock()
	defer d.f.mu.Unlock()
	if d.f.empty > 0 {
		d.f.empty--
		names = slices.DeleteFunc(names, isLog)
	}
	return names, err
}

// A listing without any segment is looked at again before the log is said to be
// lost.
func TestReader_EmptyListingIsNoEvidence(t *testing.T) {
	im, want := logWith(t, tiny(), 30)
	m := vfs.NewMem()
	onFS(t, m).put(t, im)
	f := &vanishing{FS: m}
	p := onFS(t, f)
	next := func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.empty = 3
	}
	next()
	r := p.reader(t, nil)
	next()
	first, end, err := r.Bounds(p.ctx)
	require.NoError(t, err)
	next()
	got, err := collect(r.Records(p.ctx, first))
	require.NoError(t, err)
	sameRecs(t, want, got)
	next()
	got, err = collect(r.Backward(p.ctx, end))
	require.NoError(t, err)
	sameRecs(t, reversed(want), got)
	next()
	plan, err := r.PlanRetain(p.ctx, &evlog.RetainOptions{MaxRecords: 1})
	require.NoError(t, err)
	require.NotEmpty(t, plan.Removed)
	next()
	rep, err := evlog.Verify(p.ctx, p.dir, nil)
	require.NoError(t, err)
	require.True(t, rep.OK(), "%+v", rep.Problems)
}

// A reader that opens a log while it is being created sees either none or all
// of it: its segment comes after DURABLE, and records come soon.
func TestReader_OpensWhileTheLogIsCreated(t *testing.T) {
	im, want := logWith(t, tiny(), 5)
	m := vfs.NewMem()
	early := evtest.Image{}
	for name, b := range im {
		if !isLog(name) {
			early[name] = b
		}
	}
	onFS(t, m).put(t, early)
	finished := false
	p := onFS(t, vfs.Inject(m, func(op vfs.Op) error {
		if op.Kind == vfs.OpOpen && op.Name == "DURABLE" && !finished {
			finished = true // between the listing and the look at DURABLE
			onFS(t, m).put(t, im)
		}
		return nil
	}))
	r := p.reader(t, nil)
	require.True(t, finished)
	got, err := readAll(p.ctx, r)
	require.NoError(t, err)
	sameRecs(t, want, got)
}
