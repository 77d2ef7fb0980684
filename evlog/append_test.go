package evlog_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/evlog/evlogtest"
	"github.com/evlog-go/evlog/internal/evtest"
)

func TestAppend_ReturnsOffsetsInOrder(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		l := p.open(t, nil)
		first, err := l.Append(p.ctx, rec("a", "1"))
		require.NoError(t, err)
		require.EqualValues(t, 0, first)
		first, err = l.Append(p.ctx, rec("a", "2"), rec("b", "3"), rec("c", "4"))
		require.NoError(t, err)
		require.EqualValues(t, 1, first)
		first, err = l.Append(p.ctx, rec("a", "5"))
		require.NoError(t, err)
		require.EqualValues(t, 4, first)
		require.NoError(t, l.Close())

		want := recsAt(0, rec("a", "1"), rec("a", "2"), rec("b", "3"), rec("c", "4"), rec("a", "5"))
		sameRecs(t, want, p.all(t))
		sameRecs(t, want, p.image(t).Writer().Recs, "second implementation")
	})
}

func TestAppend_EveryKindOfRecordReadsBack(t *testing.T) {
	evtest.Seeds(t, 300, func(t *testing.T, seed uint64) {
		p, _ := inMem(t)
		g := evtest.NewGen(seed)
		g.Max = 20_000
		opts := &evlog.Options{
			SegmentBytes: 1 + g.Rng.Int64N(30_000), IndexBytes: 1 + g.Rng.Int64N(5000),
			BufferBytes: 1 + g.Rng.Int64N(10_000), NoPreallocate: g.Rng.IntN(2) == 0,
		}
		l := p.open(t, opts)
		var want []evtest.Rec
		for range 30 {
			batch := g.Batch(8)
			first, err := l.Append(p.ctx, batch...)
			require.NoError(t, err, "seed %d: %v", seed, batch)
			want = append(want, recsAt(first, batch...)...)
		}
		got, err := readAll(p.ctx, l.Reader())
		require.NoError(t, err)
		sameRecs(t, want, got, "seed %d, in process", seed)
		sameRecs(t, want, p.all(t), "seed %d", seed)
		require.NoError(t, l.Close())
		sameRecs(t, want, p.image(t).Writer().Recs, "seed %d, second implementation", seed)
		p.verified(t)
	})
}

func TestAppend_IsDurableWhenItReturns(t *testing.T) {
	for _, policy := range []evlog.SyncPolicy{evlog.SyncAlways, evlog.SyncInterval, evlog.SyncFlush} {
		t.Run(policy.String(), func(t *testing.T) {
			p, m := inMem(t)
			l := p.open(t, &evlog.Options{Sync: policy, SyncInterval: 5 * time.Millisecond, SegmentBytes: 200})
			for i := range 10 {
				off, err := l.Append(p.ctx, numbered(i, 1)...)
				require.NoError(t, err)
				// I1: also with everything gone that no sync covered. DURABLE itself
				// may be old then; a writer publishes the rest.
				image := onFS(t, m.Crash(uint64(i)))
				out := image.image(t).Writer()
				require.NoError(t, out.Err)
				require.Greater(t, out.Next, off)
				d, err := p.image(t).Durable()
				require.NoError(t, err)
				require.Greater(t, d.Next, off, "published before it was acknowledged")
			}
		})
	}
}

func TestAppend_NoRecordsAppendsNothing(t *testing.T) {
	p, _ := inMem(t)
	l := p.open(t, nil)
	_, err := l.Append(p.ctx)
	require.NoError(t, err)
	_, err = l.Enqueue(p.ctx)
	require.NoError(t, err)
	require.NoError(t, l.AppendExact(p.ctx))
	require.NoError(t, l.EnqueueExact(p.ctx))
	require.NoError(t, l.Flush(p.ctx))
	off, err := l.Append(p.ctx, rec("k", "v"))
	require.NoError(t, err)
	require.EqualValues(t, 0, off)
}

func TestAppend_BatchesAreContiguous(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		l := p.open(t, &evlog.Options{SegmentBytes: 4000, BufferBytes: 2000})
		const callers, rounds = 16, 20
		var mu sync.Mutex
		model := evtest.NewModel()
		var wg sync.WaitGroup
		for c := range callers {
			wg.Go(func() {
				g := evtest.NewGen(uint64(c))
				for i := range rounds {
					batch := g.Batch(5)
					for j := range batch {
						batch[j].Value = fmt.Appendf(nil, "%d/%d/%d", c, i, j)
					}
					var first uint64
					var err error
					if i%2 == 0 {
						first, err = l.Append(p.ctx, batch...)
					} else {
						first, err = l.Enqueue(p.ctx, batch...)
					}
					mu.Lock()
					if err == nil {
						err = model.Accept(first, batch...)
					}
					if err == nil && i%2 == 0 {
						model.Ack(first, len(batch))
					}
					mu.Unlock()
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		require.NoError(t, l.Flush(p.ctx))
		model.AckAll()
		recs, err := readAll(p.ctx, l.Reader())
		require.NoError(t, err)
		require.NoError(t, model.Check(recs))
		sameRecs(t, model.Settled(), recs)
		for i, r := range recs {
			require.EqualValues(t, i, r.Offset, "no holes without AppendExact")
		}
		require.NoError(t, l.Close())
		p.verified(t)
	})
}

func TestAppend_CallerMayReuseItsBuffers(t *testing.T) {
	p, _ := inMem(t)
	l := p.open(t, &evlog.Options{Sync: evlog.SyncFlush})
	key, value := []byte("key"), []byte("value")
	batch := []evlog.Record{{Time: time.UnixMilli(1), Key: key, Value: value}}
	_, err := l.Enqueue(p.ctx, batch...)
	require.NoError(t, err)
	copy(key, "XXX")
	copy(value, "YYYYY")
	batch[0] = evlog.Record{}
	require.NoError(t, l.Flush(p.ctx))
	r, err := l.Reader().Get(p.ctx, 0)
	require.NoError(t, err)
	require.Equal(t, "key", string(r.Key))
	require.Equal(t, "value", string(r.Value))
}

func TestAppend_Times(t *testing.T) {
	now := time.UnixMilli(1_758_337_200_123)
	clock := evlogtest.NewClock(now.Add(999 * time.Microsecond))
	p, _ := inMem(t)
	l := p.open(t, &evlog.Options{Clock: clock})
	for _, c := range []struct {
		name   string
		in     time.Time
		wantMS int64
	}{
		{"zero is stamped", time.Time{}, now.UnixMilli()},
		{"zero in another zone is stamped", time.Time{}.In(time.FixedZone("x", 3600)), now.UnixMilli()},
		{"the epoch is kept", time.UnixMilli(0), 0},
		{"rounded down", time.UnixMilli(5).Add(999_999), 5},
		{"rounded down before the epoch", time.UnixMilli(-5).Add(1), -5},
		{"minus one", time.UnixMilli(-1), -1},
		{"the millisecond of the zero time", time.Time{}.Add(1), time.Time{}.UnixMilli()},
		{"year 1", time.Date(1, 1, 1, 0, 0, 0, 1e6, time.UTC), time.Time{}.UnixMilli() + 1},
		{"before year 1", time.Date(-5000, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(-5000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()},
		{"highest", time.UnixMilli(math.MaxInt64), math.MaxInt64},
		{"lowest", time.UnixMilli(math.MinInt64), math.MinInt64},
	} {
		t.Run(c.name, func(t *testing.T) {
			off, err := l.Append(p.ctx, evlog.Record{Time: c.in})
			require.NoError(t, err)
			r, err := l.Reader().Get(p.ctx, off)
			require.NoError(t, err)
			require.Equal(t, c.wantMS, r.Time.UnixMilli())
			require.Equal(t, time.UTC, r.Time.Location())
			require.False(t, r.Time.IsZero(), "appended again it would be stamped")
			// What was read can be appended elsewhere and stays the same.
			again, err := l.Append(p.ctx, r)
			require.NoError(t, err)
			r2, err := l.Reader().Get(p.ctx, again)
			require.NoError(t, err)
			require.Equal(t, c.wantMS, r2.Time.UnixMilli())
		})
	}
	t.Run("what does not fit is refused", func(t *testing.T) {
		for _, when := range []time.Time{
			time.UnixMilli(math.MaxInt64).Add(time.Millisecond), time.UnixMilli(math.MinInt64).Add(-1),
			time.Unix(math.MaxInt64, 0), time.Unix(math.MinInt64, 0),
		} {
			_, err := l.Append(p.ctx, evlog.Record{Time: when})
			require.ErrorIs(t, err, evlog.ErrTooLarge)
		}
	})
}

func TestAppend_OneStampPerBatch(t *testing.T) {
	p, _ := inMem(t)
	clock := evlogtest.NewClock(time.UnixMilli(1000))
	l := p.open(t, &evlog.Options{Clock: clock})
	_, err := l.Append(p.ctx, evlog.Record{Value: []byte("a")}, evlog.Record{Value: []byte("b")})
	require.NoError(t, err)
	clock.SetWall(time.UnixMilli(500)) // the clock is set back
	_, err = l.Append(p.ctx, evlog.Record{Value: []byte("c")})
	require.NoError(t, err)
	var got []int64
	for _, r := range p.all(t) {
		got = append(got, r.TimeMS)
	}
	require.Equal(t, []int64{1000, 1000, 500}, got)
}

func TestAppend_EmptyAndNilAreTheSame(t *testing.T) {
	p, _ := inMem(t)
	l := p.open(t, nil)
	_, err := l.Append(p.ctx, evlog.Record{Key: []byte{}, Value: []byte{}}, evlog.Record{}, evlog.Record{Key: []byte("k"), Value: []byte{}})
	require.NoError(t, err)
	for off := range uint64(3) {
		r, err := l.Reader().Get(p.ctx, off)
		require.NoError(t, err)
		require.Nil(t, r.Value)
		require.Equal(t, off == 2, r.Tombstone())
		if off < 2 {
			require.Nil(t, r.Key)
		}
	}
}

func TestAppend_IgnoresTheOffsetField(t *testing.T) {
	p, _ := inMem(t)
	l := p.open(t, nil)
	r := rec("k", "v")
	r.Offset = 99
	off, err := l.Append(p.ctx, r)
	require.NoError(t, err)
	require.EqualValues(t, 0, off)
}

func TestAppendExact_Holes(t *testing.T) {
	p, _ := inMem(t)
	l := p.open(t, tiny())
	at := func(off uint64) evlog.Record {
		r := rec("k", fmt.Sprint(off))
		r.Offset = off
		return r
	}
	require.NoError(t, l.AppendExact(p.ctx, at(5)))
	require.NoError(t, l.AppendExact(p.ctx, at(6), at(1000), at(1<<33)))
	require.NoError(t, l.EnqueueExact(p.ctx, at(1<<33+1)))
	off, err := l.Append(p.ctx, rec("k", "next"))
	require.NoError(t, err)
	require.Equal(t, uint64(1<<33+2), off)
	require.NoError(t, l.AppendExact(p.ctx, at(1<<50)))
	require.NoError(t, l.Close())

	var got []uint64
	for _, r := range p.all(t) {
		got = append(got, r.Offset)
	}
	require.Equal(t, []uint64{5, 6, 1000, 1 << 33, 1<<33 + 1, 1<<33 + 2, 1 << 50}, got)

	l = p.open(t, nil)
	off, err = l.Append(p.ctx, rec("k", "after reopening"))
	require.NoError(t, err)
	require.Equal(t, uint64(1<<50+1), off)
	require.NoError(t, l.Close())
	p.verified(t)
}

func TestAppendExact_RefusesLowerOffsets(t *testing.T) {
	at := func(offs ...uint64) []evlog.Record {
		var recs []evlog.Record
		for _, off := range offs {
			r := rec("k", fmt.Sprint(off))
			r.Offset = off
			recs = append(recs, r)
		}
		return recs
	}
	p, _ := inMem(t)
	l := p.open(t, nil)
	require.NoError(t, l.AppendExact(p.ctx, at(10, 20)...))
	for _, c := range []struct {
		name string
		offs []uint64
	}{
		{"the last one", []uint64{20}},
		{"below the last", []uint64{15}},
		{"zero", []uint64{0}},
		{"equal in the batch", []uint64{30, 30}},
		{"falling in the batch", []uint64{31, 30}},
		{"the last of a long batch", []uint64{30, 31, 32, 33, 20}},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.ErrorIs(t, l.AppendExact(p.ctx, at(c.offs...)...), evlog.ErrOffsetOrder)
			require.ErrorIs(t, l.EnqueueExact(p.ctx, at(c.offs...)...), evlog.ErrOffsetOrder)
		})
	}
	require.NoError(t, l.Flush(p.ctx))
	off, err := l.Append(p.ctx, rec("k", "v"))
	require.NoError(t, err)
	require.EqualValues(t, 21, off, "nothing of a refused batch was appended")
	require.Len(t, p.all(t), 3)
}

// The offset after the highest one cannot be written down.
func TestAppendExact_HighestOffset(t *testing.T) {
	p, _ := inMem(t)
	l := p.open(t, nil)
	r := rec("k", "v")
	r.Offset = math.MaxUint64
	require.ErrorIs(t, l.AppendExact(p.ctx, r), evlog.ErrTooLarge)
	r.Offset = math.MaxUint64 - 1
	require.NoError(t, l.AppendExact(p.ctx, r))
	_, err := l.Append(p.ctx, rec("k", "one too many"))
	require.ErrorIs(t, err, evlog.ErrTooLarge, "there is no offset left")
	_, err = l.Enqueue(p.ctx, rec("k", "a"), rec("k", "b"))
	require.ErrorIs(t, err, evlog.ErrTooLarge)
	require.Len(t, p.all(t), 1)
	require.NoError(t, l.Close())
	p.verified(t)
	p.open(t, nil)
}

func TestEnqueue_FlushMakesDurable(t *testing.T) {
	for _, policy := range []evlog.SyncPolicy{evlog.SyncAlways, evlog.SyncInterval, evlog.SyncFlush} {
		t.Run(policy.String(), func(t *testing.T) {
			p, m := inMem(t)
			l := p.open(t, &evlog.Options{Sync: policy, SyncInterval: time.Hour})
			for i := range 20 {
				off, err := l.Enqueue(p.ctx, numbered(i, 1)...)
				require.NoError(t, err)
				require.EqualValues(t, i, off)
			}
			require.NoError(t, l.Flush(p.ctx))
			require.EqualValues(t, 20, l.Stats().DurableNext)
			require.EqualValues(t, 20, onFS(t, m.Crash(1)).image(t).Writer().Next)
			require.Len(t, p.all(t), 20)
		})
	}
}

func TestFlush_OfNothing(t *testing.T) {
	p, _ := inMem(t)
	l := p.open(t, nil)
	require.NoError(t, l.Flush(p.ctx))
	before := l.Stats().Syncs
	_, err := l.Append(p.ctx, rec("k", "v"))
	require.NoError(t, err)
	require.NoError(t, l.Flush(p.ctx))
	require.Equal(t, before+1, l.Stats().Syncs, "nothing left to sync")
}

func TestClose_FlushesWhatWasEnqueued(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		l := p.open(t, &evlog.Options{Sync: evlog.SyncFlush})
		want := recsAt(0, numbered(0, 100)...)
		for _, r := range numbered(0, 100) {
			_, err := l.Enqueue(p.ctx, r)
			require.NoError(t, err)
		}
		require.NoError(t, l.Close())
		sameRecs(t, want, p.all(t))
		sameRecs(t, want, p.image(t).Reader().Recs)
		p.verified(t)
	})
}

func TestClose_IsIdempotentAndRefuses(t *testing.T) {
	p, _ := inMem(t)
	l := p.open(t, nil)
	_, err := l.Append(p.ctx, rec("k", "v"))
	require.NoError(t, err)
	r := l.Reader()
	require.NoError(t, l.Close())
	require.NoError(t, l.Close())

	_, err = l.Append(p.ctx, rec("k", "v"))
	require.ErrorIs(t, err, evlog.ErrClosed)
	_, err = l.Enqueue(p.ctx, rec("k", "v"))
	require.ErrorIs(t, err, evlog.ErrClosed)
	require.ErrorIs(t, l.AppendExact(p.ctx, rec("k", "v")), evlog.ErrClosed)
	require.ErrorIs(t, l.Flush(p.ctx), evlog.ErrClosed)
	require.ErrorIs(t, l.Roll(p.ctx), evlog.ErrClosed)
	_, err = l.Reindex(p.ctx, nil)
	require.ErrorIs(t, err, evlog.ErrClosed)
	_, err = r.Get(p.ctx, 0)
	require.ErrorIs(t, err, evlog.ErrClosed)
	_, err = collect(r.Records(p.ctx, 0))
	require.ErrorIs(t, err, evlog.ErrClosed)
	_, err = collect(r.Follow(p.ctx, 0))
	require.ErrorIs(t, err, evlog.ErrClosed)
	_, _, err = r.Bounds(p.ctx)
	require.ErrorIs(t, err, evlog.ErrClosed)
	require.Len(t, p.all(t), 1)
}

func TestClose_WhileCallersAppend(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		l := p.open(t, &evlog.Options{BufferBytes: 500})
		model := evtest.NewModel()
		started := make(chan struct{}, 100)
		var wg sync.WaitGroup
		for c := range 8 {
			wg.Go(func() {
				for i := 0; ; i++ {
					r := rec("k", fmt.Sprintf("%d/%d", c, i))
					first, err := l.Append(p.ctx, r)
					if err != nil {
						if !errors.Is(err, evlog.ErrClosed) {
							t.Error(err)
						}
						return
					}
					if err := model.Accept(first, r); err != nil {
						t.Error(err)
						return
					}
					model.Ack(first, 1)
					if i == 0 {
						started <- struct{}{}
					}
				}
			})
		}
		for range 8 {
			inTime(t, "callers start", started)
		}
		require.NoError(t, l.Close())
		wg.Wait()
		sameRecs(t, model.Settled(), p.all(t), "everybody got a result, and a true one")
	})
}

func TestAppend_StatsCount(t *testing.T) {
	p, _ := inMem(t)
	l := p.open(t, &evlog.Options{SegmentBytes: 300})
	var bytes int64
	for i := range 20 {
		r := numbered(i, 1)[0]
		bytes += r.Size()
		_, err := l.Append(p.ctx, r)
		require.NoError(t, err)
	}
	s := l.Stats()
	require.EqualValues(t, 20, s.Records)
	require.EqualValues(t, bytes, s.Bytes)
	require.EqualValues(t, 20, s.Batches)
	require.EqualValues(t, 20, s.NextOffset)
	require.EqualValues(t, 20, s.DurableNext)
	require.EqualValues(t, 0, s.Buffered)
	require.Positive(t, s.Rolls)
	require.EqualValues(t, len(p.image(t).Bases())-1, s.Rolls)
}

func TestAppend_ContextEndedBefore(t *testing.T) {
	p, _ := inMem(t)
	l := p.open(t, nil)
	ctx, cancel := context.WithCancel(p.ctx)
	cancel()
	_, err := l.Append(ctx, rec("k", "v"))
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, evlog.ErrUnconfirmed, "nothing was accepted")
	_, err = l.Enqueue(ctx, rec("k", "v"))
	require.ErrorIs(t, err, context.Canceled)
	off, err := l.Append(p.ctx, rec("k", "v"))
	require.NoError(t, err)
	require.EqualValues(t, 0, off)
}
