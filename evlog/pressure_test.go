package evlog_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/evlog/evlogtest"
	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/internal/vfs"
)

// stopper is a Hook that holds chosen operations up, to catch a writer in the
// middle.
type stopper struct {
	mu      sync.Mutex
	kinds   vfs.OpKind
	gate    chan struct{} // nil: open
	reached chan struct{} // receives when an operation is held up
}

func newStopper(kinds vfs.OpKind) *stopper {
	return &stopper{kinds: kinds, reached: make(chan struct{}, 1000)}
}

func (s *stopper) hook(op vfs.Op) error {
	s.mu.Lock()
	gate := s.gate
	s.mu.Unlock()
	if gate == nil || op.Kind&s.kinds == 0 || !isLog(op.Name) {
		return nil
	}
	s.reached <- struct{}{}
	<-gate
	return nil
}

func isLog(name string) bool { return len(name) == 24 && name[20:] == ".log" }

func (s *stopper) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gate = make(chan struct{})
}

func (s *stopper) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gate != nil {
		close(s.gate)
		s.gate = nil
	}
}

type appended struct {
	first uint64
	err   error
}

func goAppend(ctx context.Context, l *evlog.Log, records ...evlog.Record) <-chan appended {
	c := make(chan appended, 1)
	go func() {
		first, err := l.Append(ctx, records...)
		c <- appended{first, err}
	}()
	return c
}

func TestContext_EndsAfterAcceptance(t *testing.T) {
	for _, policy := range []evlog.SyncPolicy{evlog.SyncAlways, evlog.SyncInterval, evlog.SyncFlush} {
		t.Run(policy.String(), func(t *testing.T) {
			s := newStopper(vfs.OpSyncData)
			p := onFS(t, vfs.Inject(vfs.NewMem(), s.hook))
			l := p.open(t, &evlog.Options{Sync: policy, SyncInterval: time.Millisecond})
			defer s.release()
			s.stop()
			busy := goAppend(p.ctx, l, rec("k", "in the sync"))
			inTime(t, "the sync", s.reached)

			cause := errors.New("the caller's reason")
			ctx, cancel := context.WithCancelCause(p.ctx)
			waiting := goAppend(ctx, l, rec("k", "a"), rec("k", "b"))
			soon(t, "accepted", func() bool { return l.Stats().Records == 3 })
			cancel(cause)
			got := inTime(t, "the result", waiting)
			require.ErrorIs(t, got.err, evlog.ErrUnconfirmed)
			require.ErrorIs(t, got.err, context.Canceled)
			require.EqualValues(t, 1, got.first, "the offsets that it has")

			s.release()
			require.NoError(t, inTime(t, "the first", busy).err)
			require.NoError(t, l.Flush(p.ctx))
			sameRecs(t, recsAt(0, rec("k", "in the sync"), rec("k", "a"), rec("k", "b")), p.all(t), "accepted means that it is written")
		})
	}
}

// One of those who wait for a commit does it for all. When that one gives up, the
// others must not wait for ever.
func TestContext_EndsOfWhoCommitsForOthers(t *testing.T) {
	for _, policy := range []evlog.SyncPolicy{evlog.SyncAlways, evlog.SyncFlush} {
		t.Run(policy.String(), func(t *testing.T) {
			s := newStopper(vfs.OpSyncData)
			p := onFS(t, vfs.Inject(vfs.NewMem(), s.hook))
			l := p.open(t, &evlog.Options{Sync: policy})
			defer s.release()
			s.stop()
			busy := goAppend(p.ctx, l, rec("k", "in the sync"))
			inTime(t, "the sync", s.reached)

			ctx, cancel := context.WithCancel(p.ctx)
			first := goAppend(ctx, l, rec("k", "first"))
			soon(t, "the first is accepted", func() bool { return l.Stats().Records == 2 })
			second := goAppend(p.ctx, l, rec("k", "second"))
			soon(t, "the second is accepted", func() bool { return l.Stats().Records == 3 })
			cancel()
			require.ErrorIs(t, inTime(t, "the first", first).err, evlog.ErrUnconfirmed)
			s.release()
			require.NoError(t, inTime(t, "the one in the sync", busy).err)
			require.NoError(t, inTime(t, "the second", second).err)
			sameRecs(t, recsAt(0, rec("k", "in the sync"), rec("k", "first"), rec("k", "second")), p.all(t))
		})
	}
}

func TestContext_FlushGivesUp(t *testing.T) {
	s := newStopper(vfs.OpSyncData)
	p := onFS(t, vfs.Inject(vfs.NewMem(), s.hook))
	l := p.open(t, nil)
	defer s.release()
	s.stop()
	busy := goAppend(p.ctx, l, rec("k", "in the sync")) // which no context interrupts
	inTime(t, "the sync", s.reached)
	_, err := l.Enqueue(p.ctx, rec("k", "v"))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(p.ctx)
	done := make(chan error, 1)
	go func() { done <- l.Flush(ctx) }()
	cancel()
	require.ErrorIs(t, inTime(t, "Flush", done), context.Canceled)
	s.release()
	require.NoError(t, inTime(t, "the first", busy).err)
	require.NoError(t, l.Flush(p.ctx))
}

func TestBackPressure_EnqueueWaitsForRoom(t *testing.T) {
	for _, policy := range []evlog.SyncPolicy{evlog.SyncAlways, evlog.SyncInterval, evlog.SyncFlush} {
		t.Run(policy.String(), func(t *testing.T) {
			s := newStopper(vfs.OpWrite)
			p := onFS(t, vfs.Inject(vfs.NewMem(), s.hook))
			const buffer = 1000
			l := p.open(t, &evlog.Options{Sync: policy, SyncInterval: time.Hour, BufferBytes: buffer, NoPreallocate: true})
			defer s.release()
			s.stop()
			model := evtest.NewModel()
			results := make(chan error, 100)
			for i := range 100 {
				go func() {
					r := rec("k", fmt.Sprintf("value %03d", i))
					first, err := l.Enqueue(p.ctx, r)
					if err == nil {
						err = model.Accept(first, r)
					}
					results <- err
				}()
			}
			soon(t, "somebody waits for room", func() bool { return l.Stats().RoomWaits > 0 })
			size := rec("k", "value 000").Size()
			require.LessOrEqual(t, l.Stats().Buffered, int64(buffer))
			require.GreaterOrEqual(t, l.Stats().Buffered, int64(buffer)-size)

			// A caller that gives up here has appended nothing.
			ctx, cancel := context.WithCancel(p.ctx)
			gaveUp := make(chan error, 1)
			before := l.Stats()
			go func() {
				_, err := l.Enqueue(ctx, rec("gave", "up"))
				gaveUp <- err
			}()
			soon(t, "it waits", func() bool { return l.Stats().RoomWaits > before.RoomWaits })
			cancel()
			err := inTime(t, "the one that gave up", gaveUp)
			require.ErrorIs(t, err, context.Canceled)
			require.NotErrorIs(t, err, evlog.ErrUnconfirmed)
			require.Equal(t, before.NextOffset, l.Stats().NextOffset)

			s.release()
			for range 100 {
				require.NoError(t, inTime(t, "room again", results))
			}
			require.NoError(t, l.Flush(p.ctx))
			model.AckAll()
			sameRecs(t, model.Settled(), p.all(t))
		})
	}
}

func TestBackPressure_BatchLargerThanTheBuffer(t *testing.T) {
	for _, policy := range []evlog.SyncPolicy{evlog.SyncAlways, evlog.SyncInterval, evlog.SyncFlush} {
		t.Run(policy.String(), func(t *testing.T) {
			p, _ := inMem(t)
			l := p.open(t, &evlog.Options{Sync: policy, SyncInterval: time.Millisecond, BufferBytes: 10})
			for i := range 20 {
				_, err := l.Enqueue(p.ctx, numbered(i*10, 10)...)
				require.NoError(t, err)
			}
			require.NoError(t, l.Flush(p.ctx))
			sameRecs(t, recsAt(0, numbered(0, 200)...), p.all(t))
		})
	}
}

func TestBackPressure_CloseEndsTheWait(t *testing.T) {
	s := newStopper(vfs.OpWrite)
	p := onFS(t, vfs.Inject(vfs.NewMem(), s.hook))
	l := p.open(t, &evlog.Options{BufferBytes: 100, NoPreallocate: true})
	defer s.release()
	s.stop()
	model := evtest.NewModel()
	results := make(chan error, 50)
	for i := range 50 {
		go func() {
			r := rec("k", fmt.Sprint(i))
			first, err := l.Append(p.ctx, r)
			if err == nil {
				err = model.Accept(first, r)
				model.Ack(first, 1)
			}
			results <- err
		}()
	}
	soon(t, "somebody waits for room", func() bool { return l.Stats().RoomWaits > 0 })
	closed := make(chan error, 1)
	go func() { closed <- l.Close() }()
	s.release()
	require.NoError(t, inTime(t, "Close", closed))
	for range 50 {
		if err := inTime(t, "a result for everybody", results); err != nil {
			require.ErrorIs(t, err, evlog.ErrClosed)
		}
	}
	sameRecs(t, model.Settled(), p.all(t))
}

// Callers that come while a sync runs share the next one.
func TestGroupCommit_CallersShareASync(t *testing.T) {
	s := newStopper(vfs.OpSyncData)
	p := onFS(t, vfs.Inject(vfs.NewMem(), s.hook))
	l := p.open(t, nil)
	defer s.release()
	s.stop()
	busy := goAppend(p.ctx, l, rec("k", "first"))
	inTime(t, "the sync", s.reached)
	var waiting []<-chan appended
	for i := range 64 {
		waiting = append(waiting, goAppend(p.ctx, l, rec("k", fmt.Sprint(i))))
	}
	soon(t, "all accepted", func() bool { return l.Stats().Records == 65 })
	before := l.Stats().Syncs
	s.release()
	require.NoError(t, inTime(t, "the first", busy).err)
	for _, w := range waiting {
		require.NoError(t, inTime(t, "the others", w).err)
	}
	require.LessOrEqual(t, l.Stats().Syncs, before+3, "64 callers, a sync or two")
}

func TestSyncPolicy_FlushNeverSyncsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trace := vfs.NewTrace(vfs.OpSync | vfs.OpSyncData)
		p := onFS(t, vfs.Inject(vfs.NewMem(), nil).After(trace.Record))
		l := p.open(t, &evlog.Options{Sync: evlog.SyncFlush, NoPreallocate: true})
		trace.Reset()
		for i := range 100 {
			_, err := l.Enqueue(p.ctx, numbered(i, 1)...)
			require.NoError(t, err)
		}
		time.Sleep(time.Hour)
		require.Empty(t, trace.Strings())
		require.Empty(t, p.all(t), "nothing durable, nothing visible (I2)")
		require.NoError(t, l.Flush(p.ctx))
		require.Len(t, p.all(t), 100)
		require.NoError(t, l.Close())
	})
}

func TestSyncPolicy_IntervalSyncsByItself(t *testing.T) {
	clock := evlogtest.NewClock(time.UnixMilli(1_700_000_000_000))
	p, _ := inMem(t)
	l := p.open(t, &evlog.Options{Sync: evlog.SyncInterval, SyncInterval: time.Second, Clock: clock})
	_, err := l.Enqueue(p.ctx, rec("k", "v"))
	require.NoError(t, err)
	waiting := goAppend(p.ctx, l, rec("k", "w"))
	soon(t, "accepted", func() bool { return l.Stats().Records == 2 })
	require.EqualValues(t, 0, l.Stats().DurableNext)
	select {
	case got := <-waiting:
		require.FailNow(t, "returned before the interval was over", "%v", got)
	default:
	}
	soon(t, "durable after the interval", func() bool {
		clock.Advance(250 * time.Millisecond)
		return l.Stats().DurableNext == 2
	})
	require.NoError(t, inTime(t, "Append", waiting).err)
	require.LessOrEqual(t, l.Stats().Syncs, uint64(2))
	// With nothing new there is nothing to sync.
	before := l.Stats().Syncs
	for range 20 {
		clock.Advance(time.Second)
	}
	require.Equal(t, before, l.Stats().Syncs)
}

func TestSyncPolicy_AlwaysSyncsWhatWasEnqueued(t *testing.T) {
	p, _ := inMem(t)
	l := p.open(t, nil)
	_, err := l.Enqueue(p.ctx, rec("k", "v"))
	require.NoError(t, err)
	soon(t, "durable without Flush", func() bool { return l.Stats().DurableNext == 1 })
	require.Len(t, p.all(t), 1)
}

// FORMAT.md: the writer syncs DURABLE after 100 ms without appends, so that
// after a power failure readers see all of a log that has gone quiet.
func TestDurable_IsSyncedWhenTheLogGoesQuiet(t *testing.T) {
	clock := evlogtest.NewClock(time.UnixMilli(1_700_000_000_000))
	p, m := inMem(t)
	l := p.open(t, &evlog.Options{Clock: clock})
	appendEach(t, p.ctx, l, numbered(0, 5)...)
	soon(t, "DURABLE is synced", func() bool {
		clock.Advance(50 * time.Millisecond)
		d, err := onFS(t, m.SyncedImage()).image(t).Durable()
		return err == nil && d.Next == 5
	})
	require.NoError(t, l.Close())
}

func TestSegmentAge_RollsAQuietLog(t *testing.T) {
	clock := evlogtest.NewClock(time.UnixMilli(1_700_000_000_000))
	p, _ := inMem(t)
	l := p.open(t, &evlog.Options{Clock: clock, SegmentAge: time.Hour})
	for range 50 { // an empty segment never rolls
		clock.Advance(time.Hour)
	}
	require.Equal(t, []uint64{0}, p.image(t).Bases())
	appendEach(t, p.ctx, l, numbered(0, 3)...)
	clock.Advance(59 * time.Minute)
	require.Equal(t, []uint64{0}, p.image(t).Bases())
	soon(t, "rolled by age", func() bool {
		clock.Advance(time.Minute)
		return len(p.image(t).Bases()) == 2
	})
	require.Equal(t, []uint64{0, 3}, p.image(t).Bases())
	for range 50 {
		clock.Advance(time.Hour)
	}
	require.Equal(t, []uint64{0, 3}, p.image(t).Bases())
	require.NoError(t, l.Close())
	p.verified(t)
}

func TestRoll_OfAnEmptySegmentDoesNothing(t *testing.T) {
	p, _ := inMem(t)
	l := p.open(t, nil)
	require.NoError(t, l.Roll(p.ctx))
	require.Equal(t, []uint64{0}, p.image(t).Bases())
	_, err := l.Enqueue(p.ctx, rec("k", "v"))
	require.NoError(t, err)
	require.NoError(t, l.Roll(p.ctx))
	require.NoError(t, l.Roll(p.ctx))
	im := p.image(t)
	require.Equal(t, []uint64{0, 1}, im.Bases())
	require.Len(t, im[evtest.SegmentFile(0)], int(rec("k", "v").Size()), "a closed segment has its exact size")
	d, err := im.Durable()
	require.NoError(t, err)
	require.Equal(t, evtest.Durable{Next: 1, Base: 1}, d)
	require.NoError(t, l.Close())
	p.verified(t)
}
