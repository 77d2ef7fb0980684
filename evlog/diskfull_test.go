package evlog_test

import (
	"bytes"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/internal/vfs"
)

func TestDiskFull_AppendFailsAndItsOffsetsAreAHole(t *testing.T) {
	p, m := inMem(t)
	var mu sync.Mutex
	var full int
	l := p.open(t, &evlog.Options{NoPreallocate: true, OnEvent: func(e evlog.Event) {
		mu.Lock()
		defer mu.Unlock()
		if e.Kind == evlog.EventDiskFull {
			full++
		}
	}})
	want := appendEach(t, p.ctx, l, numbered(0, 5)...)
	size := int64(len(p.image(t)[evtest.SegmentFile(0)]))
	m.SetCapacity(m.Used() + 50) // half of the batch fits
	_, err := l.Append(p.ctx, numbered(5, 4)...)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.NotErrorIs(t, err, evlog.ErrPoisoned)
	require.NotErrorIs(t, err, evlog.ErrUnconfirmed)
	require.Len(t, p.image(t)[evtest.SegmentFile(0)], int(size), "the half that was written is cut off")
	require.Equal(t, 1, full)
	require.EqualValues(t, 1, l.Stats().DiskFull)
	require.EqualValues(t, 0, l.Stats().Buffered)
	sameRecs(t, want, p.all(t))

	// A small one may fit meanwhile.
	off, err := l.Append(p.ctx, evlog.Record{Time: time.UnixMilli(1), Key: []byte("s")})
	require.NoError(t, err)
	require.EqualValues(t, 9, off, "the offsets of the batch that failed are a hole")
	want = append(want, evtest.Rec{Offset: 9, TimeMS: 1, Key: []byte("s")})

	m.SetCapacity(-1)
	off, err = l.Append(p.ctx, rec("k", "room again"))
	require.NoError(t, err)
	require.EqualValues(t, 10, off)
	want = append(want, recsAt(10, rec("k", "room again"))...)
	sameRecs(t, want, p.all(t))
	require.NoError(t, l.Close())
	sameRecs(t, want, p.image(t).Writer().Recs)
	l = p.open(t, nil)
	require.EqualValues(t, 11, l.Stats().NextOffset)
	require.NoError(t, l.Close())
	p.verified(t)
}

func TestDiskFull_EnqueuedRecordsStayBuffered(t *testing.T) {
	for _, policy := range []evlog.SyncPolicy{evlog.SyncAlways, evlog.SyncInterval, evlog.SyncFlush} {
		t.Run(policy.String(), func(t *testing.T) {
			p, m := inMem(t)
			l := p.open(t, &evlog.Options{NoPreallocate: true, Sync: policy, SyncInterval: 5 * time.Millisecond})
			want := appendEach(t, p.ctx, l, numbered(0, 2)...)
			m.SetCapacity(m.Used() + 10)
			for i := 2; i < 6; i++ {
				off, err := l.Enqueue(p.ctx, numbered(i, 1)...)
				require.NoError(t, err)
				require.EqualValues(t, i, off)
			}
			for range 3 { // Flush may be called again
				err := l.Flush(p.ctx)
				require.ErrorIs(t, err, syscall.ENOSPC)
				require.NotErrorIs(t, err, evlog.ErrPoisoned)
			}
			sameRecs(t, want, p.all(t))
			// Appended between them: it fails, they stay.
			_, err := l.Append(p.ctx, numbered(6, 3)...)
			require.ErrorIs(t, err, syscall.ENOSPC)
			off, err := l.Enqueue(p.ctx, rec("k", "behind the hole"))
			require.NoError(t, err)
			require.EqualValues(t, 9, off)
			require.ErrorIs(t, l.Flush(p.ctx), syscall.ENOSPC)

			m.SetCapacity(-1)
			require.NoError(t, l.Flush(p.ctx))
			want = append(want, recsAt(2, numbered(2, 4)...)...)
			want = append(want, recsAt(9, rec("k", "behind the hole"))...)
			sameRecs(t, want, p.all(t), "with their offsets")
			require.NoError(t, l.Close())
			sameRecs(t, want, p.image(t).Writer().Recs)
			p.verified(t)
		})
	}
}

func TestDiskFull_IntervalAndAlwaysTryAgainByThemselves(t *testing.T) {
	for _, policy := range []evlog.SyncPolicy{evlog.SyncAlways, evlog.SyncInterval} {
		t.Run(policy.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, m := inMem(t)
				l := p.open(t, &evlog.Options{NoPreallocate: true, Sync: policy, SyncInterval: 5 * time.Millisecond})
				m.SetCapacity(m.Used())
				_, err := l.Enqueue(p.ctx, numbered(0, 3)...)
				require.NoError(t, err)
				time.Sleep(10 * time.Millisecond)
				synctest.Wait()
				require.EqualValues(t, 1, l.Stats().DiskFull, "it was tried")
				m.SetCapacity(-1)
				time.Sleep(2 * time.Second)
				synctest.Wait()
				require.EqualValues(t, 3, l.Stats().DurableNext, "durable without any call")
				require.NoError(t, l.Close())
			})
		})
	}
}

func TestDiskFull_CloseSaysWhatIsLost(t *testing.T) {
	p, m := inMem(t)
	l := p.open(t, &evlog.Options{NoPreallocate: true, Sync: evlog.SyncFlush})
	want := appendEach(t, p.ctx, l, numbered(0, 2)...)
	for i := range 7 {
		_, err := l.Enqueue(p.ctx, numbered(i, 1)...)
		require.NoError(t, err)
	}
	m.SetCapacity(m.Used())
	err := l.Close()
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.Contains(t, err.Error(), "7")
	m.SetCapacity(-1)
	l = p.open(t, nil)
	sameRecs(t, want, p.all(t))
	off, err := l.Append(p.ctx, rec("k", "v"))
	require.NoError(t, err)
	require.GreaterOrEqual(t, off, uint64(2))
	require.NoError(t, l.Close())
	p.verified(t)
}

// What earlier writes put into the file stays, is synced, and its callers are
// told so.
func TestDiskFull_OnlyTheWriteThatFailedIsCut(t *testing.T) {
	p, m := inMem(t)
	l := p.open(t, &evlog.Options{NoPreallocate: true, Sync: evlog.SyncFlush, BufferBytes: 8 << 20})
	big := bytes.Repeat([]byte("x"), 200<<10)
	m.SetCapacity(m.Used() + 700<<10)
	var want []evtest.Rec
	for i := range 6 { // several chunks, so several writes
		r := evlog.Record{Time: time.UnixMilli(int64(i)), Key: []byte("k"), Value: big}
		off, err := l.Enqueue(p.ctx, r)
		require.NoError(t, err)
		want = append(want, recsAt(off, r)...)
	}
	require.ErrorIs(t, l.Flush(p.ctx), syscall.ENOSPC)
	got := p.all(t)
	sameRecs(t, want[:len(got)], got)
	require.EqualValues(t, len(got), onFS(t, m.SyncedImage()).image(t).Writer().Next)
	m.SetCapacity(-1)
	require.NoError(t, l.Flush(p.ctx))
	sameRecs(t, want, p.all(t))
	require.NoError(t, l.Close())
	p.verified(t)
}

// 64 callers on a full disk: each gets the truth about its own batch.
func TestDiskFull_ManyCallers(t *testing.T) {
	evtest.Seeds(t, 100, func(t *testing.T, seed uint64) {
		p, m := inMem(t)
		rng := evtest.Rand(seed)
		l := p.open(t, &evlog.Options{NoPreallocate: rng.IntN(2) == 0, SegmentBytes: 500 + rng.Int64N(3000), BufferBytes: 2000})
		model := evtest.NewModel()
		var mu sync.Mutex
		m.SetCapacity(m.Used() + 6000 + rng.Int64N(3000))
		var wg sync.WaitGroup
		for c := range 16 {
			wg.Go(func() {
				for i := range 30 {
					r := rec("k", fmt.Sprintf("%d/%d", c, i))
					enqueue := (c+i)%3 == 0
					var first uint64
					var err error
					if enqueue {
						first, err = l.Enqueue(p.ctx, r)
					} else {
						first, err = l.Append(p.ctx, r, r)
					}
					mu.Lock()
					switch {
					case err == nil && enqueue:
						err = model.Accept(first, r)
					case err == nil:
						if err = model.Accept(first, r, r); err == nil {
							model.Ack(first, 2)
						}
					case errorIsENOSPC(err):
						err = nil
						if i == 20 {
							m.SetCapacity(m.Used() + 2000)
						}
					}
					mu.Unlock()
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		// Somebody deletes files now and then, until all are through.
		done := make(chan struct{})
		go func() { wg.Wait(); close(done) }()
		freeing := time.NewTicker(20 * time.Millisecond)
		defer freeing.Stop()
		for waiting := true; waiting; {
			select {
			case <-done:
				waiting = false
			case <-freeing.C:
				m.SetCapacity(m.Used() + 1000)
			}
		}
		m.SetCapacity(-1)
		require.NoError(t, l.Flush(p.ctx))
		model.AckAll()
		sameRecs(t, model.Settled(), p.all(t), "seed %d", seed)
		require.NoError(t, l.Close())
		sameRecs(t, model.Settled(), p.image(t).Writer().Recs, "seed %d", seed)
		p.verified(t)
	})
}

func errorIsENOSPC(err error) bool {
	return err != nil && bytes.Contains([]byte(err.Error()), []byte("no space"))
}

// A roll without room for another file: the old segment stays active.
func TestDiskFull_NoRoomForANewSegment(t *testing.T) {
	p, m := inMem(t)
	l := p.open(t, &evlog.Options{NoPreallocate: true, SegmentBytes: 200})
	want := appendEach(t, p.ctx, l, numbered(0, 3)...)
	m.SetCapacity(m.Used() + 300) // a file alone takes 512
	for i := 3; i < 6; i++ {
		off, err := l.Append(p.ctx, numbered(i, 1)...)
		require.NoError(t, err, "appended to the old segment")
		want = append(want, recsAt(off, numbered(i, 1)...)...)
	}
	sameRecs(t, want, p.all(t))
	m.SetCapacity(-1)
	want = append(want, appendEach(t, p.ctx, l, numbered(6, 6)...)...)
	require.Greater(t, len(p.image(t).Bases()), 1, "rolled when there was room")
	sameRecs(t, want, p.all(t))
	require.NoError(t, l.Close())
	sameRecs(t, want, p.image(t).Writer().Recs)
	p.verified(t)
}

// The create call of a roll reports ENOSPC although the name is there: then
// nothing is known.
func TestDiskFull_CreateFailsButTheFileIsThere(t *testing.T) {
	m := vfs.NewMem()
	var armed switchable
	p := onFS(t, vfs.Inject(m, armed.run))
	l := p.open(t, &evlog.Options{NoPreallocate: true})
	want := appendEach(t, p.ctx, l, numbered(0, 2)...)
	armed.set(func(op vfs.Op) error {
		if op.Kind == vfs.OpCreate && op.Name == evtest.SegmentFile(2) {
			_ = (evtest.Image{op.Name: nil}).WriteFS(m, p.dir)
			return syscall.ENOSPC
		}
		return nil
	})
	err := l.Roll(p.ctx)
	if err == nil {
		_, err = l.Append(p.ctx, rec("k", "into the old segment"))
	}
	require.ErrorIs(t, err, evlog.ErrPoisoned, "appending beside a newer segment would give offsets out twice")
	_ = l.Close()
	l = p.on(m).open(t, nil)
	got, err := readAll(p.ctx, l.Reader())
	require.NoError(t, err)
	sameRecs(t, want, got)
}

// Cutting the failed write off fails too.
func TestDiskFull_UndoFails(t *testing.T) {
	for _, kind := range []vfs.OpKind{vfs.OpTruncate, vfs.OpSync | vfs.OpSyncData} {
		t.Run(kind.String(), func(t *testing.T) {
			m := vfs.NewMem()
			var s switchable
			p := onFS(t, vfs.Inject(m, s.run))
			l := p.open(t, &evlog.Options{NoPreallocate: true})
			want := appendEach(t, p.ctx, l, numbered(0, 3)...)
			m.SetCapacity(m.Used() + 20)
			s.set(vfs.FailFrom(kind, "*.log", 1, syscall.EIO))
			_, err := l.Append(p.ctx, numbered(3, 2)...)
			require.ErrorIs(t, err, evlog.ErrPoisoned)
			require.ErrorIs(t, l.Close(), evlog.ErrPoisoned)
			m.SetCapacity(-1)
			q := p.on(m)
			l = q.open(t, nil)
			got, err := readAll(q.ctx, l.Reader())
			require.NoError(t, err)
			sameRecs(t, want, got[:3])
			require.LessOrEqual(t, len(got), 5)
		})
	}
}

// Power may fail at any moment around a full disk.
func TestDiskFull_Crash(t *testing.T) {
	evtest.Seeds(t, 300, func(t *testing.T, seed uint64) {
		p, m := inMem(t)
		rng := evtest.Rand(seed)
		l := p.open(t, &evlog.Options{NoPreallocate: true, SegmentBytes: 400})
		model := evtest.NewModel()
		for i := range 25 {
			m.SetCapacity(m.Used() + rng.Int64N(300))
			batch := numbered(i*10, 1+rng.IntN(4))
			model.Intend(batch...)
			first, err := l.Append(p.ctx, batch...)
			if err == nil {
				require.NoError(t, model.Accept(first, batch...))
				model.Ack(first, len(batch))
			} else {
				require.ErrorIs(t, err, syscall.ENOSPC, "seed %d", seed)
			}
			im, err := evtest.ReadFS(m.Crash(seed+uint64(i)), p.dir)
			require.NoError(t, err)
			out := im.Writer()
			require.NoError(t, out.Err, "seed %d", seed)
			require.NoError(t, model.Check(out.Recs), "seed %d", seed)
		}
		m.SetCapacity(-1)
		require.NoError(t, l.Close())
		p.verified(t)
	})
}
