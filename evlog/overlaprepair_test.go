package evlog_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
)

// A merge is interrupted, the merged file damaged, and repaired: what it has lost is
// in the segment behind it, where readers go on. Compaction keeps it.
func TestCompact_OverlapOfARepairedSegment(t *testing.T) {
	a := func(off uint64, key string) evtest.Rec {
		return evtest.Rec{Offset: off, TimeMS: 1_700_000_000_000, Key: []byte(key), Value: []byte("v")}
	}
	second := []evtest.Rec{a(4, "k"), a(5, ""), a(6, "l"), a(7, "m")}
	b := build()
	im := b.im
	valid := evtest.EncodeRecs(append([]evtest.Rec{a(0, "")}, second[:2]...)...)
	merged := evtest.EncodeRecs(append([]evtest.Rec{a(0, "")}, second...)...)
	merged[len(valid)+10] ^= 0xff
	im[evtest.SegmentFile(0)] = merged
	im[evtest.SegmentFile(4)] = evtest.EncodeRecs(second...)
	im[evtest.SegmentFile(8)] = evtest.EncodeRecs(a(8, "x"))
	im[evtest.SegmentFile(12)] = nil
	p := placeWith(t, b.durable(12, 12).im)
	_, err := evlog.Repair(p.ctx, p.dir, &evlog.RepairOptions{Execute: true})
	require.NoError(t, err)
	rep, err := evlog.Verify(p.ctx, p.dir, nil)
	require.NoError(t, err)
	require.True(t, rep.OK())
	before := p.all(t)
	l := p.open(t, nil)
	compact(t, p, l, fast())
	require.NoError(t, l.Close())
	sameRecs(t, before, p.all(t))
}
