package evlog_test

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
)

func TestReader_AnswersLikeBruteForce(t *testing.T) {
	evtest.Seeds(t, 300, func(t *testing.T, seed uint64) {
		im, want := randomLog(t, seed, 60)
		p := placeWith(t, im)
		checkReader(t, p.ctx, p.reader(t, nil), want, evtest.Rand(seed))
		p.verified(t)
	})
}

func TestReader_OfALiveLogAnswersLikeBruteForce(t *testing.T) {
	evtest.Seeds(t, 200, func(t *testing.T, seed uint64) {
		p, _ := inMem(t)
		g := evtest.NewGen(seed)
		var want []evtest.Rec
		for range 3 {
			l := p.open(t, &evlog.Options{SegmentBytes: 1500, IndexBytes: 1 + g.Rng.Int64N(300)})
			for range 6 {
				batch := g.Batch(4)
				first, err := l.Append(p.ctx, batch...)
				require.NoError(t, err)
				want = append(want, recsAt(first, batch...)...)
			}
			checkReader(t, p.ctx, l.Reader(), want, g.Rng)
			checkReader(t, p.ctx, p.reader(t, nil), want, g.Rng)
			require.NoError(t, l.Close())
		}
	})
}

func TestReader_AnyIndexGivesTheSameAnswers(t *testing.T) {
	spoil := map[string]func(im evtest.Image, rng interface{ IntN(int) int }){
		"deleted": func(im evtest.Image, _ interface{ IntN(int) int }) {
			eachIndex(im, func(name string) { delete(im, name) })
		},
		"some deleted": func(im evtest.Image, rng interface{ IntN(int) int }) {
			eachIndex(im, func(name string) {
				if rng.IntN(2) == 0 {
					delete(im, name)
				}
			})
		},
		"empty": func(im evtest.Image, _ interface{ IntN(int) int }) {
			eachIndex(im, func(name string) { im[name] = nil })
		},
		"cut": func(im evtest.Image, rng interface{ IntN(int) int }) {
			eachIndex(im, func(name string) { im[name] = im[name][:rng.IntN(len(im[name]))] })
		},
		"bits flipped": func(im evtest.Image, rng interface{ IntN(int) int }) {
			eachIndex(im, func(name string) { im[name][rng.IntN(len(im[name]))] ^= 1 << rng.IntN(8) })
		},
		"zeros": func(im evtest.Image, _ interface{ IntN(int) int }) {
			eachIndex(im, func(name string) { clear(im[name]) })
		},
		"swapped": func(im evtest.Image, _ interface{ IntN(int) int }) {
			var names []string
			eachIndex(im, func(name string) { names = append(names, name) })
			for i := 1; i < len(names); i += 2 {
				im[names[i]], im[names[i-1]] = im[names[i-1]], im[names[i]]
			}
		},
		"garbage": func(im evtest.Image, rng interface{ IntN(int) int }) {
			eachIndex(im, func(name string) {
				for i := range im[name] {
					im[name][i] = byte(rng.IntN(256))
				}
			})
		},
		"entries that lie, with good checksums": func(im evtest.Image, rng interface{ IntN(int) int }) {
			eachIndex(im, func(name string) { lieInIndex(im[name], rng) })
		},
		"without a log": func(im evtest.Image, _ interface{ IntN(int) int }) {
			im[evtest.IndexFile(77777777)] = []byte("EVI1")
		},
	}
	for name, f := range spoil {
		t.Run(name, func(t *testing.T) {
			evtest.Seeds(t, 100, func(t *testing.T, seed uint64) {
				im, want := randomLog(t, seed, 40)
				rng := evtest.Rand(seed)
				f(im, rng)
				p := placeWith(t, im)
				r := p.reader(t, nil)
				checkReader(t, p.ctx, r, want, rng)
				p.lets(t, r)
				sameImage(t, im, p.image(t), "a reader changes nothing")
				rep := p.verified(t)
				require.EqualValues(t, len(want), rep.Records)

				// A writer puts them right, on request at the latest.
				l := p.open(t, nil)
				checkReader(t, p.ctx, l.Reader(), want, rng)
				_, err := l.Reindex(p.ctx, nil)
				require.NoError(t, err)
				require.NoError(t, l.Close())
				rep = p.verified(t)
				for _, s := range rep.Segments {
					require.True(t, s.Indexed || s.State == evlog.SegmentActive, "%+v", s)
				}
				checkReader(t, p.ctx, p.reader(t, nil), want, rng)
			})
		})
	}
}

func eachIndex(im evtest.Image, f func(name string)) {
	var names []string
	for name := range im {
		if strings.HasSuffix(name, ".idx") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		f(name)
	}
}

func lieInIndex(b []byte, rng interface{ IntN(int) int }) {
	const header = 160
	if len(b) < header+8+24 {
		return
	}
	block := b[header:]
	n := int(block[4]) | int(block[5])<<8
	size := min(8+24*n, len(block))
	if n >= 170 {
		size = min(4096, len(block))
	}
	for range 3 {
		e := block[8+24*rng.IntN(n):]
		e[rng.IntN(16)] ^= 1 << rng.IntN(8)
	}
	if rng.IntN(4) == 0 {
		block[4], block[5] = byte(rng.IntN(n)), 0 // and about how many there are
	}
	evtest.PutCRC(block[:4], block[4:size])
}

func TestReader_TimesOfEveryKind(t *testing.T) {
	for _, c := range []struct {
		name  string
		times []int64
	}{
		{"all zero", []int64{0, 0, 0, 0, 0, 0, 0, 0}},
		{"minus one", []int64{-1, -1, -1, -1, -1, -1}},
		{"highest", []int64{1, 2, math.MaxInt64, 3, 4, math.MaxInt64, 5}},
		{"lowest", []int64{math.MinInt64, 5, math.MinInt64, 6, 7, math.MinInt64}},
		{"shuffled", []int64{500, 100, 400, 100, 300, 200, 600, 50, 601, 0, -5, 602}},
		{"rising", []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}},
		{"falling", []int64{12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1}},
	} {
		for _, opts := range []evlog.Options{{}, {SegmentBytes: 70, IndexBytes: 1}, {SegmentBytes: 100, IndexBytes: 50}, {IndexBytes: 1}} {
			t.Run(fmt.Sprintf("%s/segment=%d/index=%d", c.name, opts.SegmentBytes, opts.IndexBytes), func(t *testing.T) {
				p, _ := inMem(t)
				l := p.open(t, &opts)
				var records []evlog.Record
				for i, ms := range c.times {
					records = append(records, evlog.Record{Time: evtest.Time(ms), Key: []byte("k"), Value: fmt.Append(nil, i)})
				}
				want := appendEach(t, p.ctx, l, records...)
				checkTimes(t, p.ctx, l.Reader(), want)
				checkTimes(t, p.ctx, p.reader(t, nil), want)
				require.NoError(t, l.Close())
				checkTimes(t, p.ctx, p.reader(t, nil), want)
				im := p.image(t)
				eachIndex(im, func(name string) { delete(im, name) })
				q := placeWith(t, im)
				checkTimes(t, q.ctx, q.reader(t, nil), want)
			})
		}
	}
}

func TestReader_SegmentsDescribesEach(t *testing.T) {
	p, _ := inMem(t)
	l := p.open(t, &evlog.Options{SegmentBytes: 1 << 20})
	at := func(off uint64, ms int64, key, value string) evlog.Record {
		return evlog.Record{Offset: off, Time: time.UnixMilli(ms), Key: []byte(key), Value: []byte(value)}
	}
	recs := []evlog.Record{at(3, 500, "a", "x"), at(4, 100, "a", ""), at(9, 300, "", "")}
	require.NoError(t, l.AppendExact(p.ctx, recs...))
	require.NoError(t, l.Roll(p.ctx))
	require.NoError(t, l.AppendExact(p.ctx, at(20, 7, "b", "y")))
	var size int64
	for _, r := range recs {
		size += r.Size()
	}
	soon(t, "indexed in the background", func() bool { return len(p.image(t)[evtest.IndexFile(0)]) > 0 })
	for _, r := range []*evlog.Reader{l.Reader(), p.reader(t, nil)} {
		segs, err := r.Segments(p.ctx)
		require.NoError(t, err)
		require.Len(t, segs, 2)
		s := segs[0]
		require.NotZero(t, s.Closed)
		s.Closed, s.Indexed = time.Time{}, false
		require.Equal(t, evlog.SegmentInfo{
			Base: 0, End: 10, Records: 3, Holes: 7, Tombstones: 1, Bytes: size, FileBytes: size, DirtyBytes: size,
			Oldest: time.UnixMilli(100).UTC(), Newest: time.UnixMilli(500).UTC(), State: evlog.SegmentClosed,
		}, s)
		s = segs[1]
		require.Equal(t, evlog.SegmentActive, s.State)
		require.EqualValues(t, 10, s.Base)
		require.EqualValues(t, 21, s.End)
		require.EqualValues(t, 1, s.Records)
		require.EqualValues(t, 10, s.Holes)
		require.Zero(t, s.Closed)
	}
}

func TestReader_IndexWithManyBlocks(t *testing.T) {
	p, _ := inMem(t)
	l := p.open(t, &evlog.Options{IndexBytes: 1, Sync: evlog.SyncFlush, SegmentBytes: 1 << 30})
	const n = 20_000
	rng := evtest.Rand(1)
	batch := make([]evlog.Record, 0, 1000)
	for i := range n {
		batch = append(batch, evlog.Record{Time: time.UnixMilli(int64(i * 3)), Value: []byte{byte(i)}})
		if len(batch) == cap(batch) {
			_, err := l.Enqueue(p.ctx, batch...)
			require.NoError(t, err)
			batch = batch[:0]
		}
	}
	require.NoError(t, l.Flush(p.ctx))
	check := func(r *evlog.Reader) {
		for range 300 {
			off := rng.Uint64N(n)
			got, err := r.Get(p.ctx, off)
			require.NoError(t, err)
			require.Equal(t, off, got.Offset)
			require.Equal(t, []byte{byte(off)}, got.Value)
			at, err := r.OffsetAt(p.ctx, time.UnixMilli(int64(off*3)))
			require.NoError(t, err)
			require.Equal(t, off, at)
			at, err = r.OffsetAt(p.ctx, time.UnixMilli(int64(off*3)-1))
			require.NoError(t, err)
			require.Equal(t, off, at)
		}
	}
	check(l.Reader())
	check(p.reader(t, nil))
	require.NoError(t, l.Close())
	check(p.reader(t, nil))
	l = p.open(t, nil) // the index is taken up again
	_, err := l.Append(p.ctx, evlog.Record{Time: time.UnixMilli(n * 3), Value: []byte{n & 255}})
	require.NoError(t, err)
	check(l.Reader())
	require.NoError(t, l.Roll(p.ctx))
	check(l.Reader())
	check(p.reader(t, nil))
}

func TestReader_LargeRecordsAmongSmall(t *testing.T) {
	p := onDisk(t)
	l := p.open(t, &evlog.Options{IndexBytes: 500, SegmentBytes: 5 << 20})
	var records []evlog.Record
	for i := range 60 {
		size := []int{0, 10, 300, 5000, 70_000, 256 << 10, 1 << 20, 1<<20 + 1, 2 << 20}[i%9]
		records = append(records, evlog.Record{Time: time.UnixMilli(int64(i)), Key: fmt.Appendf(nil, "k%d", i%4), Value: bytes.Repeat([]byte{byte(i)}, size)})
	}
	first, err := l.Append(p.ctx, records...)
	require.NoError(t, err)
	want := recsAt(first, records...)
	sameRecs(t, want, p.all(t))
	got, err := collect(l.Reader().Backward(p.ctx, 60))
	require.NoError(t, err)
	sameRecs(t, reversed(want), got)
	for i := range want {
		r, err := l.Reader().Get(p.ctx, uint64(i))
		require.NoError(t, err)
		sameRecs(t, want[i:i+1], []evtest.Rec{evtest.RecOf(r)})
	}
}

func TestReader_IndexOfWhatTheSegmentWasBefore(t *testing.T) {
	p, _ := inMem(t)
	l := p.open(t, &evlog.Options{IndexBytes: 50})
	want := appendEach(t, p.ctx, l, numbered(0, 10)...)
	require.NoError(t, l.Close())
	before := p.image(t)[evtest.IndexFile(0)]
	l = p.open(t, nil)
	want = append(want, appendEach(t, p.ctx, l, numbered(10, 10)...)...)
	require.NoError(t, l.Roll(p.ctx))
	want = append(want, appendEach(t, p.ctx, l, numbered(20, 5)...)...)
	require.NoError(t, l.Close())
	im := p.image(t)
	im[evtest.IndexFile(0)] = before
	p = placeWith(t, im)
	checkReader(t, p.ctx, p.reader(t, nil), want, evtest.Rand(1))
	l = p.open(t, nil)
	checkReader(t, p.ctx, l.Reader(), want, evtest.Rand(1))
	require.NoError(t, l.Close())
	require.NotEqual(t, before, p.image(t)[evtest.IndexFile(0)], "rebuilt by the writer")
	p.verified(t)
}
