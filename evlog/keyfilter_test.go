package evlog_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/internal/format"
	"github.com/evlog-go/evlog/internal/vfs"
)

// filterOf reads the index of a segment out of an image: its header, and the
// blocks of its filter, checked.
func filterOf(t testing.TB, im evtest.Image, base uint64) (h format.IndexHeader, blocks []format.FilterBlock) {
	t.Helper()
	raw := im[evtest.IndexFile(base)]
	h, err := format.ParseIndexHeader(raw)
	require.NoError(t, err)
	for i := range h.Filter.Blocks {
		at := h.FilterBlockPos(i)
		b, err := h.Filter.ParseFilterBlock(raw[at : at+int64(h.Filter.BlockBytes)])
		require.NoError(t, err)
		blocks = append(blocks, b)
	}
	return h, blocks
}

// requireFilters asserts that every closed segment has a filter of its keys.
func requireFilters(t testing.TB, im evtest.Image) {
	t.Helper()
	segments := im.Segments()
	for _, s := range segments[:len(segments)-1] {
		h, blocks := filterOf(t, im, s.Base)
		require.True(t, h.Filter.There, "segment %d", s.Base)
		keys := map[string]bool{}
		for _, r := range s.Recs {
			if len(r.Key) == 0 {
				continue
			}
			keys[string(r.Key)] = true
			hash := format.KeyHash(r.Key)
			require.True(t, blocks[h.Filter.Block(hash)].MayHold(hash), "segment %d, key %q", s.Base, r.Key)
		}
		require.EqualValues(t, len(keys), h.Keys, "segment %d", s.Base)
	}
}

func hasFilters(im evtest.Image) bool {
	bases := im.Bases()
	for _, base := range bases[:len(bases)-1] {
		h, err := format.ParseIndexHeader(im[evtest.IndexFile(base)])
		if err != nil || !h.Filter.There {
			return false
		}
	}
	return true
}

func TestKeyFilter_IsMadeForRolledSegments(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		l := p.open(t, tiny())
		g := evtest.NewGen(5)
		for range 60 {
			_, err := l.Append(p.ctx, g.Batch(3)...)
			require.NoError(t, err)
		}
		soon(t, "every closed segment has a filter", func() bool { return hasFilters(p.image(t)) })
		requireFilters(t, p.image(t))
		require.NoError(t, l.Close())
		requireFilters(t, p.image(t))
		rep := p.verified(t)
		require.Empty(t, rep.Problems)
	})
}

// An index of an earlier version, one whose filter is damaged, and one that is
// gone get a filter when the log is opened for writing. What is only in the
// index stays.
func TestKeyFilter_IsRebuilt(t *testing.T) {
	for name, spoil := range map[string]func(h format.IndexHeader, b []byte) []byte{
		"an index without one": func(h format.IndexHeader, b []byte) []byte {
			h.Filter, h.Keys = format.FilterShape{}, 0
			return append(format.EncodeIndexHeader(h), b[format.IndexHeaderSize:h.FilterBlockPos(0)]...)
		},
		"damaged": func(h format.IndexHeader, b []byte) []byte {
			b[h.FilterBlockPos(0)+50] ^= 1
			return b
		},
		"cut off": func(h format.IndexHeader, b []byte) []byte { return b[:h.FilterBlockPos(0)+3] },
		"of an unknown kind": func(h format.IndexHeader, b []byte) []byte {
			b[134] = 77
			evtest.PutCRC(b[4:8], b[8:format.IndexHeaderSize])
			return b
		},
		"of another index": func(h format.IndexHeader, b []byte) []byte {
			b[124]++
			evtest.PutCRC(b[4:8], b[8:format.IndexHeaderSize])
			return b
		},
		"gone": func(format.IndexHeader, []byte) []byte { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			im, want := filteredLog(t)
			bases := im.Bases()
			var headers []format.IndexHeader
			for _, base := range bases[:len(bases)-1] {
				h, _ := filterOf(t, im, base)
				headers = append(headers, h)
				file := evtest.IndexFile(base)
				if im[file] = spoil(h, im[file]); im[file] == nil {
					delete(im, file)
				}
			}
			p := placeWith(t, im)
			r := p.reader(t, nil)
			checkKeys(t, p.ctx, r, want)
			p.lets(t, r)
			p.verified(t)

			l := p.open(t, nil)
			soon(t, "every closed segment has a filter", func() bool {
				// A checksum that is wrong does not show in the header.
				for _, base := range bases[:len(bases)-1] {
					raw := p.image(t)[evtest.IndexFile(base)]
					h, err := format.ParseIndexHeader(raw)
					if err != nil || !h.Filter.There || int64(len(raw)) < h.FilterBlockPos(h.Filter.Blocks) {
						return false
					}
					for i := range h.Filter.Blocks {
						at := h.FilterBlockPos(i)
						if _, err := h.Filter.ParseFilterBlock(raw[at : at+int64(h.Filter.BlockBytes)]); err != nil {
							return false
						}
					}
				}
				return true
			})
			require.NoError(t, l.Close())
			requireFilters(t, p.image(t))
			for i, base := range bases[:len(bases)-1] {
				h, _ := filterOf(t, p.image(t), base)
				if name == "gone" {
					h.ClosedMS = headers[i].ClosedMS // the time of the file; images have none
					require.EqualValues(t, format.NotVouched, h.CleanedMS)
					h.CleanedMS = headers[i].CleanedMS
				}
				require.Equal(t, headers[i], h)
			}
			require.Empty(t, p.verified(t).Problems)
		})
	}
}

// filteredLog is a log of several segments with complete indexes.
func filteredLog(t testing.TB) (evtest.Image, []evtest.Rec) {
	t.Helper()
	p, _ := inMem(t)
	l := p.open(t, &evlog.Options{SegmentBytes: 3000, IndexBytes: 100})
	g := evtest.NewGen(9)
	var want []evtest.Rec
	for range 12 {
		for range 8 {
			r := g.Record()
			want = append(want, appendEach(t, p.ctx, l, r)...)
		}
	}
	reindex(t, p, l)
	require.NoError(t, l.Close())
	im := p.image(t)
	requireFilters(t, im)
	return im, want
}

func TestKeyFilter_NoKeysIsSaidInTheHeader(t *testing.T) {
	p, _ := inMem(t)
	l := p.open(t, nil)
	_, err := l.Append(p.ctx, evlog.Record{Value: []byte("x")})
	require.NoError(t, err)
	require.NoError(t, l.Roll(p.ctx))
	reindex(t, p, l)
	h, blocks := filterOf(t, p.image(t), 0)
	require.Equal(t, format.FilterShape{There: true, ID: h.Filter.ID}, h.Filter)
	require.Empty(t, blocks)
	_, err = l.Reader().Latest(p.ctx, []byte("k"))
	require.ErrorIs(t, err, evlog.ErrNotFound)
}

// A filter that denies a key of its segment is found, and one that is damaged.
// Neither is damage of the log.
func TestVerify_KeyFilter(t *testing.T) {
	im, want := filteredLog(t)
	base := im.Bases()[1]
	h, _ := filterOf(t, im, base)
	at := h.FilterBlockPos(0)
	for name, c := range map[string]struct {
		spoil func(raw []byte)
		says  string
	}{
		"a damaged block": {func(raw []byte) { raw[at+40] ^= 8 }, "block 0 of the key filter"},
		"a lie": {func(raw []byte) {
			block := raw[at : at+int64(h.Filter.BlockBytes)]
			for i := range block[12:] {
				block[12+i] ^= 0x5a
			}
			evtest.PutCRC(block[:4], block[4:])
		}, "the key filter denies the key of offset"},
		"no keys": {func(raw []byte) {
			clear(raw[128:132])
			evtest.PutCRC(raw[4:8], raw[8:format.IndexHeaderSize])
		}, "the key filter denies the key of offset"},
	} {
		t.Run(name, func(t *testing.T) {
			bad := im.Clone()
			c.spoil(bad[evtest.IndexFile(base)])
			p := placeWith(t, bad)
			rep := p.verified(t)
			require.EqualValues(t, len(want), rep.Records)
			require.Len(t, rep.Problems, 1)
			require.ErrorContains(t, rep.Problems[0].Err, c.says)
			require.True(t, strings.HasSuffix(rep.Problems[0].Path, evtest.IndexFile(base)))
			l := p.open(t, nil)
			reindex(t, p, l)
			require.NoError(t, l.Close())
			require.Empty(t, p.verified(t).Problems)
		})
	}
}

// A segment that is removed or replaced while its index is being made gets none
// of the old one.
func TestKeyFilter_SegmentChangesMeanwhile(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, p place, s evtest.Segment){
		"removed": func(t *testing.T, p place, s evtest.Segment) { removeFile(t, p, s.Name) },
		"replaced": func(t *testing.T, p place, s evtest.Segment) {
			replaceFile(t, p, s.Name, evtest.EncodeRecs(kept(s)...))
		},
	} {
		t.Run(name, func(t *testing.T) {
			im, _ := filteredLog(t)
			s := im.Segments()[0]
			p := placeWith(t, im)
			under := p
			changed := false
			p = p.on(vfs.Inject(p.fsys, func(op vfs.Op) error {
				// The header is written last.
				if op.Name == evtest.IndexFile(s.Base)+".build.tmp" && op.Kind == vfs.OpWrite && !changed {
					changed = true
					removeFile(t, under, evtest.IndexFile(s.Base))
					change(t, under, s)
				}
				return nil
			}))
			l := p.open(t, nil)
			reindex(t, p, l)
			require.True(t, changed)
			require.NoError(t, l.Close())
			// What was built for the old file is not put beside the new one. Meanwhile
			// the housekeeper may have made an index for that.
			_, there := p.image(t)[evtest.IndexFile(s.Base)]
			if name == "removed" || !there {
				require.False(t, there)
				return
			}
			require.Empty(t, p.verified(t).Problems)
		})
	}
}
