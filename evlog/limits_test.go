package evlog_test

import (
	"bytes"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
)

func TestLimits_Key(t *testing.T) {
	p, _ := inMem(t)
	l := p.open(t, nil)
	longest := bytes.Repeat([]byte("k"), 65535)
	off, err := l.Append(p.ctx, evlog.Record{Key: longest, Value: []byte("v")})
	require.NoError(t, err)
	r, err := l.Reader().Get(p.ctx, off)
	require.NoError(t, err)
	require.Equal(t, longest, r.Key)
	require.Equal(t, "v", string(r.Value))

	_, err = l.Append(p.ctx, rec("fine", "1"), evlog.Record{Key: append(longest, 'k')}, rec("fine", "2"))
	require.ErrorIs(t, err, evlog.ErrTooLarge)
	_, err = l.Enqueue(p.ctx, evlog.Record{Key: append(longest, 'k')})
	require.ErrorIs(t, err, evlog.ErrTooLarge)
	r = evlog.Record{Offset: 9, Key: append(longest, 'k')}
	require.ErrorIs(t, l.AppendExact(p.ctx, r), evlog.ErrTooLarge)
	next, err := l.Append(p.ctx, rec("k", "v"))
	require.NoError(t, err)
	require.Equal(t, off+1, next, "nothing of the refused batch was appended")
}

func TestLimits_MaxRecordBytes(t *testing.T) {
	p, _ := inMem(t)
	l := p.open(t, &evlog.Options{MaxRecordBytes: 1000})
	fits := evlog.Record{Key: []byte("key"), Value: make([]byte, 1000-evlog.RecordOverhead-3)}
	require.EqualValues(t, 1000, fits.Size())
	_, err := l.Append(p.ctx, fits)
	require.NoError(t, err)
	over := evlog.Record{Key: []byte("key"), Value: make([]byte, 1000-evlog.RecordOverhead-2)}
	_, err = l.Append(p.ctx, over)
	require.ErrorIs(t, err, evlog.ErrTooLarge)
	require.NoError(t, l.Close())

	// A limit set later does not hide what is there.
	l = p.open(t, &evlog.Options{MaxRecordBytes: 100})
	r, err := l.Reader().Get(p.ctx, 0)
	require.NoError(t, err)
	require.Len(t, r.Value, 1000-evlog.RecordOverhead-3)
	require.Len(t, p.all(t), 1)
}

func TestLimits_RecordLargerThanSegmentAndBuffer(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		l := p.open(t, &evlog.Options{SegmentBytes: 100, IndexBytes: 1, BufferBytes: 50})
		var records []evlog.Record
		for i, size := range []int{0, 5000, 10, 100_000, 300_000, 0} {
			records = append(records, evlog.Record{Time: time.UnixMilli(int64(i)), Value: bytes.Repeat([]byte{byte(i + 1)}, size)})
		}
		want := appendEach(t, p.ctx, l, records...)
		sameRecs(t, want, p.all(t))
		// The first one fits, so the second starts a segment, and so on.
		require.Equal(t, []uint64{0, 1, 2, 3, 4, 5}, p.image(t).Bases())
		require.NoError(t, l.Close())
		sameRecs(t, want, p.image(t).Writer().Recs)
		p.verified(t)
	})
}

func TestLimits_BatchLargerThanSegmentIsNotDivided(t *testing.T) {
	p, _ := inMem(t)
	l := p.open(t, &evlog.Options{SegmentBytes: 100})
	_, err := l.Append(p.ctx, numbered(0, 50)...)
	require.NoError(t, err)
	require.Equal(t, []uint64{0}, p.image(t).Bases(), "an empty segment takes any batch")
	_, err = l.Append(p.ctx, numbered(50, 50)...)
	require.NoError(t, err)
	require.Equal(t, []uint64{0, 50}, p.image(t).Bases())
	require.Len(t, p.all(t), 100)
}

func TestLimits_SegmentThreshold(t *testing.T) {
	size := rec("k", "v").Size()
	p, _ := inMem(t)
	l := p.open(t, &evlog.Options{SegmentBytes: 3 * size})
	for range 7 {
		_, err := l.Append(p.ctx, rec("k", "v"))
		require.NoError(t, err)
	}
	require.Equal(t, []uint64{0, 3, 6}, p.image(t).Bases(), "a segment may be filled to its last byte")
}

func TestLimits_SmallestSettings(t *testing.T) {
	p, _ := inMem(t)
	l := p.open(t, &evlog.Options{SegmentBytes: 1, IndexBytes: 1, BufferBytes: 1, MaxRecordBytes: 60, SyncInterval: time.Millisecond, Sync: evlog.SyncInterval})
	want := appendEach(t, p.ctx, l, numbered(0, 30)...)
	require.Len(t, p.image(t).Bases(), 30)
	sameRecs(t, want, p.all(t))
	require.NoError(t, l.Close())
	p.verified(t)
}

func TestOptions_RefusesNonsense(t *testing.T) {
	for _, c := range []struct {
		name string
		opts evlog.Options
	}{
		{"SegmentBytes", evlog.Options{SegmentBytes: -1}},
		{"IndexBytes", evlog.Options{IndexBytes: -1}},
		{"Sync", evlog.Options{Sync: 4}},
		{"SyncInterval", evlog.Options{SyncInterval: -time.Second}},
		{"SyncInterval", evlog.Options{SyncInterval: time.Microsecond}},
		{"SegmentAge", evlog.Options{SegmentAge: time.Millisecond + 1}},
		{"MaxRecordBytes", evlog.Options{MaxRecordBytes: 1<<30 + 1}},
		{"MaxRecordBytes", evlog.Options{MaxRecordBytes: -1}},
		{"MaxRecordBytes", evlog.Options{MaxRecordBytes: math.MaxInt64}},
		{"BufferBytes", evlog.Options{BufferBytes: -1}},
		{"Verify", evlog.Options{Verify: 9}},
		{"OpenHook", evlog.Options{OpenHook: evlog.Hook{Run: func(ctxT, evlog.HookState) error { return nil }}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, m := inMem(t)
			err := p.refused(t, &c.opts)
			require.ErrorIs(t, err, evlog.ErrBadOptions)
			require.Contains(t, err.Error(), c.name)
			_, err = m.OpenDir(p.dir)
			require.Error(t, err, "nothing was created")
		})
	}
}
