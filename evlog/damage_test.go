package evlog_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
)

// threeSegments is a small closed log of three segments.
func threeSegments(t testing.TB) (evtest.Image, []evtest.Rec) {
	t.Helper()
	p, _ := inMem(t)
	l := p.open(t, &evlog.Options{SegmentBytes: 1 << 20, IndexBytes: 60})
	var want []evtest.Rec
	for i := range 3 {
		want = append(want, appendEach(t, p.ctx, l, numbered(i*4, 4)...)...)
		if i < 2 {
			require.NoError(t, l.Roll(p.ctx))
		}
	}
	require.NoError(t, l.Close())
	im := p.image(t)
	delete(im, "LOCK")
	return im, want
}

// judge opens a damaged image in every way. Whatever the damage: right records
// only, in order, and if some are missing then an explicit error that says
// where, or (a reader alone, by DURABLE's rules) records that are only hidden.
//
// What FORMAT.md by the letter cannot tell from a compacted log is not held
// against the code, but it is reported: a closed segment that was cut exactly
// between two records, or that was exchanged for another one.
func judge(t *testing.T, im evtest.Image, want []evtest.Rec, what string) (undetectable bool) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { undetectable = judgeNow(t, im, want, what) })
	return undetectable
}

// judgeNow runs where time costs nothing: whoever waits for DURABLE waits 100 ms.
func judgeNow(t *testing.T, im evtest.Image, want []evtest.Rec, what string) (undetectable bool) {
	t.Helper()
	p := placeWith(t, im)
	if ref := im.Writer(); ref.Err == nil && len(ref.Recs) < len(want) {
		undetectable = true
		var kept []evtest.Rec
		for _, w := range want {
			if slices.ContainsFunc(ref.Recs, w.Same) {
				kept = append(kept, w)
			}
		}
		sameRecs(t, kept, ref.Recs, what)
		want = kept
	}

	// A reader without a writer.
	hidden := false
	r, err := evlog.OpenReader(p.ctx, p.dir, nil)
	if err == nil {
		var got []evtest.Rec
		got, err = readAll(p.ctx, r)
		prefixOf(t, want, got, what)
		if err == nil && len(got) < len(want) {
			// Allowed only where the reader says so: beyond a DURABLE that is lost.
			s, serr := r.Status(p.ctx)
			require.NoError(t, serr, what)
			require.True(t, s.DurableErr != nil || s.BeyondDurable > 0, "%s: %d of %d records, and no word about it", what, len(got), len(want))
			hidden = true
		}
		_ = r.Close()
	}
	if err != nil {
		explains(t, err, what)
	}
	sameImage(t, im, p.image(t), "%s: a reader changed something", what)

	// Verify.
	rep, verr := evlog.Verify(p.ctx, p.dir, nil)
	switch {
	case verr != nil:
		explains(t, verr, what)
	case rep.OK():
		require.NoError(t, err, "%s: verify finds nothing, the reader does", what)
		// Neighbours that overlap are both counted.
		require.True(t, hidden || rep.Records >= uint64(len(want)), "%s: verify counts %d of %d", what, rep.Records, len(want))
	default:
		for _, problem := range rep.Problems {
			require.Error(t, problem.Err, what)
			require.NotEmpty(t, problem.Path, what)
		}
	}

	// A writer.
	l, oerr := evlog.Open(p.ctx, p.dir, nil)
	if oerr != nil {
		explains(t, oerr, what)
		sameImage(t, withoutLock(im), withoutLock(p.image(t)), "%s: refused, and changed something", what)
		return undetectable
	}
	got, rerr := readAll(p.ctx, l.Reader())
	prefixOf(t, want, got, what)
	if rerr == nil {
		// I1: opening lost nothing without a word.
		require.Len(t, got, len(want), "%s: acknowledged records are gone without an error", what)
	} else {
		explains(t, rerr, what)
		require.True(t, verr != nil || !rep.OK(), "%s: the reader finds %v, verify nothing", what, rerr)
	}
	require.EqualValues(t, want[len(want)-1].Offset+1, l.Stats().NextOffset, "%s: offsets would be given out again", what)
	// Behind the damage all can be read.
	tail, terr := collect(l.Reader().Records(p.ctx, want[len(want)-4].Offset))
	if terr == nil {
		sameRecs(t, want[len(want)-4:], tail, what)
	} else {
		explains(t, terr, what)
	}
	require.NoError(t, l.Close(), what)
	return undetectable
}

// prefixOf asserts that nothing wrong was delivered: what came is how it
// begins.
func prefixOf(t *testing.T, want, got []evtest.Rec, what string) {
	t.Helper()
	require.LessOrEqual(t, len(got), len(want), what)
	if diff := diffRecs(want[:len(got)], got); diff != "" {
		require.Fail(t, diff, what)
	}
}

// explains asserts that an error is of a kind that tells a user what happened.
func explains(t *testing.T, err error, what string) {
	t.Helper()
	var c *evlog.CorruptError
	switch {
	case errors.As(err, &c):
		require.ErrorIs(t, err, evlog.ErrCorrupt, what)
		require.NotEmpty(t, c.Path, what)
		require.Error(t, c.Err, what)
	case errors.Is(err, evlog.ErrVersion):
	case errors.Is(err, evlog.ErrNoLog):
		require.Fail(t, "acknowledged records, and \"no log here\"", "%s: %v", what, err)
	default:
		require.Fail(t, "neither a place nor a kind", "%s: %v", what, err)
	}
}

// Every file of a small log cut at every byte.
func TestDamage_EveryTruncation(t *testing.T) {
	im, want := threeSegments(t)
	for _, name := range slices.Sorted(maps.Keys(im)) {
		t.Run(name, func(t *testing.T) {
			for n := range len(im[name]) {
				bad := im.Clone()
				bad[name] = bad[name][:n]
				if judge(t, bad, want, fmt.Sprintf("%s cut at byte %d of %d", name, n, len(im[name]))) {
					require.Contains(t, closedBoundaries(im, name), int64(n), "undetectable")
				}
			}
			bad := im.Clone()
			delete(bad, name)
			judge(t, bad, want, name+" removed")
		})
	}
}

// closedBoundaries are the positions between records of a closed segment.
func closedBoundaries(im evtest.Image, name string) []int64 {
	segs := im.Segments()
	for _, s := range segs[:len(segs)-1] {
		if s.Name == name {
			return s.Pos
		}
	}
	return nil
}

// Every bit of every file flipped. By default one bit a byte, a different one
// in each run.
func TestDamage_EveryBitFlip(t *testing.T) {
	im, want := threeSegments(t)
	bits := evtest.Count(800)
	first := int(time.Now().UnixNano() / 1000 % 8)
	for _, name := range slices.Sorted(maps.Keys(im)) {
		t.Run(name, func(t *testing.T) {
			for i := range im[name] {
				for bit := first + i; bit < first+i+min(8, max(1, bits/100)); bit++ {
					bad := im.Clone()
					bad[name][i] ^= 1 << (bit % 8)
					require.False(t, judge(t, bad, want, fmt.Sprintf("%s byte %d bit %d", name, i, bit%8)))
				}
			}
		})
	}
}

// A run of zeros, as a lost sector leaves it, anywhere.
func TestDamage_ZeroedRanges(t *testing.T) {
	im, want := threeSegments(t)
	for _, name := range slices.Sorted(maps.Keys(im)) {
		step := max(1, len(im[name])/30)
		for from := 0; from < len(im[name]); from += step {
			bad := im.Clone()
			clear(bad[name][from:min(len(bad[name]), from+37)])
			require.False(t, judge(t, bad, want, fmt.Sprintf("%s zeroed from byte %d", name, from)))
		}
	}
}

// Bytes behind the end of every file.
func TestDamage_Appended(t *testing.T) {
	im, want := threeSegments(t)
	stray := evtest.EncodeRec(evtest.Rec{Offset: 2, Value: []byte("from elsewhere")})
	for _, name := range slices.Sorted(maps.Keys(im)) {
		for _, more := range [][]byte{{0}, make([]byte, 100), bytes.Repeat([]byte{0xff}, 64), stray} {
			bad := im.Clone()
			bad[name] = append(bad[name], more...)
			judge(t, bad, want, fmt.Sprintf("%s and %d bytes behind it", name, len(more)))
		}
	}
}

// Files exchanged or duplicated, as a careless restore does it.
func TestDamage_FilesMixedUp(t *testing.T) {
	im, want := threeSegments(t)
	names := slices.Sorted(maps.Keys(im))
	for _, a := range names {
		for _, b := range names {
			if a == b {
				continue
			}
			bad := im.Clone()
			bad[a] = bytes.Clone(im[b])
			judge(t, bad, want, fmt.Sprintf("%s holds a copy of %s", a, b))
		}
	}
}

// Damage in a closed segment does not keep the rest from working.
func TestDamage_ClosedSegmentLeavesTheRestAlone(t *testing.T) {
	im, want := threeSegments(t)
	bases := im.Bases()
	im[evtest.SegmentFile(bases[1])][30] ^= 1
	p := placeWith(t, im)
	l := p.open(t, nil)
	got, err := readAll(p.ctx, l.Reader())
	c := corruptAt(t, err, evtest.SegmentFile(bases[1]), 0)
	require.Equal(t, bases[1], c.Offset)
	sameRecs(t, want[:4], got)
	want = append(want, appendEach(t, p.ctx, l, numbered(12, 4)...)...)
	require.NoError(t, l.Roll(p.ctx))
	got, err = collect(l.Reader().Records(p.ctx, bases[2]))
	require.NoError(t, err)
	sameRecs(t, want[bases[2]:], got)
	got, err = collect(l.Reader().Backward(p.ctx, bases[2]))
	require.ErrorIs(t, err, evlog.ErrCorrupt, "newest first, it comes to the damage from behind")
	sameRecs(t, reversed(want[bases[1]:bases[2]])[:len(got)], got)
	before := bytes.Clone(im[evtest.SegmentFile(bases[1])])
	_, err = l.Reindex(p.ctx, nil)
	if err != nil {
		require.ErrorIs(t, err, evlog.ErrCorrupt)
	}
	require.Equal(t, before, p.image(t)[evtest.SegmentFile(bases[1])], "evidence is left as it is")

	rep, err := evlog.Verify(p.ctx, p.dir, nil)
	require.NoError(t, err)
	require.False(t, rep.OK())
	var fatal []evlog.Problem
	for _, problem := range rep.Problems {
		if problem.Fatal {
			fatal = append(fatal, problem)
		}
	}
	require.Len(t, fatal, 1)
	require.True(t, strings.HasSuffix(fatal[0].Path, evtest.SegmentFile(bases[1])))
	require.EqualValues(t, 0, fatal[0].Pos)
	require.EqualValues(t, bases[1], fatal[0].Offset)
	require.EqualValues(t, len(before), fatal[0].LostBytes)
	require.EqualValues(t, 4, fatal[0].LostOffsets)
	for _, s := range rep.Segments {
		require.Equal(t, s.Base == bases[1], s.State == evlog.SegmentDamaged, "%+v", s)
		if s.State == evlog.SegmentDamaged {
			require.Error(t, s.Err)
		}
	}
	only, err := evlog.Verify(p.ctx, p.dir, &evlog.VerifyOptions{Segments: []uint64{bases[0], bases[2]}})
	require.NoError(t, err)
	require.True(t, only.OK())
}

// Repair of every kind of damage: what can be kept is kept, nothing cut is
// destroyed, no offset comes back. (I3, I4)
func TestRepair_KeepsWhatItCan(t *testing.T) {
	evtest.Seeds(t, 1000, func(t *testing.T, seed uint64) {
		im, want := threeSegments(t)
		rng := evtest.Rand(seed)
		var what []string
		for range 1 + rng.IntN(2) {
			names := slices.Sorted(maps.Keys(im))
			name := names[rng.IntN(len(names))]
			if len(im[name]) == 0 {
				continue
			}
			switch at := rng.IntN(len(im[name])); rng.IntN(4) {
			case 0:
				im[name] = im[name][:at]
				what = append(what, fmt.Sprintf("%s cut at %d", name, at))
			case 1:
				delete(im, name)
				what = append(what, name+" removed")
			case 2:
				clear(im[name][at:])
				what = append(what, fmt.Sprintf("%s zeros from %d", name, at))
			default:
				im[name][at] ^= 1 << rng.IntN(8)
				what = append(what, fmt.Sprintf("%s byte %d flipped", name, at))
			}
		}
		synctest.Test(t, func(t *testing.T) {
			repairAndCheck(t, im, want, fmt.Sprintf("seed %d: %v", seed, what))
		})
	})
}

func repairAndCheck(t *testing.T, im evtest.Image, want []evtest.Rec, what string) {
	t.Helper()
	p := placeWith(t, im)
	dry, err := evlog.Repair(p.ctx, p.dir, nil)
	if err != nil {
		require.ErrorIs(t, err, evlog.ErrVersion, what)
		return
	}
	require.False(t, dry.Executed, what)
	sameImage(t, im, p.image(t), "%s: a dry run changed something", what)
	rep, err := evlog.Repair(p.ctx, p.dir, &evlog.RepairOptions{Execute: true})
	require.NoError(t, err, what)
	require.True(t, rep.Executed, what)
	require.Equal(t, dry.Next, rep.Next, "%s: the dry run said otherwise", what)
	require.Len(t, rep.Steps, len(dry.Steps), what)
	for _, s := range rep.Steps {
		if s.SavedAs != "" {
			require.Len(t, p.image(t)[s.SavedAs], int(s.Cut), what)
		}
	}
	p.verified(t)
	l := p.open(t, &evlog.Options{Verify: evlog.VerifyAll})
	got, err := readAll(p.ctx, l.Reader())
	require.NoError(t, err, what)
	// Every valid record in front of damage is still there.
	byOffset := map[uint64]evtest.Rec{}
	for _, r := range want {
		byOffset[r.Offset] = r
	}
	there := map[uint64]bool{}
	for _, r := range got {
		w, ok := byOffset[r.Offset]
		require.True(t, ok && w.Same(r), "%s: %v was never appended", what, r)
		there[r.Offset] = true
	}
	for _, s := range im.Segments() {
		for _, r := range s.Recs {
			if w, ok := byOffset[r.Offset]; ok && w.Same(r) {
				require.True(t, there[r.Offset], "%s: %v was intact and is gone", what, r)
			}
		}
	}
	off, err := l.Append(p.ctx, rec("k", "after the repair"))
	require.NoError(t, err, what)
	require.Equal(t, rep.Next, off, what)
	if knowsNext(im) {
		require.GreaterOrEqual(t, off, uint64(len(want)), "%s: an offset comes back", what)
	}
	require.NoError(t, l.Close(), what)
	again, err := evlog.Repair(p.ctx, p.dir, &evlog.RepairOptions{Execute: true})
	require.NoError(t, err, what)
	require.Empty(t, again.Steps, "%s: nothing is left to repair", what)
}

// knowsNext reports whether what is left of an image still tells how many
// offsets were given out: DURABLE does, and so do bytes that must be cut.
func knowsNext(im evtest.Image) bool {
	_, err := im.Durable()
	return err == nil
}
