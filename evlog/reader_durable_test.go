package evlog_test

import (
	"bytes"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/evlog/evlogtest"
	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/internal/vfs"
)

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
			start := time.Now() // a writer in another process has no clock of tests
			r := p.reader(t, &evlog.ReaderOptions{Clock: clock})
			got, err := readAll(p.ctx, r)
			require.NoError(t, err)
			require.GreaterOrEqual(t, time.Since(start), 100*time.Millisecond)
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

func TestReader_SeesNothingBehindAHoleBeforeItIsDurable(t *testing.T) {
	for _, kind := range []vfs.OpKind{vfs.OpSyncData, vfs.OpWrite} {
		s := newStopper(vfs.OpSyncData)
		m := vfs.NewMem()
		onFS(t, m).put(t, build().segment(0, upTo(0, 5)...).segment(1000).durable(1000, 1000).im)
		p := onFS(t, vfs.Inject(m, func(op vfs.Op) error {
			if kind == vfs.OpWrite && op.Name == "DURABLE" && op.Kind == vfs.OpWrite {
				op = vfs.Op{Kind: vfs.OpSyncData, Name: evtest.SegmentFile(0)} // stop here instead
			} else if kind == vfs.OpWrite {
				return nil
			}
			return s.hook(op)
		}))
		l := p.open(t, &evlog.Options{NoPreallocate: true})
		s.stop()
		waiting := goAppend(p.ctx, l, rec("k", "1000"))
		inTime(t, "held up", s.reached)
		for _, r := range []*evlog.Reader{l.Reader(), p.reader(t, nil)} {
			for _, off := range []uint64{0, 4, 5, 500, 999, 1000} {
				got, err := collect(r.Records(p.ctx, off))
				require.NoError(t, err)
				sameRecs(t, from(smalls(upTo(0, 5)...), off), got, "from %d", off)
				if off > 4 {
					_, err = r.Get(p.ctx, off)
					require.ErrorIs(t, err, evlog.ErrNotFound)
				}
			}
			_, err := r.Latest(p.ctx, []byte("k"))
			require.ErrorIs(t, err, evlog.ErrNotFound)
			_, err = r.OffsetAt(p.ctx, time.UnixMilli(math.MaxInt64))
			require.ErrorIs(t, err, evlog.ErrNotFound)
			got, err := collect(r.Backward(p.ctx, math.MaxUint64))
			require.NoError(t, err)
			require.Len(t, got, 5)
			off, err := r.OffsetOfLast(p.ctx, 1)
			require.NoError(t, err)
			require.EqualValues(t, 4, off)
		}
		s.release()
		require.NoError(t, inTime(t, "Append", waiting).err)
		got, err := collect(p.reader(t, nil).Records(p.ctx, 500))
		require.NoError(t, err)
		require.Len(t, got, 1)
		require.NoError(t, l.Close())
	}
}
