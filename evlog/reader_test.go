package evlog_test

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/evlog/evlogtest"
	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/internal/vfs"
)

// randomLog makes a closed log with holes, tiny segments and every kind of
// record.
func randomLog(t testing.TB, seed uint64, n int) (evtest.Image, []evtest.Rec) {
	t.Helper()
	p, _ := inMem(t)
	g := evtest.NewGen(seed)
	l := p.open(t, &evlog.Options{SegmentBytes: 1 + g.Rng.Int64N(2000), IndexBytes: 1 + g.Rng.Int64N(300), Sync: evlog.SyncFlush})
	var want []evtest.Rec
	next := uint64(0)
	for len(want) < n {
		r := g.Record()
		if g.Rng.IntN(6) == 0 {
			next += g.Rng.Uint64N(30)
			if g.Rng.IntN(8) == 0 {
				next += 1 << 32
			}
		}
		r.Offset = next
		next++
		require.NoError(t, l.EnqueueExact(p.ctx, r))
		want = append(want, evtest.RecOf(r))
		if g.Rng.IntN(40) == 0 {
			require.NoError(t, l.Roll(p.ctx))
		}
	}
	require.NoError(t, l.Close())
	return p.image(t), want
}

func from(recs []evtest.Rec, off uint64) []evtest.Rec {
	i := slices.IndexFunc(recs, func(r evtest.Rec) bool { return r.Offset >= off })
	if i < 0 {
		return nil
	}
	return recs[i:]
}

func reversed(recs []evtest.Rec) []evtest.Rec {
	recs = slices.Clone(recs)
	slices.Reverse(recs)
	return recs
}

// interesting offsets: around every record and every hole.
func offsetsAround(recs []evtest.Rec) []uint64 {
	set := map[uint64]bool{0: true}
	for _, r := range recs {
		set[r.Offset] = true
		set[r.Offset+1] = true
		if r.Offset > 0 {
			set[r.Offset-1] = true
		}
	}
	var all []uint64
	for off := range set {
		all = append(all, off)
	}
	slices.Sort(all)
	return all
}

// checkReader compares every kind of question with brute force over want.
func checkReader(t *testing.T, ctx context.Context, r *evlog.Reader, want []evtest.Rec, rng interface{ IntN(int) int }) {
	t.Helper()
	first, next, err := r.Bounds(ctx)
	require.NoError(t, err)
	end := uint64(0)
	if len(want) > 0 {
		require.LessOrEqual(t, first, want[0].Offset)
		end = want[len(want)-1].Offset + 1
	}
	require.Equal(t, end, next)

	offsets := offsetsAround(want)
	for _, off := range offsets {
		if len(offsets) > 120 && rng.IntN(len(offsets)) > 120 {
			continue
		}
		got, err := collect(r.Records(ctx, off))
		require.NoError(t, err, "from %d", off)
		sameRecs(t, from(want, off), got, "from %d", off)

		one, err := r.Get(ctx, off)
		if rest := from(want, off); len(rest) > 0 {
			require.NoError(t, err)
			sameRecs(t, rest[:1], []evtest.Rec{evtest.RecOf(one)}, "get %d", off)
		} else {
			require.ErrorIs(t, err, evlog.ErrNotFound)
		}

		got, err = collect(r.Backward(ctx, off))
		require.NoError(t, err)
		sameRecs(t, reversed(want[:len(want)-len(from(want, off))]), got, "backward from %d", off)
	}
	got, err := collect(r.Backward(ctx, math.MaxUint64))
	require.NoError(t, err)
	sameRecs(t, reversed(want), got, "backward from the end")

	checkTimes(t, ctx, r, want)
	checkKeys(t, ctx, r, want)
	for _, n := range []int{1, 2, 3, len(want) / 2, len(want) - 1, len(want), len(want) + 1, math.MaxInt} {
		if n < 1 || len(want) == 0 {
			continue
		}
		off, err := r.OffsetOfLast(ctx, n)
		require.NoError(t, err)
		sameRecs(t, want[max(0, len(want)-n):], from(want, off), "last %d", n)
		if n <= len(want) {
			require.Equal(t, want[len(want)-n].Offset, off, "last %d", n)
		}
	}
}

func checkTimes(t *testing.T, ctx context.Context, r *evlog.Reader, want []evtest.Rec) {
	t.Helper()
	times := map[int64]bool{0: true, -1: true, 1: true, math.MaxInt64: true, math.MinInt64: true, math.MaxInt64 - 1: true}
	for _, rec := range want {
		for d := int64(-1); d <= 1; d++ {
			times[rec.TimeMS+d] = true
		}
	}
	for ms := range times {
		off, err := r.OffsetAt(ctx, time.UnixMilli(ms))
		wantOff, ok := evtest.At(want, ms)
		if ok {
			require.NoError(t, err, "at %d ms", ms)
			require.Equal(t, wantOff, off, "at %d ms", ms)
			continue
		}
		require.ErrorIs(t, err, evlog.ErrNotFound, "at %d ms", ms)
		_, next, err := r.Bounds(ctx)
		require.NoError(t, err)
		require.Equal(t, next, off, "at %d ms: the end of the log", ms)
	}
}

func checkKeys(t *testing.T, ctx context.Context, r *evlog.Reader, want []evtest.Rec) {
	t.Helper()
	keys := map[string]bool{"not there": true}
	for _, rec := range want {
		keys[string(rec.Key)] = true
	}
	for key := range keys {
		var with []evtest.Rec
		for _, rec := range want {
			if string(rec.Key) == key {
				with = append(with, rec)
			}
		}
		got, err := collect(r.ByKey(ctx, []byte(key), want[0].Offset))
		require.NoError(t, err)
		if key == "" {
			continue // what "no key" selects is not promised
		}
		sameRecs(t, with, got, "key %q", key)
		newest, err := r.Latest(ctx, []byte(key))
		if len(with) == 0 {
			require.ErrorIs(t, err, evlog.ErrNotFound)
			continue
		}
		require.NoError(t, err)
		sameRecs(t, with[len(with)-1:], []evtest.Rec{evtest.RecOf(newest)}, "latest of %q", key)
		mid := with[len(with)/2].Offset
		got, err = collect(r.ByKey(ctx, []byte(key), mid))
		require.NoError(t, err)
		sameRecs(t, from(with, mid), got, "key %q from %d", key, mid)
	}
}

func TestReader_AnswersLikeBruteForce(t *testing.T) {
	evtest.Seeds(t, 300, func(t *testing.T, seed uint64) {
		im, want := randomLog(t, seed, 60)
		p := placeWith(t, im)
		checkReader(t, p.ctx, p.reader(t, nil), want, evtest.Rand(seed))
		p.verified(t)
	})
}

// The index of a segment that is being written, and of one that was taken up
// again.
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

// I7: derived data can be deleted or be wrong, and the answers are the same.
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
				checkReader(t, p.ctx, p.reader(t, nil), want, rng)
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

// lieInIndex moves offsets and positions of an index's first block and makes
// its checksum right again. An entry's highest time is left: nothing could tell
// that it is wrong but the whole segment.
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

func TestReader_EmptyLog(t *testing.T) {
	p, _ := inMem(t)
	l := p.open(t, nil)
	for _, r := range []*evlog.Reader{l.Reader(), p.reader(t, nil)} {
		first, next, err := r.Bounds(p.ctx)
		require.NoError(t, err)
		require.Zero(t, first)
		require.Zero(t, next)
		recs, err := collect(r.Records(p.ctx, 0))
		require.NoError(t, err)
		require.Empty(t, recs)
		recs, err = collect(r.Backward(p.ctx, math.MaxUint64))
		require.NoError(t, err)
		require.Empty(t, recs)
		_, err = r.Get(p.ctx, 0)
		require.ErrorIs(t, err, evlog.ErrNotFound)
		_, err = r.Latest(p.ctx, []byte("k"))
		require.ErrorIs(t, err, evlog.ErrNotFound)
		off, err := r.OffsetAt(p.ctx, time.UnixMilli(0))
		require.ErrorIs(t, err, evlog.ErrNotFound)
		require.Zero(t, off)
		segs, err := r.Segments(p.ctx)
		require.NoError(t, err)
		require.Len(t, segs, 1)
		require.Equal(t, evlog.SegmentActive, segs[0].State)
	}
	p.verified(t)
}

func TestReader_OffsetBeyondTheEnd(t *testing.T) {
	p, _ := inMem(t)
	l := p.open(t, tiny())
	appendEach(t, p.ctx, l, numbered(0, 20)...)
	for _, r := range []*evlog.Reader{l.Reader(), p.reader(t, nil)} {
		for _, off := range []uint64{21, 22, 1 << 40, math.MaxUint64} {
			recs, err := collect(r.Records(p.ctx, off))
			require.Empty(t, recs)
			require.ErrorIs(t, err, evlog.ErrOffsetOutOfRange, "from %d", off)
			var oe *evlog.OffsetError
			require.ErrorAs(t, err, &oe)
			require.Equal(t, evlog.OffsetError{Asked: off, First: 0, Next: 20}, *oe)
			_, err = collect(r.Follow(p.ctx, off))
			require.ErrorIs(t, err, evlog.ErrOffsetOutOfRange, "follow from %d", off)
		}
		recs, err := collect(r.Records(p.ctx, 20))
		require.NoError(t, err, "at the end is fine")
		require.Empty(t, recs)
	}
}

// What an old DURABLE hides is not beyond the log: a cursor there waits.
func TestReader_CursorBetweenDurableAndTheEndWaits(t *testing.T) {
	im, want := logWith(t, nil, 10)
	im["DURABLE"] = evtest.EncodeDurable(evtest.Durable{Next: 4, Base: 0, Pos: posOf(t, im, 4)})
	p := placeWith(t, im)
	r := p.reader(t, nil)
	for off := uint64(4); off <= 10; off++ {
		recs, err := collect(r.Records(p.ctx, off))
		require.NoError(t, err, "from %d", off)
		require.Empty(t, recs)
	}
	_, err := collect(r.Records(p.ctx, 11))
	require.ErrorIs(t, err, evlog.ErrOffsetOutOfRange)
	s, err := r.Status(p.ctx)
	require.NoError(t, err)
	require.EqualValues(t, 6, s.BeyondDurable)
	require.EqualValues(t, 4, s.Next)

	f := followInto(p, r, 7)
	l := p.open(t, nil) // publishes all of it
	require.NoError(t, l.Close())
	soon(t, "followed", func() bool {
		_, next, err := r.Bounds(p.ctx)
		return err == nil && next == 10
	})
	_ = r.Close()
	inTime(t, "ended", f.done)
	if len(f.recs) > 0 {
		sameRecs(t, want[7:7+len(f.recs)], f.recs)
	}
}

// posOf is the position of an offset's record in the segment with base 0.
func posOf(t testing.TB, im evtest.Image, off uint64) int64 {
	t.Helper()
	s := evtest.DecodeSegment(0, im[evtest.SegmentFile(0)])
	for i, r := range s.Recs {
		if r.Offset == off {
			return s.Pos[i]
		}
	}
	require.FailNow(t, "no such record")
	return 0
}

func TestReader_BeyondDurable(t *testing.T) {
	im, want := logWith(t, nil, 10)
	im["DURABLE"] = evtest.EncodeDurable(evtest.Durable{Next: 4, Base: 0, Pos: posOf(t, im, 4)})
	name := evtest.SegmentFile(0)
	im[name] = append(im[name], "garbage behind the last record"...)
	p := placeWith(t, im)
	got, err := readAll(p.ctx, p.reader(t, nil))
	require.NoError(t, err)
	sameRecs(t, want[:4], got)
	got, err = readAll(p.ctx, p.reader(t, &evlog.ReaderOptions{BeyondDurable: true}))
	require.NoError(t, err)
	sameRecs(t, want, got)
	sameImage(t, im, p.image(t), "reading changes nothing")

	delete(im, "DURABLE")
	p = placeWith(t, im)
	got, err = readAll(p.ctx, p.reader(t, &evlog.ReaderOptions{BeyondDurable: true}))
	require.NoError(t, err)
	sameRecs(t, want, got)
}

// A reader takes no lock, writes nothing, and needs no writer.
func TestReader_ChangesNothing(t *testing.T) {
	im, want := randomLog(t, 3, 60)
	m := vfs.NewMem()
	onFS(t, m).put(t, im)
	p := onFS(t, vfs.Inject(m, func(op vfs.Op) error {
		if op.Kind&(changesLog|vfs.OpLock|vfs.OpMkdir) != 0 {
			return syscall.EROFS
		}
		return nil
	}))
	before := m.Ops()
	r := p.reader(t, nil)
	checkReader(t, p.ctx, r, want, evtest.Rand(1))
	_, err := r.Segments(p.ctx)
	require.NoError(t, err)
	_, err = r.Status(p.ctx)
	require.NoError(t, err)
	p.verified(t)
	rep, err := evlog.Repair(p.ctx, p.dir, nil)
	require.NoError(t, err)
	require.False(t, rep.Executed)
	require.Equal(t, before, m.Ops())
	require.ErrorIs(t, p.refused(t, nil), syscall.EROFS)
}

// I2: nothing is seen before the sync that covers it has returned, in no
// process.
func TestReader_SeesNothingBeforeItIsDurable(t *testing.T) {
	for _, kind := range []vfs.OpKind{vfs.OpWrite, vfs.OpSyncData} {
		t.Run(kind.String(), func(t *testing.T) {
			s := newStopper(kind)
			p := onFS(t, vfs.Inject(vfs.NewMem(), s.hook))
			l := p.open(t, &evlog.Options{NoPreallocate: true})
			want := appendEach(t, p.ctx, l, numbered(0, 3)...)
			defer s.release()
			s.stop()
			waiting := goAppend(p.ctx, l, numbered(3, 2)...)
			inTime(t, "held up", s.reached)
			for _, r := range []*evlog.Reader{l.Reader(), p.reader(t, nil)} {
				got, err := readAll(p.ctx, r)
				require.NoError(t, err)
				sameRecs(t, want, got)
				_, next, err := r.Bounds(p.ctx)
				require.NoError(t, err)
				require.EqualValues(t, 3, next)
				_, err = r.Get(p.ctx, 3)
				require.ErrorIs(t, err, evlog.ErrNotFound)
			}
			p.verified(t)
			s.release()
			require.NoError(t, inTime(t, "Append", waiting).err)
			require.Len(t, p.all(t), 5)
		})
	}
}

// Everything that any reader shows is at that moment safe from power failure.
func TestReader_WhatIsSeenSurvives(t *testing.T) {
	evtest.Seeds(t, 200, func(t *testing.T, seed uint64) {
		m := vfs.NewMem()
		g := evtest.NewGen(seed)
		var mu sync.Mutex
		var broken error
		var p place
		// Look at the log before each operation that changes something.
		inspect := func(op vfs.Op) error {
			if op.Kind&changesLog == 0 || p.dir == "" {
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			q := p.on(m)
			live, err := evtest.ReadFS(m, q.dir)
			if err != nil || len(live.Bases()) == 0 {
				return nil //nolint:nilerr // the log is being created
			}
			seen := live.Reader()
			after, err := evtest.ReadFS(m.Crash(uint64(op.Seq)*31+seed), q.dir)
			if err != nil {
				broken = err
				return nil
			}
			out := after.Writer()
			if out.Err != nil {
				broken = fmt.Errorf("before %v: %w", op, out.Err)
			}
			if n := len(seen.Recs); n > len(out.Recs) || diffRecs(seen.Recs, out.Recs[:n]) != "" {
				broken = fmt.Errorf("before %v: a reader sees %d records, %d survive", op, n, len(out.Recs))
			}
			return nil
		}
		p = onFS(t, vfs.Inject(m, inspect))
		l := p.open(t, &evlog.Options{SegmentBytes: 400})
		for range 15 {
			_, err := l.Append(p.ctx, g.Batch(3)...)
			require.NoError(t, err)
		}
		require.NoError(t, l.Close())
		require.NoError(t, broken, "seed %d", seed)
	})
}

func TestReader_IteratorCanBeLeftAndTakenAgain(t *testing.T) {
	im, want := randomLog(t, 5, 50)
	p := placeWith(t, im)
	r := p.reader(t, nil)
	seq := r.Records(p.ctx, want[0].Offset)
	for n := range len(want) {
		sameRecs(t, want[:n+1], take(t, seq, n+1))
	}
}

// Slices belong to the caller until the next step; Clone keeps them.
func TestReader_SlicesAndClone(t *testing.T) {
	p, _ := inMem(t)
	l := p.open(t, tiny())
	want := appendEach(t, p.ctx, l, numbered(0, 200)...)
	var clones []evlog.Record
	for r, err := range l.Reader().Records(p.ctx, 0) {
		require.NoError(t, err)
		c := r.Clone()
		_ = append(r.Key, "overflow"...)   // must not reach the value
		_ = append(r.Value, "overflow"...) // nor the next record
		require.True(t, c.Equal(r))
		clones = append(clones, c)
	}
	require.Len(t, clones, len(want))
	for i, c := range clones {
		require.True(t, want[i].Same(evtest.RecOf(c)))
	}
}

func TestReader_ManyAtOnce(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		l := p.open(t, tiny())
		want := appendEach(t, p.ctx, l, numbered(0, 150)...)
		r := p.reader(t, nil)
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for _, r := range []*evlog.Reader{r, l.Reader()} {
					got, err := collect(r.Records(p.ctx, uint64(i*10)))
					if err != nil || diffRecs(want[i*10:], got) != "" {
						t.Errorf("%v %s", err, diffRecs(want[i*10:], got))
					}
					if _, err := r.Get(p.ctx, uint64(i)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
	})
}

func TestReader_EndIsPinnedAtTheStart(t *testing.T) {
	p, _ := inMem(t)
	l := p.open(t, tiny())
	want := appendEach(t, p.ctx, l, numbered(0, 30)...)
	var got []evtest.Rec
	for r, err := range p.reader(t, nil).Records(p.ctx, 0) {
		require.NoError(t, err)
		got = append(got, evtest.RecOf(r))
		_, err := l.Append(p.ctx, rec("k", "never ends otherwise"))
		require.NoError(t, err)
	}
	sameRecs(t, want, got)
}

func TestReader_CloseEndsIterators(t *testing.T) {
	p, _ := inMem(t)
	l := p.open(t, nil)
	appendEach(t, p.ctx, l, numbered(0, 3)...)
	r := p.reader(t, nil)
	f := followInto(p, r, 0)
	require.NoError(t, r.Close())
	require.ErrorIs(t, inTime(t, "the follower", f.done), evlog.ErrClosed)
	_, err := collect(r.Records(p.ctx, 0))
	require.ErrorIs(t, err, evlog.ErrClosed)
	_, _, err = r.Bounds(p.ctx)
	require.ErrorIs(t, err, evlog.ErrClosed)
	_, err = r.Get(p.ctx, 0)
	require.ErrorIs(t, err, evlog.ErrClosed)
	_, err = r.Status(p.ctx)
	require.ErrorIs(t, err, evlog.ErrClosed)
	require.NoError(t, r.Close())
	require.Len(t, p.all(t), 3, "the log goes on")
}

func TestReader_ContextEnds(t *testing.T) {
	im, _ := randomLog(t, 8, 500)
	p := placeWith(t, im)
	r := p.reader(t, nil)
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	n := 0
	var last error
	for _, err := range r.Records(ctx, 0) {
		if err != nil {
			last = err
			continue
		}
		n++
		if n == 5 {
			cancel()
		}
	}
	require.ErrorIs(t, last, context.Canceled)
	require.Less(t, n, 500)
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
			Base: 0, End: 10, Records: 3, Holes: 7, Tombstones: 1, Bytes: size, FileBytes: size,
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

// FORMAT.md, Readers: a damaged or missing DURABLE is looked at again for 100
// ms; it may be in the middle of being written.
func TestReader_DamagedDurable(t *testing.T) {
	good, want := logWith(t, &evlog.Options{SegmentBytes: 300}, 20)
	bases := good.Bases()
	active := bases[len(bases)-1]
	flip := bytes.Clone(good["DURABLE"])
	flip[9] ^= 1
	for _, c := range []struct {
		name    string
		durable []byte
	}{
		{"missing", nil},
		{"empty", []byte{}},
		{"short", good["DURABLE"][:31]},
		{"long", append(bytes.Clone(good["DURABLE"]), 0)},
		{"bit flipped", flip},
		{"zeros", make([]byte, 32)},
	} {
		t.Run(c.name, func(t *testing.T) {
			im := good.Clone()
			im["DURABLE"] = c.durable
			if c.durable == nil {
				delete(im, "DURABLE")
			}
			p := placeWith(t, im)
			clock := evlogtest.NewClock(time.UnixMilli(0))
			// The open itself may have to look, too: let time pass meanwhile.
			stop := keepAdvancing(clock)
			defer stop()
			r := p.reader(t, &evlog.ReaderOptions{Clock: clock})
			got, err := readAll(p.ctx, r)
			require.NoError(t, err)
			require.GreaterOrEqual(t, clock.Elapsed(), 100*time.Millisecond)
			// The durable end is the active segment's base.
			sameRecs(t, want[:active], got)
			s, err := r.Status(p.ctx)
			require.NoError(t, err)
			require.Error(t, s.DurableErr)
			require.EqualValues(t, 20-active, s.BeyondDurable)
			require.Equal(t, active, s.Next)
			sameImage(t, im, p.image(t))

			// It looks again before it delivers more.
			im["DURABLE"] = good["DURABLE"]
			p.put(t, im)
			got, err = readAll(p.ctx, r)
			require.NoError(t, err)
			sameRecs(t, want, got)

			// A writer trusts nothing of A, and publishes all of it.
			im["DURABLE"] = c.durable
			if c.durable == nil {
				delete(im, "DURABLE")
			}
			q := placeWith(t, im)
			l := q.open(t, nil)
			sameRecs(t, want, q.all(t))
			require.NoError(t, l.Close())
			q.verified(t)
		})
	}
}

// keepAdvancing lets time pass until the returned function is called.
func keepAdvancing(clock *evlogtest.Clock) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-quit:
				return
			case <-time.After(time.Millisecond):
				clock.Advance(10 * time.Millisecond)
			}
		}
	}()
	return func() { close(quit); <-done }
}

// A torn read of DURABLE beside a writer is not the end of the log.
func TestReader_DurableIsReadAgain(t *testing.T) {
	im, want := logWith(t, nil, 5)
	var mu sync.Mutex
	reads := 0
	m := vfs.NewMem()
	onFS(t, m).put(t, im)
	bad := im.Clone() // deep
	bad["DURABLE"][20] ^= 4
	p := onFS(t, m)
	p.put(t, bad)
	p = p.on(vfs.Inject(m, func(op vfs.Op) error {
		if op.Kind == vfs.OpRead && op.Name == "DURABLE" {
			mu.Lock()
			defer mu.Unlock()
			if reads++; reads == 3 {
				return im.WriteFS(m, p.dir)
			}
		}
		return nil
	}))
	clock := evlogtest.NewClock(time.UnixMilli(0))
	defer keepAdvancing(clock)()
	got, err := readAll(p.ctx, p.reader(t, &evlog.ReaderOptions{Clock: clock}))
	require.NoError(t, err)
	sameRecs(t, want, got)
}
