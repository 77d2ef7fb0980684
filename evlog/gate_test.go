package evlog_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/internal/vfs"
)

func TestGate_NobodyAppendsBeside(t *testing.T) {
	p, _ := inMem(t)
	l := p.open(t, &evlog.Options{Sync: evlog.SyncFlush})
	_, err := l.Enqueue(p.ctx, numbered(0, 3)...)
	require.NoError(t, err)
	g, err := l.Gate(p.ctx, "test")
	require.NoError(t, err)
	require.EqualValues(t, 3, g.Next())
	require.Equal(t, "test", l.Stats().GateHolder)
	require.EqualValues(t, 3, l.Stats().DurableNext, "everything before is durable")

	ctx, cancel := context.WithCancel(p.ctx)
	waiting := goAppend(ctx, l, rec("k", "beside"))
	second := make(chan error, 1)
	go func() {
		_, err := l.Gate(ctx, "second")
		second <- err
	}()
	soon(t, "they wait", func() bool { return l.Stats().GateWaits >= 2 })
	cancel()
	got := inTime(t, "Append", waiting)
	require.ErrorIs(t, got.err, context.Canceled)
	require.NotErrorIs(t, got.err, evlog.ErrUnconfirmed, "nothing was appended")
	require.ErrorIs(t, inTime(t, "the second gate", second), context.Canceled)
	require.EqualValues(t, 3, l.Stats().NextOffset)

	ticket, err := g.Write(numbered(3, 2)...)
	require.NoError(t, err)
	require.EqualValues(t, 5, g.Next())
	g.Release()
	g.Release()
	require.NoError(t, ticket.Wait(p.ctx))
	require.Empty(t, l.Stats().GateHolder)
	sameRecs(t, recsAt(0, numbered(0, 5)...), p.all(t))
	_, err = g.Write(rec("k", "v"))
	require.Error(t, err)
	off, err := l.Append(p.ctx, numbered(5, 1)...)
	require.NoError(t, err)
	require.EqualValues(t, 5, off)
}

func TestGate_WaitersGoOnAfterRelease(t *testing.T) {
	p, _ := inMem(t)
	l := p.open(t, &evlog.Options{BufferBytes: 200})
	model := evtest.NewModel()
	var wg sync.WaitGroup
	for c := range 6 {
		wg.Go(func() {
			for i := range 20 {
				batch := []evlog.Record{rec("k", fmt.Sprintf("%d/%d", c, i)), rec("k", fmt.Sprintf("%d/%d'", c, i))}
				var first uint64
				var err error
				if c < 2 {
					first, err = gated(p.ctx, l, batch)
				} else {
					first, err = l.Append(p.ctx, batch...)
				}
				if err == nil {
					err = model.Accept(first, batch...)
					model.Ack(first, 2)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	sameRecs(t, model.Settled(), p.all(t))
	require.Len(t, model.Settled(), 240)
}

// gated appends through the gate and checks that the offsets are as promised.
func gated(ctx context.Context, l *evlog.Log, batch []evlog.Record) (uint64, error) {
	g, err := l.Gate(ctx, "test")
	if err != nil {
		return 0, err
	}
	defer g.Release()
	first := g.Next()
	ticket, err := g.Write(batch...)
	if err != nil {
		return 0, err
	}
	g.Release()
	return first, ticket.Wait(ctx)
}

func TestGate_CloseWaitsForIt(t *testing.T) {
	p, _ := inMem(t)
	l := p.open(t, nil)
	g, err := l.Gate(p.ctx, "test")
	require.NoError(t, err)
	closed := make(chan error, 1)
	go func() { closed <- l.Close() }()
	soon(t, "closing", func() bool {
		ctx, cancel := context.WithCancel(p.ctx)
		cancel()
		_, err := l.Gate(ctx, "another")
		return errors.Is(err, evlog.ErrClosed)
	})
	_, err = g.Write(rec("k", "through the gate"))
	require.NoError(t, err)
	select {
	case err := <-closed:
		require.Fail(t, "closed under the gate", "%v", err)
	default:
	}
	g.Release()
	require.NoError(t, inTime(t, "Close", closed))
	require.Len(t, p.all(t), 1, "written before, durable with the close")
}

func TestGate_FullDisk(t *testing.T) {
	p, m := inMem(t)
	l := p.open(t, &evlog.Options{NoPreallocate: true})
	appendEach(t, p.ctx, l, numbered(0, 2)...)
	g, err := l.Gate(p.ctx, "test")
	require.NoError(t, err)
	m.SetCapacity(m.Used() + 30)
	_, err = g.Write(numbered(2, 3)...)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.NotErrorIs(t, err, evlog.ErrPoisoned)
	end, err := g.End(p.ctx)
	require.NoError(t, err)
	require.EqualValues(t, 2, end, "nothing of it is in the log")
	m.SetCapacity(-1)
	next := g.Next()
	ticket, err := g.Write(rec("k", "again"))
	require.NoError(t, err)
	require.NoError(t, ticket.Wait(p.ctx))
	g.Release()
	got := p.all(t)
	require.Len(t, got, 3)
	require.Equal(t, next, got[2].Offset)
}

func TestGate_Poisoned(t *testing.T) {
	m := vfs.NewMem()
	var s switchable
	p := onFS(t, vfs.Inject(m, s.run))
	l := p.open(t, &evlog.Options{NoPreallocate: true})
	g, err := l.Gate(p.ctx, "test")
	require.NoError(t, err)
	waiting := goAppend(p.ctx, l, rec("k", "beside"))
	soon(t, "it waits", func() bool { return l.Stats().GateWaits > 0 })
	s.set(vfs.FailNth(vfs.OpWrite, "*.log", 1, syscall.EIO))
	_, err = g.Write(rec("k", "v"))
	require.ErrorIs(t, err, evlog.ErrPoisoned)
	_, err = g.Write(rec("k", "v"))
	require.ErrorIs(t, err, evlog.ErrPoisoned)
	_, err = g.End(p.ctx)
	require.ErrorIs(t, err, evlog.ErrPoisoned)
	g.Release()
	require.ErrorIs(t, inTime(t, "the waiter", waiting).err, evlog.ErrPoisoned)
	_, err = l.Gate(p.ctx, "again")
	require.ErrorIs(t, err, evlog.ErrPoisoned)
	require.ErrorIs(t, l.Close(), evlog.ErrPoisoned)
}

func TestGate_Abandon(t *testing.T) {
	p, _ := inMem(t)
	l := p.open(t, nil)
	g, err := l.Gate(p.ctx, "test")
	require.NoError(t, err)
	waiting := goAppend(p.ctx, l, rec("k", "beside"))
	soon(t, "it waits", func() bool { return l.Stats().GateWaits > 0 })
	boom := errors.New("boom")
	err = g.Abandon(boom)
	require.ErrorIs(t, err, evlog.ErrPoisoned)
	require.ErrorIs(t, err, boom)
	require.ErrorIs(t, inTime(t, "the waiter", waiting).err, boom, "nobody takes the offset that was promised")
	g.Release()
	require.ErrorIs(t, l.Close(), boom)
	require.Empty(t, p.all(t))
}

// Check says what Append would say.
func TestLog_Check(t *testing.T) {
	p, _ := inMem(t)
	l := p.open(t, &evlog.Options{MaxRecordBytes: 100})
	for _, r := range []evlog.Record{
		rec("k", "v"),
		{Key: make([]byte, evlog.MaxKeyBytes+1)},
		{Value: make([]byte, 100)},
		{Value: make([]byte, 100-evlog.RecordOverhead)},
		{Time: time.Unix(1<<61, 0)},
	} {
		_, err := l.Append(p.ctx, r)
		require.Equal(t, err, l.Check(r))
	}
}

// End after a failed Write and after a crash says how much of a batch is there,
// and that much is durable.
func TestGate_CrashAtEveryOperation(t *testing.T) {
	for n := int64(0); ; n++ {
		m := vfs.NewMem()
		p := onFS(t, m)
		l := p.open(t, &evlog.Options{NoPreallocate: true, SegmentBytes: 150})
		model := evtest.NewModel()
		for _, r := range appendEach(t, p.ctx, l, numbered(0, 2)...) {
			require.NoError(t, model.Accept(r.Offset, evtest.RecordOf(r)))
			model.Ack(r.Offset, 1)
		}
		m.SetTornCut(n, int(n*7))
		for i := range 4 {
			batch := numbered(2+3*i, 3)
			model.Intend(batch...)
			first, err := gated(p.ctx, l, batch)
			if err != nil {
				break
			}
			require.NoError(t, model.Accept(first, batch...))
			model.Ack(first, 3)
		}
		met := m.WasCut()
		_ = l.Close()
		for seed := range uint64(evtest.Count(500)) {
			require.NoError(t, survives(t, m.Crash(seed+uint64(n)), model.Clone()), "cut at %d", n)
		}
		require.NoError(t, survives(t, m.KillImage(), model), "cut at %d", n)
		if !met {
			return
		}
	}
}
