package evlog_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/internal/vfs"
)

// builder puts a log together byte by byte, with the second implementation's
// encoder.
type builder struct {
	im evtest.Image
}

const builtID = "0b5e7a52-6a7f-4c55-9d6b-2d1f3a1c9e01"

func build() *builder {
	return &builder{im: evtest.Image{
		"log.json": []byte(`{"format":1,"id":"` + builtID + `","created_ms":1700000000000,"config":{}}` + "\n"),
		"LOCK":     []byte("\n"),
	}}
}

// small is the n-th record of every built log.
func small(off uint64) evtest.Rec {
	return evtest.Rec{
		Offset: off, TimeMS: 1_700_000_000_000 + int64(off), Schema: 1,
		Key: fmt.Appendf(nil, "k%d", off%3), Value: fmt.Appendf(nil, "value %d", off),
	}
}

func smalls(offs ...uint64) []evtest.Rec {
	recs := make([]evtest.Rec, len(offs))
	for i, off := range offs {
		recs[i] = small(off)
	}
	return recs
}

func upTo(from, to uint64) []uint64 {
	var offs []uint64
	for ; from < to; from++ {
		offs = append(offs, from)
	}
	return offs
}

// segment adds a segment with small records at these offsets.
func (b *builder) segment(base uint64, offs ...uint64) *builder {
	b.im[evtest.SegmentFile(base)] = evtest.EncodeRecs(smalls(offs...)...)
	return b
}

// tail appends bytes to a segment.
func (b *builder) tail(base uint64, bytes ...byte) *builder {
	name := evtest.SegmentFile(base)
	b.im[name] = append(b.im[name], bytes...)
	return b
}

// durable writes DURABLE for a position behind the record next-1.
func (b *builder) durable(next, base uint64) *builder {
	s := evtest.DecodeSegment(base, b.im[evtest.SegmentFile(base)])
	var pos int64
	for i, r := range s.Recs {
		if r.Offset < next {
			pos = s.Pos[i] + r.Size()
		}
	}
	return b.durableAt(evtest.Durable{Next: next, Base: base, Pos: pos})
}

func (b *builder) durableAt(d evtest.Durable) *builder {
	b.im["DURABLE"] = evtest.EncodeDurable(d)
	return b
}

func (b *builder) file(name string, content []byte) *builder {
	b.im[name] = content
	return b
}

// FORMAT.md, "Opening for writing", case by case.
func TestOpen_Cases(t *testing.T) {
	torn := evtest.EncodeRec(small(5))[:20]
	for _, c := range []struct {
		name     string
		b        *builder
		want     []uint64 // offsets readable after opening
		wantNext uint64
		wantErr  bool   // ErrCorrupt, nothing changed
		errFile  string // where it points
		errPos   int64
	}{
		{"clean, without index", build().segment(0, upTo(0, 5)...).durable(5, 0), upTo(0, 5), 5, false, "", 0},
		{"DURABLE behind the records", build().segment(0, upTo(0, 5)...).durable(2, 0), upTo(0, 5), 5, false, "", 0},
		{"DURABLE at the start", build().segment(0, upTo(0, 5)...).durable(0, 0), upTo(0, 5), 5, false, "", 0},
		{"DURABLE missing", build().segment(0, upTo(0, 5)...), upTo(0, 5), 5, false, "", 0},
		{"DURABLE damaged", build().segment(0, upTo(0, 5)...).file("DURABLE", []byte("garbage")), upTo(0, 5), 5, false, "", 0},
		{"DURABLE of a former segment, next = A", build().segment(0, upTo(0, 5)...).segment(5, upTo(5, 9)...).durable(5, 0), upTo(0, 9), 9, false, "", 0},
		{"DURABLE of a former segment, next < A", build().segment(0, upTo(0, 5)...).segment(5, upTo(5, 9)...).durable(3, 0), upTo(0, 9), 9, false, "", 0},
		{"DURABLE of a segment long gone", build().segment(5, upTo(5, 9)...).durableAt(evtest.Durable{Next: 3, Base: 0, Pos: 100}), upTo(5, 9), 9, false, "", 0},
		{"DURABLE of a former segment, next > A", build().segment(0, upTo(0, 5)...).segment(5, upTo(5, 9)...).durableAt(evtest.Durable{Next: 7, Base: 0, Pos: 300}), nil, 0, true, "DURABLE", -1},
		{"DURABLE names a later segment", build().segment(0, upTo(0, 5)...).durableAt(evtest.Durable{Next: 5, Base: 5}), nil, 0, true, evtest.SegmentFile(5), 0},
		{"durable records missing", build().segment(0, upTo(0, 5)...).durableAt(evtest.Durable{Next: 6, Base: 0, Pos: 230}), nil, 0, true, evtest.SegmentFile(0), int64(len(evtest.EncodeRecs(smalls(upTo(0, 5)...)...)))},
		{"durable records torn", build().segment(0, upTo(0, 5)...).tail(0, torn...).durableAt(evtest.Durable{Next: 6, Base: 0, Pos: 230}), nil, 0, true, evtest.SegmentFile(0), int64(len(evtest.EncodeRecs(smalls(upTo(0, 5)...)...)))},
		{"torn tail", build().segment(0, upTo(0, 5)...).tail(0, torn...).durable(5, 0), upTo(0, 5), 5, false, "", 0},
		{"zeros behind the end", build().segment(0, upTo(0, 5)...).tail(0, make([]byte, 5000)...).durable(5, 0), upTo(0, 5), 5, false, "", 0},
		{"only zeros", build().segment(0).tail(0, make([]byte, 4096)...).durable(0, 0), nil, 0, false, "", 0},
		{"garbage alone", build().segment(0).tail(0, []byte("garbage, more than a header of it")...).durable(0, 0), nil, 0, false, "", 0},
		{"empty active segment after a roll", build().segment(0, upTo(0, 5)...).segment(5).durable(5, 5), upTo(0, 5), 5, false, "", 0},
		{"empty active segment that DURABLE does not know", build().segment(0, upTo(0, 5)...).segment(5).durable(5, 0), upTo(0, 5), 5, false, "", 0},
		{"torn active segment that DURABLE does not know", build().segment(0, upTo(0, 5)...).segment(5).tail(5, torn...).durable(5, 0), upTo(0, 5), 5, false, "", 0},
		{"empty active segment above a hole", build().segment(0, upTo(0, 5)...).segment(1000).durable(1000, 1000), upTo(0, 5), 1000, false, "", 0},
		{"no segment, DURABLE says there were", build().durableAt(evtest.Durable{Next: 5, Base: 0, Pos: 200}), nil, 0, true, "", -1},
		{"no segment, a consumer has read", build().durableAt(evtest.Durable{}).file("consumers.json", []byte(`{"version":1,"log_id":"`+builtID+`","consumers":{"a":{"next_offset":3,"updated_ms":1}}}`)), nil, 0, true, "", -1},
		{"no segment, consumers at 0", build().durableAt(evtest.Durable{}).file("consumers.json", []byte(`{"version":1,"log_id":"`+builtID+`","consumers":{"a":{"next_offset":0,"updated_ms":1}}}`)), nil, 0, false, "", 0},
		{"creation stopped before DURABLE", build(), nil, 0, false, "", 0},
		{"creation stopped before the segment", build().durableAt(evtest.Durable{}), nil, 0, false, "", 0},
		{"creation stopped before log.json", &builder{im: evtest.Image{"LOCK": []byte("\n")}}, nil, 0, false, "", 0},
		{"never held a record", build().segment(0).durable(0, 0), nil, 0, false, "", 0},
		{"holes", build().segment(0, 3, 4, 900).segment(901, 1<<40).durable(1<<40+1, 901), []uint64{3, 4, 900, 1 << 40}, 1<<40 + 1, false, "", 0},
		{"big base", build().segment(1_000_000_000_000, 1_000_000_000_000, 1_000_000_000_005).durable(1_000_000_000_006, 1_000_000_000_000), []uint64{1_000_000_000_000, 1_000_000_000_005}, 1_000_000_000_006, false, "", 0},
		{"overlap after a merge", build().segment(0, upTo(0, 10)...).segment(5, upTo(5, 10)...).segment(10, 10, 11).durable(12, 10), upTo(0, 12), 12, false, "", 0},
		{"overlap, the first one was compacted", build().segment(0, 2, 8, 9).segment(5, upTo(5, 10)...).segment(10, 10).durable(11, 10), []uint64{2, 8, 9, 10}, 11, false, "", 0},
		{"the first record of a segment was removed", build().segment(0, 3, 4).segment(5, 8, 9).segment(10, 10).durable(11, 10), []uint64{3, 4, 8, 9, 10}, 11, false, "", 0},
		{"offset below the base ends the prefix", build().segment(5, 5, 6).tail(5, evtest.EncodeRec(small(4))...).durable(7, 5), []uint64{5, 6}, 7, false, "", 0},
		{"offset given twice ends the prefix", build().segment(0, 0, 1, 2).tail(0, evtest.EncodeRec(small(2))...).durable(3, 0), []uint64{0, 1, 2}, 3, false, "", 0},
		{"others' names", build().segment(0, 0, 1).durable(2, 0).file("README", []byte("x")).file("0.log", []byte("x")).file("00000000000000000009.log.bak", []byte{}).file("backup.tmp.old", nil), []uint64{0, 1}, 2, false, "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			im := c.b.im
			out := im.Writer()
			require.Equal(t, c.wantErr, out.Err != nil, "second implementation: %v", out.Err)
			p := placeWith(t, im)
			if c.wantErr {
				err := p.refused(t, nil)
				require.ErrorIs(t, err, evlog.ErrCorrupt)
				if c.errFile != "" {
					corruptAt(t, err, c.errFile, c.errPos)
				}
				sameImage(t, withoutLock(im), withoutLock(p.image(t)), "nothing is cut")
				return
			}
			for round := range 3 { // opening again and again is stable
				l := p.open(t, nil)
				require.Equal(t, c.wantNext, l.Stats().NextOffset)
				require.Equal(t, c.wantNext, l.Stats().DurableNext)
				got, err := readAll(p.ctx, l.Reader())
				require.NoError(t, err)
				sameRecs(t, smalls(c.want...), got, "round %d", round)
				sameRecs(t, smalls(c.want...), p.all(t))
				if round == 0 {
					sameRecs(t, out.Recs, got, "second implementation")
				}
				require.NoError(t, l.Close())
				p.verified(t)
			}
			l := p.open(t, nil)
			if _, ok := im["log.json"]; ok {
				require.Equal(t, builtID, l.ID(), "a valid log.json is kept")
			}
			off, err := l.Append(p.ctx, rec("k", "next"))
			require.NoError(t, err)
			require.Equal(t, c.wantNext, off)
			require.NoError(t, l.Close())
			sameRecs(t, append(smalls(c.want...), recsAt(off, rec("k", "next"))...), p.all(t))
			p.verified(t)
			for name, b := range im { // names of others stay
				if name == "README" || strings.HasPrefix(name, "0.log") || strings.Contains(name, "bak") {
					require.Equal(t, b, p.image(t)[name])
				}
			}
		})
	}
}

// What a reader without a writer sees of the same directories.
func TestReader_OfUnrecoveredLogs(t *testing.T) {
	damaged := evtest.EncodeRec(small(2))
	damaged[30] ^= 1
	for _, c := range []struct {
		name    string
		b       *builder
		want    []uint64
		wantErr bool
		errFile string
	}{
		{"torn tail", build().segment(0, upTo(0, 5)...).tail(0, 1, 2, 3).durable(5, 0), upTo(0, 5), false, ""},
		{"DURABLE behind", build().segment(0, upTo(0, 5)...).durable(2, 0), upTo(0, 2), false, ""},
		{"DURABLE of the segment before", build().segment(0, upTo(0, 5)...).segment(5, upTo(5, 9)...).durable(5, 0), upTo(0, 5), false, ""},
		{"DURABLE two segments back", build().segment(0, upTo(0, 3)...).segment(3, 3, 4).segment(5, upTo(5, 9)...).durable(2, 0), upTo(0, 2), false, ""},
		{"durable records missing", build().segment(0, upTo(0, 5)...).durableAt(evtest.Durable{Next: 8, Base: 0, Pos: 400}), upTo(0, 5), true, evtest.SegmentFile(0)},
		{"damage in a closed segment", build().segment(0, 0, 1).tail(0, damaged...).segment(3, 3, 4).durable(5, 3), upTo(0, 2), true, evtest.SegmentFile(0)},
		{"zeros behind a closed segment", build().segment(0, 0, 1).tail(0, make([]byte, 64)...).segment(3, 3).durable(4, 3), upTo(0, 2), true, evtest.SegmentFile(0)},
		{"zeros behind a closed segment that lacks nothing", build().segment(0, 0, 1).tail(0, make([]byte, 64)...).segment(2, 2).durable(3, 2), upTo(0, 3), false, ""},
		{"a closed segment cut short", build().segment(0, 0, 1).tail(0, damaged[:10]...).segment(3, 3).durable(4, 3), upTo(0, 2), true, evtest.SegmentFile(0)},
		{"overlap", build().segment(0, upTo(0, 10)...).segment(5, upTo(5, 10)...).segment(10, 10).durable(11, 10), upTo(0, 11), false, ""},
		{"big base", build().segment(1<<40, 1<<40).durable(1<<40+1, 1<<40), []uint64{1 << 40}, false, ""},
		{"an empty segment in the middle", build().segment(0, 0, 1).segment(2).segment(7, 7).durable(8, 7), []uint64{0, 1, 7}, false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			im := c.b.im
			out := im.Reader()
			sameRecs(t, smalls(c.want...), out.Recs, "second implementation")
			require.Equal(t, c.wantErr, out.Err != nil, "second implementation: %v", out.Err)
			p := placeWith(t, im)
			got, err := readAll(p.ctx, p.reader(t, nil))
			sameRecs(t, smalls(c.want...), got, "what comes before the damage")
			if !c.wantErr {
				require.NoError(t, err)
				if !strings.HasPrefix(c.name, "zeros") { // verify finds them
					p.verified(t)
				}
			} else {
				corruptAt(t, err, c.errFile, -1)
				rep, err := evlog.Verify(p.ctx, p.dir, nil)
				require.NoError(t, err)
				require.False(t, rep.OK())
				require.Contains(t, rep.Problems[0].Path, c.errFile)
			}
			sameImage(t, im, p.image(t))
		})
	}
}

// A torn tail with a valid record behind the damage is kept aside.
func TestOpen_KeepsWhatFollowsTheDamage(t *testing.T) {
	hole := make([]byte, 100)
	im := build().segment(0, 0, 1).tail(0, hole...).tail(0, evtest.EncodeRecs(small(5), small(6))...).durable(2, 0).im
	end := evtest.DecodeSegment(0, im[evtest.SegmentFile(0)]).End
	cut := bytes.Clone(im[evtest.SegmentFile(0)][end:])
	torn := func(n int) string { return fmt.Sprintf("%020d.%d.%d.torn", 0, end, n) }

	t.Run("saved once", func(t *testing.T) {
		p := placeWith(t, im)
		l := p.open(t, nil)
		require.EqualValues(t, 2, l.Stats().NextOffset, "the damage is the end, whatever follows (I4)")
		require.NoError(t, l.Close())
		require.Equal(t, cut, p.image(t)[torn(0)])
		require.Len(t, p.image(t)[evtest.SegmentFile(0)], int(end))

		// The same damage again needs no second copy, another one does.
		p.put(t, evtest.Image{evtest.SegmentFile(0): im[evtest.SegmentFile(0)], "DURABLE": im["DURABLE"]})
		require.NoError(t, p.open(t, nil).Close())
		require.NotContains(t, p.image(t), torn(1))
		other := append(bytes.Clone(im[evtest.SegmentFile(0)]), evtest.EncodeRec(small(7))...)
		p.put(t, evtest.Image{evtest.SegmentFile(0): other, "DURABLE": im["DURABLE"]})
		require.NoError(t, p.open(t, nil).Close())
		require.Equal(t, cut, p.image(t)[torn(0)])
		require.Equal(t, other[end:], p.image(t)[torn(1)])
		p.verified(t)
	})
	t.Run("nothing follows, nothing is kept", func(t *testing.T) {
		im := build().segment(0, 0, 1).tail(0, evtest.EncodeRec(small(2))[:30]...).durable(2, 0).im
		p := placeWith(t, im)
		require.NoError(t, p.open(t, nil).Close())
		for name := range p.image(t) {
			require.NotContains(t, name, ".torn")
		}
	})
	t.Run("saved before it is cut", func(t *testing.T) {
		m := vfs.NewMem()
		onFS(t, m).put(t, im)
		trace := vfs.NewTrace(changesLog)
		p := onFS(t, vfs.Inject(m, nil).After(trace.Record))
		p.open(t, nil)
		inOrder(t, trace.Strings(),
			fmt.Sprintf("write %s.tmp [0,%d)", torn(0), len(cut)),
			"sync "+torn(0)+".tmp",
			"rename "+torn(0)+".tmp -> "+torn(0),
			"dirsync",
			fmt.Sprintf("truncate %s %d", evtest.SegmentFile(0), end),
			"sync "+evtest.SegmentFile(0),
			"write DURABLE [0,32)")
	})
	for _, kind := range []vfs.OpKind{vfs.OpCreate, vfs.OpWrite, vfs.OpSync, vfs.OpRename} {
		t.Run("cannot be saved: "+kind.String(), func(t *testing.T) {
			m := vfs.NewMem()
			onFS(t, m).put(t, im)
			p := onFS(t, vfs.Inject(m, vfs.FailFrom(kind, "*.torn*", 1, syscall.ENOSPC)))
			require.ErrorIs(t, p.refused(t, nil), syscall.ENOSPC)
			q := p.on(m)
			after := withoutLock(q.image(t))
			require.Equal(t, im[evtest.SegmentFile(0)], after[evtest.SegmentFile(0)], "nothing is cut")
			require.NoError(t, q.open(t, nil).Close())
			require.Equal(t, cut, q.image(t)[torn(0)])
		})
	}
}

// What lies beyond the durable position is in the page cache at best: it is
// written again and synced before anything is published. (I5)
func TestOpen_RewritesBeforeItPublishes(t *testing.T) {
	size := small(0).Size()
	seg := evtest.SegmentFile(0)
	for _, c := range []struct {
		name string
		b    *builder
		from int64
	}{
		{"DURABLE behind", build().segment(0, upTo(0, 5)...).durable(2, 0), 2 * size},
		{"DURABLE missing", build().segment(0, upTo(0, 5)...), 0},
		{"DURABLE damaged", build().segment(0, upTo(0, 5)...).file("DURABLE", make([]byte, 32)), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := vfs.NewMem()
			onFS(t, m).put(t, c.b.im)
			trace := vfs.NewTrace(vfs.OpWrite | vfs.OpAnySync | vfs.OpRename)
			p := onFS(t, vfs.Inject(m, nil).After(trace.Record))
			p.open(t, nil)
			ops := trace.Strings()
			published := slices.IndexFunc(ops, func(s string) bool { return strings.Contains(s, "DURABLE") })
			require.Positive(t, published)
			inOrder(t, ops[:published], "dirsync", "syncparent") // names in the page cache are no evidence
			inOrder(t, ops[:published],
				fmt.Sprintf("write %s [%d,%d)", seg, c.from, 5*size),
				"sync "+seg)
			require.NotContains(t, strings.Join(ops, "\n"), fmt.Sprintf("write %s [0,%d)", seg, 5*size+1))
		})
	}
	t.Run("segment of a roll that was not published", func(t *testing.T) {
		m := vfs.NewMem()
		onFS(t, m).put(t, build().segment(0, 0, 1).segment(2).durable(2, 0).im)
		trace := vfs.NewTrace(changesLog)
		p := onFS(t, vfs.Inject(m, nil).After(trace.Record))
		p.open(t, nil)
		name := evtest.SegmentFile(2)
		inOrder(t, trace.Strings(), "rename "+name+".tmp -> "+name, "dirsync", "write DURABLE [0,32)")
		require.NotContains(t, trace.Strings(), "remove "+name, "the name is never gone: see renewSegment")
	})
}

// The names of an empty active segment after a failed directory sync are only
// in the page cache.
func TestOpen_AfterAFailedDirectorySyncAtARoll(t *testing.T) {
	p, m := inMem(t)
	l := p.open(t, nil)
	want := appendEach(t, p.ctx, l, numbered(0, 3)...)
	m.FailSync(vfs.OpDirSync, "", 1, syscall.EIO)
	require.ErrorIs(t, l.Roll(p.ctx), evlog.ErrPoisoned)
	_ = l.Close()

	l = p.open(t, nil)
	want = append(want, appendEach(t, p.ctx, l, numbered(3, 3)...)...)
	q := onFS(t, m.SyncedImage())
	sameRecs(t, want, q.image(t).Writer().Recs, "the new segment's name was never made durable")
	require.NoError(t, l.Close())
}

// The same at creation: names that a failed sync lost are made again.
func TestOpen_AfterAFailedSyncAtCreation(t *testing.T) {
	for n := 1; ; n++ {
		m := vfs.NewMem()
		p := onFS(t, m)
		require.NoError(t, m.MkdirAll(p.dir, 0o700))
		m.FailSync(vfs.OpAnySync, notAbove, n, syscall.EIO)
		l, err := evlog.Open(p.ctx, p.dir, nil)
		if err == nil {
			_ = l.Close() // the sync that fails may be one of closing now
			require.Greater(t, n, 3)
			return
		}
		require.ErrorIs(t, err, syscall.EIO)
		l = p.open(t, nil)
		want := appendEach(t, p.ctx, l, numbered(0, 3)...)
		q := onFS(t, m.SyncedImage())
		out := q.image(t).Writer()
		require.NoError(t, out.Err)
		sameRecs(t, want, out.Recs, "sync %d of creation failed, and what came after was not durable", n)
		require.NoError(t, l.Close())
	}
}

// Recovery itself can fail at every operation, and the next one is right.
func TestOpen_FailsAtEveryOperationAndThenWorks(t *testing.T) {
	im := build().segment(0, upTo(0, 5)...).segment(5, 5, 6, 7).tail(5, make([]byte, 40)...).tail(5, evtest.EncodeRec(small(9))...).
		durable(6, 5).file("left.tmp", []byte("x")).im
	want := smalls(upTo(0, 8)...)
	for n := 1; ; n++ {
		m := vfs.NewMem()
		q := onFS(t, m)
		q.put(t, im)
		var met atomic.Bool
		fail := vfs.FailNth(vfs.OpAny&^vfs.OpClose, "", n, syscall.EIO)
		var s switchable
		s.set(func(op vfs.Op) error {
			err := fail(op)
			if err != nil {
				met.Store(true)
			}
			return err
		})
		p := q.on(vfs.Inject(m, s.run))
		l, err := evlog.Open(p.ctx, p.dir, nil)
		s.set(nil)
		if !met.Load() {
			require.NoError(t, err)
			require.NoError(t, l.Close())
			require.Greater(t, n, 20)
			return
		}
		if err == nil {
			_ = l.Close()
		} else {
			require.ErrorIs(t, err, syscall.EIO, "operation %d", n)
			require.NotErrorIs(t, err, evlog.ErrCorrupt, "an I/O error is no damage")
			require.NotErrorIs(t, err, evlog.ErrNoLog)
		}
		l = q.open(t, nil)
		got, err := readAll(q.ctx, l.Reader())
		require.NoError(t, err)
		sameRecs(t, want, got, "operation %d", n)
		require.NoError(t, l.Close())
		q.verified(t)
	}
}

// A reader meets an I/O error at every operation: an error, never fewer
// records.
func TestReader_FailsAtEveryOperation(t *testing.T) {
	im, want := randomLog(t, 11, 40)
	for n := 1; ; n++ {
		m := vfs.NewMem()
		onFS(t, m).put(t, im)
		var met bool
		fail := vfs.FailNth(vfs.OpAny&^vfs.OpClose, "", n, syscall.EIO)
		p := onFS(t, vfs.Inject(m, func(op vfs.Op) error {
			err := fail(op)
			met = met || err != nil
			return err
		}))
		r, err := evlog.OpenReader(p.ctx, p.dir, nil)
		var got []evtest.Rec
		if err == nil {
			got, err = readAll(p.ctx, r)
			_ = r.Close()
		}
		if err == nil {
			sameRecs(t, want, got, "operation %d", n)
		} else {
			require.ErrorIs(t, err, syscall.EIO, "operation %d", n)
			require.NotErrorIs(t, err, evlog.ErrCorrupt)
			sameRecs(t, want[:len(got)], got)
		}
		if !met {
			require.Greater(t, n, 10)
			return
		}
	}
}

func TestOpen_RemovesTempsAndLeavesOthers(t *testing.T) {
	im := build().segment(0, 0).durable(1, 0).im
	for _, name := range []string{"log.json.tmp", "DURABLE.tmp", "x.tmp", "00000000000000000000.idx.tmp", "00000000000000000000.log.tmp", "consumers.json.tmp"} {
		im[name] = []byte("unfinished")
	}
	im["keep.txt"] = []byte("x")
	im["00000000000000000000.9.0.torn"] = []byte("kept")
	p := placeWith(t, im)
	require.Len(t, p.all(t), 1, "a reader ignores them")
	sameImage(t, im, p.image(t))
	p.open(t, nil)
	var names []string
	for name := range p.image(t) {
		names = append(names, name)
		require.False(t, strings.HasSuffix(name, ".tmp"), name)
	}
	require.Contains(t, names, "keep.txt")
	require.Contains(t, names, "00000000000000000000.9.0.torn")
}

// Torn at every byte of the last records; opened; appended to; opened twice.
func TestOpen_CutAtEveryByte(t *testing.T) {
	im, want := logWith(t, nil, 6)
	name := evtest.SegmentFile(0)
	whole := im[name]
	durablePos := int64(0)
	for i := range 3 {
		durablePos += evtest.DecodeSegment(0, whole).Recs[i].Size()
	}
	im["DURABLE"] = evtest.EncodeDurable(evtest.Durable{Next: 3, Base: 0, Pos: durablePos})
	for cut := durablePos; cut <= int64(len(whole)); cut++ {
		for _, filler := range [][]byte{nil, make([]byte, 10), bytes.Repeat([]byte{0xff}, 30)} {
			torn := im.Clone()
			torn[name] = append(bytes.Clone(whole[:cut]), filler...)
			out := torn.Writer()
			require.NoError(t, out.Err)
			p := placeWith(t, torn)
			l := p.open(t, nil)
			got, err := readAll(p.ctx, l.Reader())
			require.NoError(t, err)
			sameRecs(t, out.Recs, got, "cut at %d", cut)
			sameRecs(t, want[:len(got)], got)
			off, err := l.Append(p.ctx, rec("k", "acknowledged"))
			require.NoError(t, err)
			require.EqualValues(t, len(got), off)
			all := append(got, recsAt(off, rec("k", "acknowledged"))...)
			require.NoError(t, l.Close())
			for range 2 {
				l = p.open(t, &evlog.Options{Verify: evlog.VerifyAll})
				got, err = readAll(p.ctx, l.Reader())
				require.NoError(t, err)
				sameRecs(t, all, got, "cut at %d", cut)
				require.NoError(t, l.Close())
			}
			p.verified(t)
		}
	}
}

func TestOpen_VerifyAllFailsClosed(t *testing.T) {
	im := build().segment(0, 0, 1).segment(2, 2, 3).segment(4, 4).durable(5, 4).im
	im[evtest.SegmentFile(2)][30] ^= 1
	p := placeWith(t, im)
	err := p.refused(t, &evlog.Options{Verify: evlog.VerifyAll})
	corruptAt(t, err, evtest.SegmentFile(2), 0)
	l := p.open(t, nil)
	off, err := l.Append(p.ctx, rec("k", "v"))
	require.NoError(t, err, "damage in a closed segment does not stop the writer")
	require.EqualValues(t, 5, off)
	got, err := readAll(p.ctx, l.Reader())
	corruptAt(t, err, evtest.SegmentFile(2), 0)
	sameRecs(t, smalls(0, 1), got, "nothing is skipped silently")
	got, err = collect(l.Reader().Records(p.ctx, 4))
	require.NoError(t, err)
	require.Len(t, got, 2, "behind it all can be read")
}

// A segment that is missing in the middle is known from the index before it.
func TestReader_MissingSegment(t *testing.T) {
	im, want := logWith(t, &evlog.Options{SegmentBytes: 150}, 16)
	bases := im.Bases()
	require.Greater(t, len(bases), 3)
	gone := bases[1]
	delete(im, evtest.SegmentFile(gone))
	delete(im, evtest.IndexFile(gone))
	p := placeWith(t, im)
	got, err := readAll(p.ctx, p.reader(t, nil))
	require.ErrorIs(t, err, evlog.ErrCorrupt)
	var c *evlog.CorruptError
	require.ErrorAs(t, err, &c)
	require.Equal(t, gone, c.Offset)
	sameRecs(t, want[:gone], got)
	rep, err := evlog.Verify(p.ctx, p.dir, nil)
	require.NoError(t, err)
	require.False(t, rep.OK())
	require.Equal(t, gone, rep.Problems[0].Offset)
	require.ErrorIs(t, p.refused(t, &evlog.Options{Verify: evlog.VerifyAll}), evlog.ErrCorrupt)

	// A gap that repair left is no damage.
	meta := strings.Replace(string(im["log.json"]), `"config"`, fmt.Sprintf(`"gaps":[[%d,%d]],"config"`, gone, bases[2]), 1)
	im["log.json"] = []byte(meta)
	p = placeWith(t, im)
	got, err = readAll(p.ctx, p.reader(t, nil))
	require.NoError(t, err)
	sameRecs(t, append(slices.Clone(want[:gone]), want[bases[2]:]...), got)
	p.verified(t)
	require.Equal(t, []evlog.OffsetRange{{From: gone, To: bases[2]}}, status(t, p).Gaps)
}

func TestOpen_UnreadableSegmentIsNoGap(t *testing.T) {
	im, want := logWith(t, &evlog.Options{SegmentBytes: 150}, 12)
	bases := im.Bases()
	m := vfs.NewMem()
	onFS(t, m).put(t, im)
	name := evtest.SegmentFile(bases[1])
	p := onFS(t, vfs.Inject(m, vfs.FailFrom(vfs.OpOpen, name, 1, &fs.PathError{Op: "open", Path: name, Err: syscall.EACCES})))
	got, err := readAll(p.ctx, p.reader(t, nil))
	require.ErrorIs(t, err, syscall.EACCES)
	require.Contains(t, err.Error(), name)
	sameRecs(t, want[:bases[1]], got)
}

// An older DURABLE never takes an acknowledged record away, whatever it says.
func TestOpen_AnyOlderDurable(t *testing.T) {
	im, want := logWith(t, &evlog.Options{SegmentBytes: 200}, 15)
	for _, s := range im.Segments() {
		for i := 0; i <= len(s.Recs); i++ {
			d := evtest.Durable{Base: s.Base, Next: s.Base}
			if i > 0 {
				d.Next, d.Pos = s.Recs[i-1].Offset+1, s.Pos[i-1]+s.Recs[i-1].Size()
			}
			old := im.Clone()
			old["DURABLE"] = evtest.EncodeDurable(d)
			p := placeWith(t, old)
			sameRecs(t, want[:d.Next], p.all(t), "a reader sees less for a while")
			l := p.open(t, nil)
			sameRecs(t, want, p.all(t))
			require.NoError(t, l.Close())
			p.verified(t)
		}
	}
}

func TestOpen_DiskIsFull(t *testing.T) {
	im := build().segment(0, upTo(0, 5)...).tail(0, 1, 2, 3, 4).durable(3, 0).im
	p, m := inMem(t)
	p.put(t, im)
	before := slices.Sorted(maps.Keys(p.image(t)))
	m.SetCapacity(m.Used())
	l, err := evlog.Open(p.ctx, p.dir, nil)
	if err == nil {
		sameRecs(t, smalls(upTo(0, 5)...), p.all(t))
		_, err = l.Append(p.ctx, numbered(0, 1000)...)
		require.ErrorIs(t, err, syscall.ENOSPC)
		_ = l.Close()
	} else {
		require.ErrorIs(t, err, syscall.ENOSPC)
	}
	for name := range p.image(t) {
		if !slices.Contains(before, name) {
			require.False(t, strings.HasSuffix(name, ".tmp"), "left behind: %s", name)
		}
	}
	m.SetCapacity(-1)
	l = p.open(t, nil)
	sameRecs(t, smalls(upTo(0, 5)...), p.all(t))
	_, err = l.Append(p.ctx, rec("k", "v"))
	require.NoError(t, err)
}

// Nobody gets an error that only says something about the wrong thing.
func TestOpen_IOErrorsAreNotCorruption(t *testing.T) {
	im := build().segment(0, upTo(0, 5)...).durable(5, 0).im
	for _, kind := range []vfs.OpKind{vfs.OpOpen, vfs.OpRead, vfs.OpStat, vfs.OpList} {
		m := vfs.NewMem()
		onFS(t, m).put(t, im)
		nth := map[bool]int{true: 1, false: 2}[kind == vfs.OpList] // opening lists once
		p := onFS(t, vfs.Inject(m, vfs.FailFrom(kind, "", nth, syscall.EIO)))
		err := p.refused(t, nil)
		require.ErrorIs(t, err, syscall.EIO, kind.String())
		require.False(t, errors.Is(err, evlog.ErrCorrupt) || errors.Is(err, evlog.ErrNoLog), "%v: %v", kind, err)
	}
}

// The reader went round in circles: the segment that DURABLE names is missing,
// and the last one that is there holds nothing.
func TestReader_ActiveSegmentMissingAndTheOneBeforeEmpty(t *testing.T) {
	p := placeWith(t, build().segment(0, upTo(0, 4)...).segment(4).durableAt(evtest.Durable{Next: 7, Base: 61, Pos: 111}).im)
	r := p.reader(t, nil)
	done := make(chan error, 1)
	go func() {
		_, err := collect(r.Records(p.ctx, 0))
		done <- err
	}()
	require.ErrorIs(t, inTime(t, "Records", done), evlog.ErrCorrupt)
	_, err := collect(r.Backward(p.ctx, 7))
	require.ErrorIs(t, err, evlog.ErrCorrupt)
	rep, err := evlog.Verify(p.ctx, p.dir, nil)
	require.NoError(t, err)
	require.False(t, rep.OK())
}
