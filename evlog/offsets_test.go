package evlog_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/internal/format"
)

func numberedBy(offsets ...uint64) (recs []evtest.Rec) {
	for _, o := range offsets {
		recs = append(recs, evtest.Rec{Offset: o, TimeMS: 1, Value: []byte("v")})
	}
	return recs
}

// 2^64-1 is no offset: the next one would be 0, and the log would count from
// the start again. (I3)
func TestOpen_OffsetWithoutANextOne(t *testing.T) {
	bytes := evtest.EncodeRecs(numberedBy(3, math.MaxUint64, 5)...)

	// At the end of the active segment it is where the valid prefix ends.
	b := build().file(evtest.SegmentFile(0), bytes).durable(4, 0)
	p := placeWith(t, b.im)
	l := p.open(t, nil)
	off, err := l.Append(p.ctx, rec("k", "v"))
	require.NoError(t, err)
	require.EqualValues(t, 4, off)
	require.NoError(t, l.Close())
	require.Len(t, p.all(t), 2)
	p.verified(t)

	// In a closed segment it is damage.
	b = build().file(evtest.SegmentFile(0), bytes).segment(9, 9).durable(10, 9)
	p = placeWith(t, b.im)
	r := p.reader(t, nil)
	_, err = readAll(p.ctx, r)
	corruptAt(t, err, evtest.SegmentFile(0), numberedBy(3)[0].Size())
	require.ErrorIs(t, err, format.ErrOffset)
	rep, err := evlog.Verify(p.ctx, p.dir, nil)
	require.NoError(t, err)
	require.False(t, rep.OK())
}

// Where the offsets end, repair does not begin again below: the log is full.
func TestRepair_NearTheHighestOffset(t *testing.T) {
	const top = math.MaxUint64
	damaged := append(evtest.EncodeRecs(numberedBy(top-10)...), make([]byte, 2000)...)
	damaged[len(damaged)-1] = 1
	b := build().file(evtest.SegmentFile(top-10), damaged).durableAt(evtest.Durable{Next: top - 8, Base: top - 10, Pos: 1000})
	p := placeWith(t, b.im)
	rep, err := evlog.Repair(p.ctx, p.dir, &evlog.RepairOptions{Execute: true})
	require.NoError(t, err)
	require.EqualValues(t, uint64(top), rep.Next)
	l := p.open(t, nil)
	require.EqualValues(t, uint64(top), l.Stats().NextOffset)
	_, err = l.Append(p.ctx, rec("k", "v"))
	require.ErrorIs(t, err, evlog.ErrTooLarge)
	require.NoError(t, l.Close())
	require.Len(t, p.all(t), 1)
}
