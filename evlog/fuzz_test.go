package evlog_test

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
)

// Properties of all of them: no panic, no hang, memory by what is there and not
// by what it says, only records that are there, nothing acknowledged lost
// without an error, and the second implementation agrees.

// FuzzRecovery opens arbitrary bytes as the active segment, with any DURABLE.
func FuzzRecovery(f *testing.F) {
	whole := evtest.EncodeRecs(smalls(4, 5, 6)...)
	f.Add(whole, uint8(0), uint64(7), uint64(4), int64(len(whole)))
	f.Add(whole[:len(whole)-3], uint8(0), uint64(6), uint64(4), int64(0))
	f.Add(append(bytes.Clone(whole), make([]byte, 100)...), uint8(1), uint64(0), uint64(0), int64(0))
	f.Add(append(make([]byte, 30), whole...), uint8(0), uint64(4), uint64(4), int64(0))
	f.Add([]byte{}, uint8(0), uint64(4), uint64(0), int64(148))
	f.Add([]byte{0xff, 0xff, 0xff, 0x3f, 0, 0, 0, 0}, uint8(2), uint64(9), uint64(4), int64(9))
	f.Add(evtest.EncodeRec(evtest.Rec{Offset: math.MaxUint64}), uint8(0), uint64(4), uint64(4), int64(0))
	f.Add(evtest.EncodeRecs(evtest.Rec{Offset: math.MaxUint64}, small(5)), uint8(1), uint64(4), uint64(4), int64(0))
	f.Add(evtest.EncodeRec(evtest.Rec{Offset: math.MaxUint64 - 1}), uint8(0), uint64(math.MaxUint64), uint64(4), int64(28))
	f.Fuzz(func(t *testing.T, active []byte, mode uint8, next, base uint64, pos int64) {
		b := build().segment(0, upTo(0, 4)...).file(evtest.SegmentFile(4), active)
		switch mode % 3 {
		case 0:
			b.durableAt(evtest.Durable{Next: next, Base: base, Pos: pos})
		case 1: // none
		case 2:
			b.file("DURABLE", active[:min(len(active), 40)])
		}
		checkFuzzed(t, b.im)
	})
}

// checkFuzzed compares opening and reading an image with the second
// implementation.
func checkFuzzed(t *testing.T, im evtest.Image) {
	t.Helper()
	im = im.Clone()
	p := placeWith(t, im)
	out := im.Writer()
	a, _ := im.Active()
	fuzzedReader(t, p, im)
	l, err := evlog.Open(p.ctx, p.dir, nil)
	if err != nil {
		require.ErrorIs(t, err, evlog.ErrCorrupt)
		require.Error(t, out.Err, "refused: %v", err)
		sameImage(t, withoutLock(im), withoutLock(p.image(t)), "refused, and changed something")
		return
	}
	defer l.Close()
	got, err := readAll(p.ctx, l.Reader())
	require.NoError(t, err)
	require.NoError(t, out.Err, "opened what must be refused")
	sameRecs(t, out.Recs, got)
	require.Equal(t, out.Next, l.Stats().NextOffset)
	after := p.image(t)[a.Name]
	require.True(t, bytes.HasPrefix(after, im[a.Name][:a.End]), "recovery keeps the valid prefix as it is")
	if out.Next == math.MaxUint64 {
		return
	}
	off, err := l.Append(p.ctx, rec("k", "v"))
	require.NoError(t, err)
	require.Equal(t, out.Next, off)
	require.NoError(t, l.Close())
	p.verified(t)
	sameRecs(t, append(out.Recs, recsAt(off, rec("k", "v"))...), p.image(t).Writer().Recs)
}

func fuzzedReader(t *testing.T, p place, im evtest.Image) {
	t.Helper()
	d, err := im.Durable()
	if err != nil {
		return // it waits 100 ms: FuzzDurable has that
	}
	r, err := evlog.OpenReader(p.ctx, p.dir, nil)
	if err != nil {
		require.ErrorIs(t, err, evlog.ErrCorrupt)
		return
	}
	defer r.Close()
	got, err := readAll(p.ctx, r)
	if err != nil {
		require.True(t, errors.Is(err, evlog.ErrCorrupt) || errors.Is(err, evlog.ErrOffsetOutOfRange), err)
	}
	want := im.Reader()
	// Only what is there, in order, below the durable offset. (I2)
	require.LessOrEqual(t, len(got), len(want.Recs))
	sameRecs(t, want.Recs[:len(got)], got)
	if consistent(im, d) {
		require.Equal(t, want.Err != nil, err != nil, "reader: %v, second implementation: %v", err, want.Err)
		sameRecs(t, want.Recs, got)
	}
}

// consistent reports whether a writer could have published d: its position is
// behind the record next-1. Any other is a lie that has a good checksum.
func consistent(im evtest.Image, d evtest.Durable) bool {
	a, _ := im.Active()
	if d.Base < a.Base {
		return d.Next <= a.Base
	}
	if d.Base > a.Base || d.Next < a.Base {
		return false
	}
	if d.Next > a.Next() {
		return d.Pos > a.End
	}
	if d.Pos == 0 {
		return d.Next == a.Base
	}
	for i, r := range a.Recs {
		if r.Offset+1 == d.Next {
			return a.Pos[i]+r.Size() == d.Pos
		}
	}
	return false
}

// FuzzClosedSegment puts arbitrary bytes between two good segments.
func FuzzClosedSegment(f *testing.F) {
	whole := evtest.EncodeRecs(smalls(4, 5, 6)...)
	f.Add(whole)
	f.Add(whole[:50])
	f.Add(append(bytes.Clone(whole), 0))
	f.Add([]byte{})
	f.Add(evtest.EncodeRecs(smalls(4, 9)...))
	f.Add(evtest.EncodeRecs(small(4), evtest.Rec{Offset: math.MaxUint64}))
	f.Fuzz(func(t *testing.T, closed []byte) {
		im := build().segment(0, upTo(0, 4)...).file(evtest.SegmentFile(4), closed).segment(8, 8, 9).durable(10, 8).im
		p := placeWith(t, im)
		want := im.Reader()
		for _, open := range []func() *evlog.Reader{
			func() *evlog.Reader { return p.reader(t, nil) },
			func() *evlog.Reader { return p.open(t, nil).Reader() },
		} {
			r := open()
			got, err := readAll(p.ctx, r)
			require.Equal(t, want.Err != nil, err != nil, "%v, second implementation: %v", err, want.Err)
			sameRecs(t, want.Recs, got)
			got, err = collect(r.Backward(p.ctx, 10))
			if seg := evtest.DecodeSegment(4, closed); seg.Next() > 8 {
				// Neighbours that overlap: what the second has more, may be shown.
			} else if want.Err == nil {
				require.NoError(t, err)
				sameRecs(t, reversed(want.Recs), got)
			} else {
				require.ErrorIs(t, err, evlog.ErrCorrupt)
			}
			_, err = r.Segments(p.ctx)
			require.NoError(t, err)
		}
		rep, err := evlog.Verify(p.ctx, p.dir, nil)
		require.NoError(t, err)
		if want.Err != nil {
			require.False(t, rep.OK())
		}
	})
}

// FuzzIndex loads arbitrary bytes as an index. With fix their checksums are
// made right, so that only the lies are left.
func FuzzIndex(f *testing.F) {
	im, want := randomLog(f, 21, 40)
	bases := im.Bases()
	name := evtest.IndexFile(bases[len(bases)/2])
	f.Add(im[name], false)
	f.Add(im[name], true)
	f.Add(im[evtest.IndexFile(bases[0])], true)
	f.Add([]byte{}, false)
	f.Add(make([]byte, 500), true)
	f.Fuzz(func(t *testing.T, b []byte, fix bool) {
		if fix {
			fixIndex(b)
		}
		bad := im.Clone()
		bad[name] = bytes.Clone(b)
		p := placeWith(t, bad)
		for _, r := range []*evlog.Reader{p.reader(t, nil), p.open(t, nil).Reader()} {
			for _, off := range []uint64{0, want[13].Offset, want[20].Offset, want[39].Offset} {
				got, err := collect(r.Records(p.ctx, off))
				mayMiss(t, from(want, off), got, err, fix)
				got, err = collect(r.Backward(p.ctx, off))
				mayMiss(t, reversed(want[:len(want)-len(from(want, off))]), got, err, fix)
			}
			if !fix {
				checkTimes(t, p.ctx, r, want)
			}
		}
	})
}

// mayMiss: all right records; a header that lies about the segment's end may
// bring the error that a segment is missing.
func mayMiss(t *testing.T, want, got []evtest.Rec, err error, lies bool) {
	t.Helper()
	if err == nil {
		sameRecs(t, want, got)
		return
	}
	require.True(t, lies, "%v", err)
	require.ErrorIs(t, err, evlog.ErrCorrupt)
	require.LessOrEqual(t, len(got), len(want))
	sameRecs(t, want[:len(got)], got)
}

func fixIndex(b []byte) {
	const header, block = 160, 4096
	if len(b) < header {
		return
	}
	evtest.PutCRC(b[4:8], b[8:header])
	for rest := b[header:]; len(rest) > 8; {
		one := rest[:min(block, len(rest))]
		evtest.PutCRC(one[:4], one[4:])
		rest = rest[len(one):]
	}
}

// FuzzDurable opens any DURABLE, for reading and for writing.
func FuzzDurable(f *testing.F) {
	good := build().segment(0, upTo(0, 4)...).segment(4, 4, 5).durable(6, 4).im
	f.Add(good["DURABLE"], false)
	f.Add(good["DURABLE"][:20], false)
	f.Add(make([]byte, 32), true)
	f.Fuzz(func(t *testing.T, b []byte, fix bool) {
		if fix && len(b) >= 32 {
			b = append([]byte("EVD1"), b[4:32]...)
			evtest.PutCRC(b[4:8], b[8:])
		}
		im := good.Clone()
		im["DURABLE"] = b
		checkFuzzed(t, im)
	})
}

// FuzzMeta opens any log.json.
func FuzzMeta(f *testing.F) {
	good := build().segment(0, upTo(0, 4)...).segment(4, 4, 5).durable(6, 4).im
	f.Add(good["log.json"])
	f.Add([]byte(`{"format":1,"id":"x","created_ms":-1,"config":{"segment_bytes":1,"index_bytes":1,"sync":"interval","sync_interval_ms":5,"segment_age_ms":3},"open_hook":"h","gaps":[[1,2],[9,3]],"x":[{}]}`))
	f.Add([]byte(`{"format":1,"id":"x","created_ms":1,"Config":{},"config":{"index_bytes":9}}`)) // names in any case
	f.Add([]byte(`{"format":2}`))
	f.Add([]byte(`{"format":1e300,"id":"x"}`))
	f.Add([]byte(`{"format":1,"id":"x","config":{"segment_bytes":9223372036854775807,"segment_age_ms":9223372036854775807}}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, b []byte) {
		im := good.Clone()
		im["log.json"] = b
		p := placeWith(t, im)
		want := smalls(upTo(0, 6)...)
		r, err := evlog.OpenReader(p.ctx, p.dir, nil)
		if err != nil {
			require.ErrorIs(t, err, evlog.ErrVersion)
		} else {
			got, err := readAll(p.ctx, r)
			require.NoError(t, err)
			sameRecs(t, want, got)
			_, err = r.Status(p.ctx)
			require.NoError(t, err)
			require.NoError(t, r.Close())
		}
		l, err := evlog.Open(p.ctx, p.dir, &evlog.Options{IndexBytes: 77})
		if err != nil {
			require.True(t, errors.Is(err, evlog.ErrVersion) || errors.Is(err, evlog.ErrCorrupt), err)
			sameImage(t, withoutLock(im), withoutLock(p.image(t)))
			return
		}
		id := l.ID()
		_, err = l.Append(p.ctx, rec("k", "v"))
		if err != nil {
			require.ErrorIs(t, err, evlog.ErrHookRequired)
		}
		require.NoError(t, l.Roll(p.ctx))
		require.NoError(t, l.Close())
		l = p.open(t, nil)
		require.Equal(t, id, l.ID())
		require.EqualValues(t, 77, l.Config().IndexBytes)
		got, err := readAll(p.ctx, l.Reader())
		require.NoError(t, err)
		sameRecs(t, want, got[:6])
	})
}

// FuzzConsumers meets any consumers.json where opening and repair look at it.
func FuzzConsumers(f *testing.F) {
	f.Add([]byte(`{"version":1,"log_id":"x","consumers":{"a":{"next_offset":3,"updated_ms":1}}}`))
	f.Add([]byte(`{"consumers":{"a":{"next_offset":18446744073709551615}}}`))
	f.Add([]byte(`{"consumers":{"a":{"next_offset":-1}}}`))
	f.Add([]byte(`{"consumers":null}`))
	f.Add([]byte{})
	f.Add(make([]byte, 100))
	f.Fuzz(func(t *testing.T, b []byte) {
		damaged := build().segment(0, upTo(0, 4)...).tail(0, 1, 2, 3).file("consumers.json", b).im
		empty := build().file("consumers.json", b).im
		for _, im := range []evtest.Image{damaged, empty} {
			p := placeWith(t, im)
			l, err := evlog.Open(p.ctx, p.dir, nil)
			if err != nil {
				require.ErrorIs(t, err, evlog.ErrCorrupt)
				sameImage(t, withoutLock(im), withoutLock(p.image(t)))
			} else {
				require.NoError(t, l.Close())
				require.Equal(t, b, p.image(t)["consumers.json"], "not evlog's to change")
			}
		}
		p := placeWith(t, damaged)
		rep, err := evlog.Repair(p.ctx, p.dir, &evlog.RepairOptions{Execute: true})
		if err == nil {
			require.GreaterOrEqual(t, rep.Next, uint64(4))
			l := p.open(t, nil)
			got, err := readAll(p.ctx, l.Reader())
			require.NoError(t, err)
			sameRecs(t, smalls(upTo(0, 4)...), got)
		}
	})
}

// FuzzAppend appends any record and reads it back.
func FuzzAppend(f *testing.F) {
	f.Add(int64(0), uint16(0), []byte(nil), []byte(nil), uint64(0))
	f.Add(int64(math.MinInt64), uint16(9), []byte("k"), []byte("v"), uint64(1<<63))
	f.Fuzz(func(t *testing.T, ms int64, schema uint16, key, value []byte, offset uint64) {
		p, _ := inMem(t)
		l := p.open(t, &evlog.Options{SegmentBytes: 100, IndexBytes: 10})
		r := evlog.Record{Offset: offset, Time: evtest.Time(ms), Schema: schema, Key: key, Value: value}
		err := l.AppendExact(p.ctx, r)
		if len(key) > evlog.MaxKeyBytes || offset == math.MaxUint64 {
			require.Error(t, err)
			return
		}
		require.NoError(t, err)
		want := []evtest.Rec{evtest.RecOf(r)}
		if offset < math.MaxUint64-1 {
			off, err := l.Append(p.ctx, r)
			require.NoError(t, err)
			want = append(want, recsAt(off, r)...)
		}
		sameRecs(t, want, p.all(t))
		require.NoError(t, l.Close())
		sameRecs(t, want, p.image(t).Writer().Recs)
		p.verified(t)
	})
}
