package cursor_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/cursor"
	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/evlog/evlogtest"
)

// spy is a store that notes commits, and fails on demand. It is no Resetter.
type spy struct {
	cursor.Store
	mu      sync.Mutex // guards the rest
	commits [][2]uint64
	fail    func(from, to uint64) error
}

func (s *spy) Commit(ctx context.Context, name string, from, to uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		if err := s.fail(from, to); err != nil {
			return err
		}
	}
	s.commits = append(s.commits, [2]uint64{from, to})
	return s.Store.Commit(ctx, name, from, to)
}

func (s *spy) seen() [][2]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([][2]uint64(nil), s.commits...)
}

// handled notes the offsets that a handler gets.
type handled struct {
	mu   sync.Mutex // guards offsets
	all  []uint64
	then func(ctx context.Context, offset uint64) error
}

func (h *handled) handle(ctx context.Context, rec evlog.Record) error {
	h.mu.Lock()
	h.all = append(h.all, rec.Offset)
	h.mu.Unlock()
	if h.then != nil {
		return h.then(ctx, rec.Offset)
	}
	return nil
}

func (h *handled) offsets() []uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]uint64(nil), h.all...)
}

func span(from, to uint64) []uint64 {
	var all []uint64
	for o := from; o < to; o++ {
		all = append(all, o)
	}
	return all
}

var untilEnd = &cursor.Options{UntilEnd: true}

func TestRun_DeliversAllAndResumes(t *testing.T) {
	dir, l := logOf(t, 10)
	ctx, f := dir.Context(), storeOf(t, dir)
	var h handled
	require.NoError(t, cursor.Run(ctx, l.Reader(), f, "c", h.handle, untilEnd))
	require.Equal(t, span(0, 10), h.offsets())
	require.EqualValues(t, 10, standsAt(t, ctx, f, "c"))

	h = handled{}
	require.NoError(t, cursor.Run(ctx, l.Reader(), f, "c", h.handle, untilEnd))
	require.Empty(t, h.offsets())
	fill(t, ctx, l, 3)
	require.NoError(t, cursor.Run(ctx, l.Reader(), f, "c", h.handle, untilEnd))
	require.Equal(t, span(10, 13), h.offsets())
}

func TestRun_EmptyLog(t *testing.T) {
	dir, l := logOf(t, 0)
	ctx, f := dir.Context(), storeOf(t, dir)
	require.NoError(t, cursor.Run(ctx, l.Reader(), f, "c", new(handled).handle, untilEnd))
	require.EqualValues(t, 0, standsAt(t, ctx, f, "c"), "the consumer is known")
	require.ErrorIs(t, cursor.Run(ctx, l.Reader(), f, "c", nil, untilEnd), evlog.ErrBadOptions)
}

func TestRun_CommitsByNumber(t *testing.T) {
	dir, l := logOf(t, 10)
	for _, tt := range []struct {
		records int
		want    [][2]uint64
	}{
		{1, [][2]uint64{{0, 0}, {0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}, {5, 6}, {6, 7}, {7, 8}, {8, 9}, {9, 10}}},
		{4, [][2]uint64{{0, 0}, {0, 4}, {4, 8}, {8, 10}}},
		{5, [][2]uint64{{0, 0}, {0, 5}, {5, 10}}},
		{-1, [][2]uint64{{0, 0}, {0, 10}}},
		{0, [][2]uint64{{0, 0}, {0, 10}}},
	} {
		s := &spy{Store: storeOf(t, dir)}
		var h handled
		require.NoError(t, cursor.Run(dir.Context(), l.Reader(), s, fmt.Sprint("c", tt.records), h.handle,
			&cursor.Options{UntilEnd: true, CommitRecords: tt.records, CommitInterval: -1}))
		require.Equal(t, tt.want, s.seen())
	}
}

// running is a Run on a goroutine of its own.
type running struct {
	t      *testing.T
	cancel context.CancelFunc
	ended  chan error
}

func start(t *testing.T, ctx context.Context, log cursor.Log, s cursor.Store, name string, h *handled, opts *cursor.Options) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	r := &running{t: t, cancel: cancel, ended: make(chan error, 1)}
	go func() { r.ended <- cursor.Run(ctx, log, s, name, h.handle, opts) }()
	t.Cleanup(cancel)
	return r
}

func (r *running) wait() error {
	r.t.Helper()
	select {
	case err := <-r.ended:
		return err
	case <-time.After(20 * time.Second):
		r.t.Fatal("Run does not end")
		return nil
	}
}

func (r *running) stop() error {
	r.t.Helper()
	r.cancel()
	return r.wait()
}

func eventually(t *testing.T, cond func() bool) {
	t.Helper()
	require.Eventually(t, cond, 20*time.Second, time.Millisecond)
}

// While no records come, what was handled is committed after the interval, once.
func TestRun_CommitsByTimeWhileIdle(t *testing.T) {
	dir, l := logOf(t, 3)
	clock := evlogtest.NewClock(time.UnixMilli(0))
	s := &spy{Store: storeOf(t, dir)}
	var h handled
	r := start(t, dir.Context(), l.Reader(), s, "c", &h, &cursor.Options{CommitInterval: time.Minute, Clock: clock})
	eventually(t, func() bool { return len(h.offsets()) == 3 })
	clock.WaitTimers(1)
	clock.Advance(59 * time.Second)
	require.Len(t, s.seen(), 1, "only the registration")
	clock.Advance(time.Second)
	eventually(t, func() bool { return len(s.seen()) == 2 })

	fill(t, dir.Context(), l, 1)
	clock.WaitTimers(1)
	clock.Advance(time.Minute)
	eventually(t, func() bool { return len(s.seen()) == 3 })
	require.ErrorIs(t, r.stop(), context.Canceled)
	require.Equal(t, [][2]uint64{{0, 0}, {0, 3}, {3, 4}}, s.seen())
}

func TestRun_CommitsByTimeWhileBusy(t *testing.T) {
	dir, l := logOf(t, 9)
	clock := evlogtest.NewClock(time.UnixMilli(0))
	s := &spy{Store: storeOf(t, dir)}
	h := handled{then: func(context.Context, uint64) error {
		clock.Advance(25 * time.Second)
		return nil
	}}
	require.NoError(t, cursor.Run(dir.Context(), l.Reader(), s, "c", h.handle, &cursor.Options{UntilEnd: true, CommitInterval: time.Minute, Clock: clock}))
	// Between two records the other goroutine may be faster, never later.
	for _, c := range s.seen() {
		require.LessOrEqual(t, c[1]-c[0], uint64(4), s.seen())
	}
	require.EqualValues(t, 9, standsAt(t, dir.Context(), s, "c"))
}

// What the handler buffers is flushed before each commit, and covers exactly
// what is committed.
func TestRun_BeforeCommit(t *testing.T) {
	dir, l := logOf(t, 10)
	ctx, f := dir.Context(), storeOf(t, dir)
	var buffer, flushed []uint64
	h := handled{then: func(_ context.Context, offset uint64) error {
		buffer = append(buffer, offset)
		return nil
	}}
	opts := &cursor.Options{UntilEnd: true, CommitRecords: 4, BeforeCommit: func(ctx context.Context) error {
		require.NoError(t, ctx.Err())
		require.EqualValues(t, len(flushed), standsAt(t, ctx, f, "c"), "not committed yet")
		flushed, buffer = append(flushed, buffer...), nil
		return nil
	}}
	require.NoError(t, cursor.Run(ctx, l.Reader(), f, "c", h.handle, opts))
	require.Equal(t, span(0, 10), flushed)
}

func TestRun_BeforeCommitFails(t *testing.T) {
	dir, l := logOf(t, 10)
	ctx, f := dir.Context(), storeOf(t, dir)
	gone := errors.New("nobody reads")
	calls := 0
	var h handled
	err := cursor.Run(ctx, l.Reader(), f, "c", h.handle, &cursor.Options{UntilEnd: true, CommitRecords: 4, BeforeCommit: func(context.Context) error {
		if calls++; calls == 2 {
			return gone
		}
		return nil
	}})
	require.Equal(t, gone, err)
	require.Equal(t, 2, calls, "and not once more at the end")
	require.Equal(t, span(0, 8), h.offsets())
	require.EqualValues(t, 4, standsAt(t, ctx, f, "c"))
}

// Two consumers run under one name: the one that commits second ends, and says
// what it found.
func TestRun_TwoConsumersUnderOneName(t *testing.T) {
	dir, l := logOf(t, 3)
	clock := evlogtest.NewClock(time.UnixMilli(0))
	opts := &cursor.Options{Clock: clock, CommitInterval: time.Minute}
	var h1, h2 handled
	first := start(t, dir.Context(), l.Reader(), storeOf(t, dir), "c", &h1, opts)
	second := start(t, dir.Context(), dir.Reader(nil), storeOf(t, dir), "c", &h2, opts)
	eventually(t, func() bool { return len(h1.offsets()) == 3 && len(h2.offsets()) == 3 })
	clock.WaitTimers(2)
	clock.Advance(time.Minute)
	var err error
	var left *running
	select {
	case err = <-first.ended:
		left = second
	case err = <-second.ended:
		left = first
	case <-time.After(20 * time.Second):
		t.Fatal("both go on")
	}
	var moved *cursor.MovedError
	require.ErrorAs(t, err, &moved)
	require.Equal(t, cursor.MovedError{Name: "c", Want: 0, Stored: 3}, *moved)
	require.ErrorIs(t, err, cursor.ErrMoved)
	require.ErrorIs(t, left.stop(), context.Canceled)
	require.EqualValues(t, 3, standsAt(t, dir.Context(), storeOf(t, dir), "c"))
}

func TestRun_MovedByATool(t *testing.T) {
	dir, l := logOf(t, 6)
	ctx, f := dir.Context(), storeOf(t, dir)
	for name, change := range map[string]func() error{
		"reset":   func() error { return f.Reset(ctx, "reset", 2, 0) },
		"removed": func() error { return f.Remove(ctx, "removed") },
	} {
		h := handled{then: func(_ context.Context, offset uint64) error {
			if offset == 3 {
				return change()
			}
			return nil
		}}
		err := cursor.Run(ctx, l.Reader(), f, name, h.handle, &cursor.Options{CommitRecords: 2})
		require.ErrorIs(t, err, cursor.ErrMoved, name)
	}
	require.EqualValues(t, 0, standsAt(t, ctx, f, "reset"))
}

func TestRun_NewConsumer(t *testing.T) {
	dir, l := logOf(t, 5)
	removeBelow(t, dir, 2)
	ctx, f := dir.Context(), storeOf(t, dir)
	for policy, from := range map[cursor.Policy]uint64{cursor.Fail: 2, cursor.Earliest: 2, cursor.Latest: 5} {
		name := fmt.Sprint("c", policy)
		var h handled
		r := start(t, ctx, l.Reader(), f, name, &h, &cursor.Options{New: policy, CommitInterval: -1})
		// It is known where it starts before it has committed anything.
		eventually(t, func() bool {
			p, err := f.Load(ctx, name)
			return err == nil && p.Next == from
		})
		eventually(t, func() bool { return len(h.offsets()) == int(5-from) })
		require.ErrorIs(t, r.stop(), context.Canceled)
		require.Equal(t, span(from, 5), h.offsets())
		require.EqualValues(t, 5, standsAt(t, ctx, f, name))
	}
}

func TestRun_Limit(t *testing.T) {
	dir, l := logOf(t, 10)
	ctx, f := dir.Context(), storeOf(t, dir)
	var h handled
	for range 2 {
		require.NoError(t, cursor.Run(ctx, l.Reader(), f, "c", h.handle, &cursor.Options{Limit: 4}))
	}
	require.Equal(t, span(0, 8), h.offsets())
	require.EqualValues(t, 8, standsAt(t, ctx, f, "c"))
}

func TestRun_BadArguments(t *testing.T) {
	dir, l := logOf(t, 1)
	ctx, f := dir.Context(), storeOf(t, dir)
	require.ErrorIs(t, cursor.Run(ctx, l.Reader(), f, "a\nb", nil, nil), cursor.ErrBadName)
	for _, opts := range []*cursor.Options{{New: 3}, {Reset: 17}} {
		require.ErrorIs(t, cursor.Run(ctx, l.Reader(), f, "c", nil, opts), evlog.ErrBadOptions)
	}
	all, err := f.List(ctx)
	require.NoError(t, err)
	require.Empty(t, all)
}

// Without the log's id nothing is handled that could not be committed.
func TestRun_LogWithoutID(t *testing.T) {
	dir, _ := logOf(t, 3)
	ctx := dir.Context()
	meta := readFile(t, ctx, dir.Path(), "log.json")
	writeFile(t, ctx, dir.Path(), "log.json", "")
	var h handled
	require.ErrorIs(t, cursor.Run(ctx, dir.Reader(nil), storeOf(t, dir), "c", h.handle, untilEnd), cursor.ErrNoLogID)
	require.Empty(t, h.offsets())
	writeFile(t, ctx, dir.Path(), "log.json", meta)
}

func warnings() (*slog.Logger, *bytes.Buffer) {
	var out bytes.Buffer
	return slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn})), &out
}
