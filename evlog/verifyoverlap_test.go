package evlog_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
)

// Two segments that overlap, as an interrupted merge leaves them: each has all of
// the common range that is wanted of it, or verify says where it does not.
func TestVerify_Overlap(t *testing.T) {
	a := func(off uint64, key string) evtest.Rec {
		r := evtest.Rec{Offset: off, TimeMS: 1_700_000_000_000, Value: []byte("v")}
		if key != "" {
			r.Key = []byte(key)
		}
		return r
	}
	gone := func(off uint64, key string) evtest.Rec {
		r := a(off, key)
		r.Value = nil
		return r
	}
	none := uint64(1 << 63)
	second := []evtest.Rec{a(4, "k"), a(5, ""), a(6, "l"), a(7, "m")}
	for _, c := range []struct {
		name          string
		first, second []evtest.Rec
		third, active []evtest.Rec // from 8 and from 12
		gaps          string
		at            uint64 // of the problem
		file          uint64 // its segment's base
		lost          uint64
	}{
		{name: "all of it", first: second, second: second, at: none},
		{name: "a newer one in the third", first: second[1:], second: second, third: []evtest.Rec{a(9, "k")}, at: none},
		{name: "deleted in the third", first: second[1:], second: second, third: []evtest.Rec{gone(9, "k")}, at: none},
		{name: "a newer one in the active one", first: second[1:], second: second, active: []evtest.Rec{a(12, "k")}, at: none},
		{name: "a newer one in the second", first: second[1:], second: append([]evtest.Rec{a(4, "m")}, second[1:]...), at: none},
		{name: "nothing newer", first: second[1:], second: second, third: []evtest.Rec{a(9, "l")}, at: 4, lost: 1},
		{name: "an older one", first: append([]evtest.Rec{a(3, "l")}, second[3]), second: second[1:], third: []evtest.Rec{a(9, "k")}, at: 5, lost: 1},
		{name: "two keys", first: second[3:], second: []evtest.Rec{second[0], second[2], second[3]}, at: 4, lost: 2},
		{name: "without a key", first: []evtest.Rec{second[0], second[2], second[3]}, second: second, third: []evtest.Rec{a(9, "k")}, at: 5, lost: 1},
		{name: "in a gap", first: []evtest.Rec{second[0], second[2], second[3]}, second: second, gaps: "[[5,6]]", at: none},
		{name: "the newer one was cut by repair", first: second[1:], second: second, gaps: "[[9,10]]", at: none},
		{name: "nothing newer, and a gap below", first: second[1:], second: second, gaps: "[[1,2]]", at: 4, lost: 1},
		{name: "beyond the first one's end", first: second[:2], second: second, at: none},
		{name: "the second one lacks some", first: second, second: second[2:], file: 4, at: 4, lost: 2},
		{name: "the second one is empty", first: second, file: 4, at: 4, lost: 4},
		{name: "the second one lacks what is in a gap", first: second, second: append([]evtest.Rec{second[0]}, second[2:]...), gaps: "[[5,6]]", at: none},
		{
			name: "two of them", first: append(second[:4:4], a(9, ""), a(10, "n")), second: second,
			third: []evtest.Rec{a(8, ""), a(9, ""), a(10, "n")}, at: 8, lost: 1,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := build()
			im := b.im
			if c.gaps != "" {
				im["log.json"] = []byte(`{"format":1,"id":"` + builtID + `","created_ms":1700000000000,"config":{},"gaps":` + c.gaps + "}\n")
			}
			for base, recs := range map[uint64][]evtest.Rec{0: append([]evtest.Rec{a(0, "")}, c.first...), 4: c.second, 8: c.third, 12: c.active} {
				im[evtest.SegmentFile(base)] = evtest.EncodeRecs(recs...)
			}
			next := uint64(12)
			if len(c.active) > 0 {
				next = 13
			}
			p := placeWith(t, b.durable(next, 12).im)
			rep, err := evlog.Verify(p.ctx, p.dir, nil)
			require.NoError(t, err)
			var problems []evlog.Problem
			for _, problem := range rep.Problems {
				if problem.Fatal {
					problems = append(problems, problem)
				}
			}
			if c.at == none {
				require.Empty(t, problems)
				return
			}
			require.Len(t, problems, 1)
			require.Equal(t, p.dir+"/"+evtest.SegmentFile(c.file), problems[0].Path)
			require.Equal(t, c.at, problems[0].Offset)
			require.Equal(t, c.lost, problems[0].LostOffsets)
			rep, err = evlog.Verify(p.ctx, p.dir, &evlog.VerifyOptions{Segments: []uint64{0}})
			require.NoError(t, err)
			if strings.HasPrefix(c.name, "nothing newer") || c.name == "two keys" {
				require.True(t, rep.OK(), "what is newer may be in what was not read")
			} else {
				require.False(t, rep.OK())
			}
		})
	}
}

// What nobody can read may be the newer one: damage above is told, and nothing else.
func TestVerify_OverlapBelowDamage(t *testing.T) {
	p := placeWith(t, build().segment(0, 0, 5, 6).segment(4, 4, 5, 6).segment(8, 8).tail(8, []byte("no record")...).segment(12, 12).durable(13, 12).im)
	rep, err := evlog.Verify(p.ctx, p.dir, nil)
	require.NoError(t, err)
	fatal := 0
	for _, problem := range rep.Problems {
		if problem.Fatal {
			fatal++
			require.Equal(t, p.dir+"/"+evtest.SegmentFile(8), problem.Path)
		}
	}
	require.Equal(t, 1, fatal)
}
