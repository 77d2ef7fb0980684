package evtest_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
)

func recs(n int) []evlog.Record {
	list := make([]evlog.Record, n)
	for i := range list {
		list[i] = evlog.Record{Time: time.UnixMilli(int64(i)), Value: []byte{byte(i)}}
	}
	return list
}

func at(first uint64, records ...evlog.Record) []evtest.Rec {
	var list []evtest.Rec
	for i, r := range records {
		rec := evtest.RecOf(r)
		rec.Offset = first + uint64(i)
		list = append(list, rec)
	}
	return list
}

// A model that notices nothing would let every test pass.
func TestModel_Notices(t *testing.T) {
	five := recs(5)
	setUp := func() *evtest.Model {
		m := evtest.NewModel()
		require.NoError(t, m.Accept(0, five[:3]...))
		m.Ack(0, 2)
		m.Intend(five[3])
		return m
	}
	all := at(0, five...)
	changed := at(0, five...)
	changed[1].Value = []byte("other")
	for _, c := range []struct {
		name string
		recs []evtest.Rec
		ok   bool
	}{
		{"only what is acknowledged", all[:2], true},
		{"what is accepted too", all[:3], true},
		{"what was handed over too", all[:4], true},
		{"what nobody appended", all[:5], false},
		{"an acknowledged one is lost", all[:1], false},
		{"all are lost", nil, false},
		{"an acknowledged one has changed", changed[:3], false},
		{"one is missing below an accepted one", append(append([]evtest.Rec{}, all[:2]...), at(3, five[3])...), false},
		{"an offset comes twice", []evtest.Rec{all[0], all[1], all[1]}, false},
		{"out of order", []evtest.Rec{all[1], all[0]}, false},
		{"an acknowledged one has moved", at(1, five[:2]...), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := setUp().Check(c.recs)
			require.Equal(t, c.ok, err == nil, "%v", err)
			err = setUp().Crashed(c.recs)
			require.Equal(t, c.ok, err == nil, "%v", err)
		})
	}

	m := setUp()
	require.Error(t, m.Accept(1, five[4]), "an offset that was acknowledged is given out again")
	require.Error(t, m.Accept(2, five[4]), "an offset is given out twice")
	require.NoError(t, m.Saw(all[2]))
	require.NoError(t, m.Crashed(all[:3]))
	require.EqualValues(t, 3, m.Next())
	require.Error(t, m.Saw(at(2, five[4])[0]), "an offset that was seen changes")
	require.Error(t, m.Check(all[:2]), "what was seen is lost")
	require.NoError(t, m.Accept(3, five[4]), "what the crash took may be given out again")
}

// A tombstone may go when its grace is over, counted from the first compaction that
// may have cleaned it by the lowest time that the clock has shown since, unless the
// clock has jumped; and what it deleted never comes back.
func TestModel_Graces(t *testing.T) {
	now, jumped := time.UnixMilli(1_700_000_000_000), false
	m := evtest.NewModel()
	m.SetClock(func() time.Time { return now }, func(time.Duration) bool { return jumped })
	m.SetGrace(time.Hour)
	key := []byte("k")
	all := at(0, evlog.Record{Key: key, Value: []byte("v")}, evlog.Record{Key: key}, evlog.Record{Time: now, Value: []byte("no key")})
	for _, r := range all {
		require.NoError(t, m.Accept(r.Offset, evtest.RecordOf(r)))
	}
	m.AckAll()
	require.Error(t, m.Check(all[1:]), "there was no compaction")
	now = now.Add(2 * time.Hour)
	m.Begin()
	m.Compacting(false)
	require.NoError(t, m.Check(all[1:]))
	require.Error(t, m.Check(all[2:]), "its grace begins only now")
	require.NoError(t, m.Compacted(all[1:]))
	require.Error(t, m.Check(all), "what compaction has removed is back")
	now = now.Add(time.Hour - time.Millisecond)
	m.Compacting(false)
	require.Error(t, m.Check(all[2:]), "its grace is not over")
	require.False(t, m.MayBeOld(all[2], now, 4*time.Hour))
	m.ClockMoves(func() { now = now.Add(-time.Hour) })
	now = now.Add(time.Hour - time.Millisecond)
	require.Error(t, m.Check(all[2:]), "by a clock that was set back its grace is not over either")
	jumped, now = true, now.Add(time.Millisecond)
	require.Error(t, m.Check(all[2:]), "the clock has jumped")
	jumped = false
	require.NoError(t, m.CheckLatest("k", evtest.Rec{}, false))
	require.NoError(t, m.Compacted(all[2:]))
	require.Error(t, m.Check(all), "a deleted key is back")
	require.Error(t, m.CheckLatest("k", all[0], true), "a deleted key is back")
	require.Error(t, m.CheckTable("k", all[0], true, false), "a deleted key is back")
	require.True(t, m.MayBeOld(all[2], now, 2*time.Hour), "the clock has shown a time that long ago since")
}

func TestImage_Outcomes(t *testing.T) {
	seg := func(base uint64, list ...evtest.Rec) (string, []byte) {
		return evtest.SegmentFile(base), evtest.EncodeRecs(list...)
	}
	all := at(0, recs(6)...)
	im := evtest.Image{}
	name, b := seg(0, all[:3]...)
	im[name] = b
	name, b = seg(3, all[3:]...)
	im[name] = append(b, 1, 2, 3)
	im["DURABLE"] = evtest.EncodeDurable(evtest.Durable{Next: 4, Base: 3, Pos: all[3].Size()})
	im["other.log"] = nil

	require.Equal(t, []uint64{0, 3}, im.Bases())
	w := im.Writer()
	require.NoError(t, w.Err)
	require.Len(t, w.Recs, 6)
	require.EqualValues(t, 6, w.Next)
	require.Equal(t, []byte{1, 2, 3}, w.Cut)
	r := im.Reader()
	require.NoError(t, r.Err)
	require.Len(t, r.Recs, 4)
	require.Equal(t, 2, r.Beyond)

	bad := im.Clone()
	bad[evtest.SegmentFile(0)][30] ^= 1
	require.ErrorIs(t, bad.Reader().Err, evtest.ErrDamaged)
	require.NoError(t, im.Reader().Err, "a clone is deep")
	bad = im.Clone()
	bad["DURABLE"] = evtest.EncodeDurable(evtest.Durable{Next: 7, Base: 3, Pos: 200})
	require.ErrorIs(t, bad.Writer().Err, evtest.ErrDamaged)
	bad["DURABLE"] = evtest.EncodeDurable(evtest.Durable{Next: 6, Base: 6})
	require.ErrorIs(t, bad.Writer().Err, evtest.ErrDamaged)
	require.True(t, evtest.Image{}.Writer().Create)
}

// The generator meets the corners that it promises.
func TestGen_MeetsCorners(t *testing.T) {
	g := evtest.NewGen(1)
	g.Max = 5000
	seen := map[string]bool{}
	for range 3000 {
		r := g.Record()
		require.False(t, r.Time.IsZero())
		ms := r.Time.UnixMilli()
		for what, is := range map[string]bool{
			"no key": r.Key == nil, "empty key": r.Key != nil && len(r.Key) == 0, "tombstone": r.Tombstone(),
			"empty": len(r.Key)+len(r.Value) == 0, "large": len(r.Value) > 4000, "schema": r.Schema > 0,
			"epoch": ms == 0, "negative": ms < 0, "highest": ms == math.MaxInt64, "lowest": ms == math.MinInt64,
			"zero time": ms == time.Time{}.UnixMilli(),
		} {
			if is {
				seen[what] = true
			}
		}
	}
	require.Len(t, seen, 11, "%v", seen)
}
