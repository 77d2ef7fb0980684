package evlog_test

import (
	"context"
	"math"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/format"
)

func bounds(t testing.TB, p place) []uint64 {
	t.Helper()
	r := p.reader(t, nil)
	first, next, err := r.Bounds(p.ctx)
	require.NoError(t, err)
	return []uint64{first, next}
}

// A copy of a log has the other's id, its first offset and its next one.
func TestOpen_AsACopy(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		opts := &evlog.Options{ID: "SOME-OTHER-ID", FirstOffset: 40}
		l := p.open(t, opts)
		require.Equal(t, []uint64{40, 40}, bounds(t, p), "by DURABLE as creation leaves it")
		require.NoError(t, l.Close())
		require.Equal(t, []uint64{40, 40}, bounds(t, p))
		p.verified(t)

		// Where there is a log, they mean nothing.
		l = p.open(t, &evlog.Options{ID: "another", FirstOffset: 7})
		require.Equal(t, "SOME-OTHER-ID", l.Reader().ID())
		var behind *evlog.OffsetError
		_, err := collect(l.Reader().Records(p.ctx, 39))
		require.ErrorAs(t, err, &behind)
		require.EqualValues(t, 40, behind.First)
		require.NoError(t, l.AppendExact(p.ctx, evlog.Record{Offset: 41, Value: []byte("v")}))
		require.NoError(t, l.RollTo(p.ctx, 50))
		require.NoError(t, l.RollTo(p.ctx, 50), "again")
		require.NoError(t, l.Close())
		require.Equal(t, []uint64{40, 50}, bounds(t, p))
		require.Len(t, p.all(t), 1)

		l = p.open(t, nil)
		off, err := l.Append(p.ctx, rec("k", "v"))
		require.NoError(t, err)
		require.EqualValues(t, 50, off)
		require.NoError(t, l.Close())
		p.verified(t)
	})
}

func TestOpen_AsACopy_Refused(t *testing.T) {
	p, _ := inMem(t)
	for _, id := range []string{"a b", "a/b", "a\n", "\u00e9", strings.Repeat("x", 65)} {
		require.ErrorIs(t, p.refused(t, &evlog.Options{ID: id}), evlog.ErrBadOptions, "%q", id)
	}
	require.ErrorIs(t, p.refused(t, &evlog.Options{FirstOffset: math.MaxUint64}), evlog.ErrBadOptions)
}

func TestRollTo_Refused(t *testing.T) {
	p, _ := inMem(t)
	l := p.open(t, nil)
	require.ErrorIs(t, l.RollTo(p.ctx, 3), evlog.ErrBadOptions, "no hole in front of the first record")
	require.NoError(t, l.RollTo(p.ctx, 0))
	_, err := l.Append(p.ctx, rec("k", "v"))
	require.NoError(t, err)
	require.ErrorIs(t, l.RollTo(p.ctx, 0), evlog.ErrOffsetOrder)
	require.ErrorIs(t, l.RollTo(p.ctx, math.MaxUint64), evlog.ErrTooLarge)
	require.EqualValues(t, 1, l.Stats().NextOffset)

	// The holder of the gate knows the next offset.
	g, err := l.Gate(p.ctx, "test")
	require.NoError(t, err)
	short, cancel := context.WithTimeout(p.ctx, 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, l.RollTo(short, 9), context.DeadlineExceeded)
	require.EqualValues(t, 1, g.Next())
	_, err = g.Write(rec("k", "w"))
	require.NoError(t, err)
	g.Release()
	require.NoError(t, l.RollTo(p.ctx, format.MaxOffset))
	require.NoError(t, l.Close())
	require.ErrorIs(t, l.RollTo(p.ctx, format.MaxOffset), evlog.ErrClosed)
	require.Equal(t, []uint64{0, format.MaxOffset}, bounds(t, p))
}

// Without room for the new segment the call fails, also when it is repeated; the
// offsets are a hole all the same.
func TestRollTo_NoRoom(t *testing.T) {
	p, m := inMem(t)
	l := p.open(t, &evlog.Options{NoPreallocate: true})
	_, err := l.Append(p.ctx, rec("k", "v"))
	require.NoError(t, err)
	m.SetCapacity(m.Used() + 300) // a file alone takes 512
	for range 2 {
		require.ErrorIs(t, l.RollTo(p.ctx, 9), syscall.ENOSPC)
	}
	m.SetCapacity(-1)
	require.NoError(t, l.RollTo(p.ctx, 9))
	require.NoError(t, l.Close())
	require.Equal(t, []uint64{0, 9}, bounds(t, p))
}
