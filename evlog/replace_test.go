package evlog_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
)

// What maintenance does to segments, done by hand and by FORMAT.md's steps,
// under a reader that stands anywhere. (I6)
type surgery struct {
	name string
	// cut does it to the directory, and says how.
	cut func(t *testing.T, p place, im evtest.Image)
	// removes tells that records go that a reader may still be due.
	removes bool
}

// replaceFile is temp, sync, rename, sync directory.
func replaceFile(t *testing.T, p place, name string, b []byte) {
	t.Helper()
	require.NoError(t, (evtest.Image{name + ".tmp": b}).WriteFS(p.fsys, p.dir))
	d, err := p.fsys.OpenDir(p.dir)
	require.NoError(t, err)
	defer d.Close()
	require.NoError(t, d.Rename(name+".tmp", name))
	require.NoError(t, d.Sync())
}

func removeFile(t *testing.T, p place, name string) {
	t.Helper()
	d, err := p.fsys.OpenDir(p.dir)
	require.NoError(t, err)
	defer d.Close()
	require.NoError(t, d.Remove(name))
	require.NoError(t, d.Sync())
}

// kept is a segment with every second record of another.
func kept(s evtest.Segment) []evtest.Rec {
	var recs []evtest.Rec
	for i, r := range s.Recs {
		if i%2 == 1 {
			recs = append(recs, r)
		}
	}
	return recs
}

func surgeries() []surgery {
	return []surgery{
		{"a segment is compacted", func(t *testing.T, p place, im evtest.Image) {
			s := im.Segments()[1]
			replaceFile(t, p, s.Name, evtest.EncodeRecs(kept(s)...))
		}, true},
		{"a segment is compacted to nothing", func(t *testing.T, p place, im evtest.Image) {
			replaceFile(t, p, im.Segments()[1].Name, nil)
		}, true},
		{"a segment is written again as it was", func(t *testing.T, p place, im evtest.Image) {
			s := im.Segments()[2]
			replaceFile(t, p, s.Name, im[s.Name])
		}, false},
		{"two segments are merged", func(t *testing.T, p place, im evtest.Image) {
			a, b := im.Segments()[1], im.Segments()[2]
			replaceFile(t, p, a.Name, append(slices.Clone(im[a.Name]), im[b.Name]...))
			removeFile(t, p, b.Name)
		}, false},
		{"a merge is interrupted", func(t *testing.T, p place, im evtest.Image) {
			a, b := im.Segments()[1], im.Segments()[2]
			replaceFile(t, p, a.Name, append(slices.Clone(im[a.Name]), im[b.Name]...))
		}, false},
		{"three segments are compacted and merged", func(t *testing.T, p place, im evtest.Image) {
			segs := im.Segments()
			recs := append(append(kept(segs[0]), kept(segs[1])...), kept(segs[2])...)
			replaceFile(t, p, segs[0].Name, evtest.EncodeRecs(recs...))
			removeFile(t, p, segs[1].Name)
			removeFile(t, p, segs[2].Name)
		}, true},
		{"the oldest segments expire", func(t *testing.T, p place, im evtest.Image) {
			removeFile(t, p, im.Segments()[0].Name)
			removeFile(t, p, im.Segments()[1].Name)
		}, true},
		{"all closed segments expire", func(t *testing.T, p place, im evtest.Image) {
			segs := im.Segments()
			for _, s := range segs[:len(segs)-1] {
				removeFile(t, p, s.Name)
			}
		}, true},
		{"the indexes are deleted", func(t *testing.T, p place, im evtest.Image) {
			eachIndex(im, func(name string) { removeFile(t, p, name) })
		}, false},
	}
}

func TestReader_SegmentsChangeUnderIt(t *testing.T) {
	im, want := logWith(t, &evlog.Options{SegmentBytes: 230, IndexBytes: 50}, 30)
	require.Greater(t, len(im.Bases()), 4)
	for _, s := range surgeries() {
		t.Run(s.name, func(t *testing.T) {
			for at := range len(want) {
				p := placeWith(t, im)
				r := p.reader(t, nil)
				var got []evtest.Rec
				var failed error
				for rec, err := range r.Records(p.ctx, 0) {
					if err != nil {
						failed = err
						break
					}
					got = append(got, evtest.RecOf(rec))
					if len(got) == at+1 {
						s.cut(t, p, im)
					}
				}
				checkSurgery(t, p, s, want, got, at, failed)
				// A cursor that is taken up again stands on an offset.
				checkCursor(t, p, r, want, got[at].Offset+1, s, at)
			}
		})
	}
}

func checkSurgery(t *testing.T, p place, s surgery, want, got []evtest.Rec, at int, failed error) {
	t.Helper()
	what := fmt.Sprintf("%s after record %d", s.name, at)
	after := p.image(t)
	if failed != nil {
		var oe *evlog.OffsetError
		require.ErrorAs(t, failed, &oe, what)
		require.True(t, s.removes, "%s: %v", what, failed)
		require.Equal(t, after.Bases()[0], oe.First, what)
		require.Greater(t, oe.First, got[len(got)-1].Offset, what)
		return
	}
	inOrderAndRight(t, want, got, what)
	// What is there at the end, and was not passed before, was delivered.
	due := from(after.Reader().Recs, got[at].Offset+1)
	holds(t, got, due, what)
	if !s.removes {
		sameRecs(t, want, got, what)
	}
}

func checkCursor(t *testing.T, p place, r *evlog.Reader, want []evtest.Rec, next uint64, s surgery, at int) {
	t.Helper()
	what := fmt.Sprintf("%s after record %d, taken up again at %d", s.name, at, next)
	for _, r := range []*evlog.Reader{r, p.reader(t, nil)} {
		got, err := collect(r.Records(p.ctx, next))
		im := p.image(t)
		if first := im.Bases()[0]; next < first {
			var oe *evlog.OffsetError
			require.ErrorAs(t, err, &oe, what)
			require.Equal(t, first, oe.First, what)
			got, err = collect(r.Records(p.ctx, oe.First)) // it may choose to go on there
			next = oe.First
		}
		require.NoError(t, err, what)
		inOrderAndRight(t, want, got, what)
		sameRecs(t, from(im.Reader().Recs, next), got, what)
	}
}

// inOrderAndRight asserts that offsets rise and every record is the one that
// was appended.
func inOrderAndRight(t *testing.T, want, got []evtest.Rec, what string) {
	t.Helper()
	for i, r := range got {
		require.True(t, i == 0 || r.Offset > got[i-1].Offset, "%s: %d after %d", what, r.Offset, got[max(0, i-1)].Offset)
		require.True(t, want[r.Offset].Same(r), "%s: %v", what, r)
	}
}

func holds(t *testing.T, got, due []evtest.Rec, what string) {
	t.Helper()
	there := map[uint64]bool{}
	for _, r := range got {
		there[r.Offset] = true
	}
	for _, r := range due {
		require.True(t, there[r.Offset], "%s: %d was due and did not come", what, r.Offset)
	}
}

// The same under a follower, with a writer that goes on.
func TestFollow_SegmentsChangeUnderIt(t *testing.T) {
	for _, s := range surgeries() {
		t.Run(s.name, func(t *testing.T) {
			followers(t, func(t *testing.T, open func(place, *evlog.Log) *evlog.Reader) {
				p, _ := inMem(t)
				l := p.open(t, &evlog.Options{SegmentBytes: 230, IndexBytes: 50})
				want := appendEach(t, p.ctx, l, numbered(0, 30)...)
				_, err := l.Reindex(p.ctx, nil) // so that no index is written later
				require.NoError(t, err)
				im := p.image(t)
				var got []evtest.Rec
				for rec, err := range open(p, l).Follow(p.ctx, 20) {
					require.NoError(t, err)
					got = append(got, evtest.RecOf(rec))
					if len(got) == 10 { // at the end
						s.cut(t, p, im)
						want = append(want, appendEach(t, p.ctx, l, numbered(30, 10)...)...)
					}
					if len(got) == 20 {
						break
					}
				}
				sameRecs(t, want[20:], got)
			})
		})
	}
}

// Newest first, with segments changing in front of the reader.
func TestBackward_SegmentsChangeUnderIt(t *testing.T) {
	im, want := logWith(t, &evlog.Options{SegmentBytes: 230, IndexBytes: 50}, 30)
	for _, s := range surgeries() {
		t.Run(s.name, func(t *testing.T) {
			for at := range len(want) {
				p := placeWith(t, im)
				var got []evtest.Rec
				var failed error
				for rec, err := range p.reader(t, nil).Backward(p.ctx, 30) {
					if err != nil {
						failed = err
						break
					}
					got = append(got, evtest.RecOf(rec))
					if len(got) == at+1 {
						s.cut(t, p, im)
					}
				}
				what := fmt.Sprintf("%s after record %d, backward", s.name, at)
				if failed != nil {
					require.ErrorIs(t, failed, evlog.ErrOffsetOutOfRange, what)
					require.True(t, s.removes, "%s: %v", what, failed)
				}
				checkBackward(t, want, got, p.image(t).Reader().Recs, got[at].Offset, what)
				if !s.removes {
					sameRecs(t, reversed(want), got, what)
				}
			}
		})
	}
}

// checkBackward asserts that offsets fall, every record is right, and what is
// there at the end below offset was delivered.
func checkBackward(t *testing.T, want, got, after []evtest.Rec, below uint64, what string) {
	t.Helper()
	for i, r := range got {
		require.True(t, i == 0 || r.Offset < got[i-1].Offset, "%s: %d after %d", what, r.Offset, got[max(0, i-1)].Offset)
		require.True(t, want[r.Offset].Same(r), "%s: %v", what, r)
	}
	due := after[:len(after)-len(from(after, below))]
	holds(t, got, due, what)
}

// The segment that was the active one when reading began is rolled, and then
// compacted or merged, before the reader is through.
func TestReader_ActiveSegmentIsClosedAndReplacedUnderIt(t *testing.T) {
	if windowsRules {
		t.Skip("what is being read cannot be replaced")
	}
	for _, c := range []struct {
		name string
		cut  func(t *testing.T, p place, im evtest.Image)
	}{
		{"only rolled", func(*testing.T, place, evtest.Image) {}},
		{"compacted", func(t *testing.T, p place, im evtest.Image) {
			s := im.Segments()[1]
			replaceFile(t, p, s.Name, evtest.EncodeRecs(kept(s)...))
		}},
		{"compacted to nothing", func(t *testing.T, p place, im evtest.Image) {
			replaceFile(t, p, im.Segments()[1].Name, nil)
		}},
		{"merged into the one before", func(t *testing.T, p place, im evtest.Image) {
			a, b := im.Segments()[0], im.Segments()[1]
			replaceFile(t, p, a.Name, append(slices.Clone(im[a.Name]), im[b.Name]...))
			removeFile(t, p, b.Name)
		}},
		{"compacted and merged", func(t *testing.T, p place, im evtest.Image) {
			a, b := im.Segments()[0], im.Segments()[1]
			replaceFile(t, p, a.Name, evtest.EncodeRecs(append(kept(a), kept(b)...)...))
			removeFile(t, p, b.Name)
		}},
		{"removed", func(t *testing.T, p place, im evtest.Image) {
			removeFile(t, p, im.Segments()[0].Name)
			removeFile(t, p, im.Segments()[1].Name)
		}},
	} {
		for at := range 12 {
			for _, backward := range []bool{false, true} {
				for _, ours := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s/after=%d/backward=%v/ours=%v", c.name, at, backward, ours), func(t *testing.T) {
						closeUnderReader(t, c.cut, at, backward, ours)
					})
				}
			}
		}
	}
}

func closeUnderReader(t *testing.T, cut func(t *testing.T, p place, im evtest.Image), at int, backward, ours bool) {
	t.Helper()
	p, _ := inMem(t)
	l := p.open(t, &evlog.Options{SegmentBytes: 1 << 20, IndexBytes: 50})
	want := appendEach(t, p.ctx, l, numbered(0, 6)...)
	require.NoError(t, l.Roll(p.ctx))
	want = append(want, appendEach(t, p.ctx, l, numbered(6, 6)...)...)
	r := l.Reader()
	if !ours {
		r = p.reader(t, nil)
	}
	seq := r.Records(p.ctx, 0)
	if backward {
		seq = r.Backward(p.ctx, 12)
	}
	var got []evtest.Rec
	var failed error
	for read, err := range seq {
		if err != nil {
			failed = err
			break
		}
		got = append(got, evtest.RecOf(read))
		if len(got) != at+1 {
			continue
		}
		require.NoError(t, l.Roll(p.ctx))
		_, err := l.Append(p.ctx, rec("k", "behind"))
		require.NoError(t, err)
		_, err = l.Reindex(p.ctx, nil) // so that no index is written later
		require.NoError(t, err)
		cut(t, p, p.image(t))
	}
	if failed != nil {
		require.ErrorIs(t, failed, evlog.ErrOffsetOutOfRange)
	}
	after := slices.DeleteFunc(p.image(t).Reader().Recs, func(r evtest.Rec) bool { return r.Offset >= 12 })
	if backward {
		checkBackward(t, want, got, after, got[at].Offset, "")
		return
	}
	inOrderAndRight(t, want, got, "")
	if failed == nil {
		holds(t, got, from(after, got[at].Offset+1), "")
	}
}
