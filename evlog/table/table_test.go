package table_test

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/cursor"
	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/evlog/evlogtest"
	"github.com/evlog-go/evlog/evlog/table"
	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/internal/invariant"
)

func kv(key, value string) evlog.Record {
	return evlog.Record{Key: []byte(key), Value: []byte(value), Schema: 7}
}

func open(t testing.TB, ctx context.Context, log cursor.Log, opts *table.Options) *table.Table {
	t.Helper()
	v, err := table.Open(ctx, log, opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, v.Close()) })
	return v
}

// values are the keys and values of a view.
func values(v *table.Table) map[string]string {
	all := map[string]string{}
	for key, e := range v.All() {
		all[key] = string(e.Value)
	}
	return all
}

func TestTable_BuildsAndFollows(t *testing.T) {
	for name, l := range map[string]*evlog.Log{
		"in memory": evlogtest.OpenMem(t, nil), "on disk": evlogtest.Open(t, &evlog.Options{SegmentBytes: 60}),
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			at := time.UnixMilli(1_700_000_000_000).UTC()
			_, err := l.Append(ctx, kv("a", "1"), kv("b", "2"), evlog.Record{Value: []byte("no key")},
				evlog.Record{Time: at, Schema: 9, Key: []byte("a"), Value: []byte("3")}, kv("c", "4"), kv("c", ""))
			require.NoError(t, err)
			v := open(t, ctx, l.Reader(), nil)
			require.Equal(t, map[string]string{"a": "3", "b": "2"}, values(v))
			require.Equal(t, uint64(6), v.Next())
			require.Equal(t, 2, v.Len())
			e, ok := v.Get("a")
			require.True(t, ok)
			require.Equal(t, uint64(3), e.Offset)
			require.Equal(t, uint16(9), e.Schema)
			require.True(t, at.Equal(e.Time))
			_, ok = v.Get("c")
			require.False(t, ok)

			snapshot := v.All()
			offset, err := l.Append(ctx, kv("b", ""), kv("d", "5"), kv("b", "6"), kv("a", ""))
			require.NoError(t, err)
			require.NoError(t, v.Wait(ctx, offset+4))
			require.Equal(t, map[string]string{"b": "6", "d": "5"}, values(v))
			require.Equal(t, offset+4, v.Next())
			require.Equal(t, "3", string(e.Value), "what was returned stays valid")
			require.Len(t, maps.Collect(snapshot), 2, "taken when the iteration begins")
			require.NoError(t, v.Err())
			require.NoError(t, v.Close())
			require.ErrorIs(t, v.Err(), table.ErrClosed)
			require.ErrorIs(t, v.Wait(ctx, offset+5), table.ErrClosed)
			require.NoError(t, v.Wait(ctx, offset+4))
			require.Equal(t, map[string]string{"b": "6", "d": "5"}, values(v), "still to be read")
		})
	}
}

// The view against a map, with random records, holes, rolls, and views that are
// opened in between.
func TestTable_IsWhatTheRecordsMake(t *testing.T) {
	evtest.Seeds(t, 300, func(t *testing.T, seed uint64) {
		rng := evtest.Rand(seed)
		l := evlogtest.OpenMem(t, &evlog.Options{SegmentBytes: 1 + rng.Int64N(2000)})
		ctx := t.Context()
		early := open(t, ctx, l.Reader(), nil)
		want := map[string]string{}
		next := uint64(0)
		for range 150 {
			next += rng.Uint64N(3) * rng.Uint64N(2)
			r := evlog.Record{Offset: next, Value: fmt.Append(nil, rng.Uint32())}
			if rng.IntN(8) > 0 {
				r.Key = fmt.Appendf(nil, "k%d", rng.IntN(12))
			}
			if rng.IntN(4) == 0 {
				r.Value = nil
			}
			require.NoError(t, l.AppendExact(ctx, r))
			next++
			switch {
			case r.Key == nil:
			case r.Value == nil:
				delete(want, string(r.Key))
			default:
				want[string(r.Key)] = string(r.Value)
			}
			if rng.IntN(30) == 0 {
				require.NoError(t, l.Roll(ctx))
				require.NoError(t, early.Wait(ctx, next))
				require.Equal(t, want, values(early))
				late := open(t, ctx, l.Reader(), nil)
				require.Equal(t, want, values(late))
				require.Equal(t, next, late.Next())
				require.Equal(t, early.Bytes(), late.Bytes())
			}
		}
		require.NoError(t, early.Wait(ctx, next))
		require.Equal(t, want, values(early))
	})
}

func TestTable_MaxBytes(t *testing.T) {
	l := evlogtest.OpenMem(t, nil)
	ctx := t.Context()
	value := strings.Repeat("v", 1000)
	_, err := l.Append(ctx, kv("a", value), kv("b", value), kv("a", value+"!"))
	require.NoError(t, err)
	size := open(t, ctx, l.Reader(), &table.Options{MaxBytes: -1}).Bytes()
	require.Greater(t, size, int64(2000))

	var full *table.FullError
	_, err = table.Open(ctx, l.Reader(), &table.Options{MaxBytes: size - 1})
	require.ErrorAs(t, err, &full)
	require.ErrorIs(t, err, table.ErrFull)
	require.Equal(t, table.FullError{Offset: 2, Keys: 2, Bytes: size - 1, MaxBytes: size - 1}, *full)

	v := open(t, ctx, l.Reader(), &table.Options{MaxBytes: size})
	// What gets smaller fits, and so does what takes its room.
	offset, err := l.Append(ctx, kv("a", value), kv("b", ""), kv("c", value), kv("d", "1"), kv("a", "2"))
	require.NoError(t, err)
	<-v.Done()
	require.ErrorAs(t, v.Err(), &full)
	require.Equal(t, offset+3, full.Offset)
	require.Equal(t, offset+3, v.Next(), "everything below, and nothing of what follows")
	require.Equal(t, map[string]string{"a": value, "c": value}, values(v))
	require.ErrorIs(t, v.Wait(ctx, offset+4), table.ErrFull)
	require.NoError(t, v.Wait(ctx, offset+3))
	require.LessOrEqual(t, v.Bytes(), size)
}

// Bytes is close to what the heap grows by, whatever the sizes are.
func TestTable_BytesAreHonest(t *testing.T) {
	if invariant.Enabled {
		t.Skip("the race detector takes memory of its own")
	}
	for _, c := range []struct{ keys, value int }{{200_000, 5}, {100_000, 100}, {20_000, 2000}} {
		t.Run(fmt.Sprintf("%d keys with %d bytes", c.keys, c.value), func(t *testing.T) {
			log := &fakeLog{}
			for i := range c.keys {
				log.records = append(log.records, evlog.Record{
					Offset: uint64(i), Key: fmt.Appendf(nil, "key-%012d", i), Value: make([]byte, c.value),
				})
			}
			heap := func() int64 {
				var m runtime.MemStats
				runtime.GC()
				runtime.GC()
				runtime.ReadMemStats(&m)
				return int64(m.HeapAlloc)
			}
			before := heap()
			v := open(t, t.Context(), log, nil)
			// What a goroutine that was stopped in mid-work still points to is garbage
			// only later.
			real := heap() - before
			for tries := 0; tries < 200 && real > v.Bytes()*6/5; tries++ {
				time.Sleep(5 * time.Millisecond)
				real = min(real, heap()-before)
			}
			t.Logf("%d bytes by the heap, %d by Bytes", real, v.Bytes())
			require.InEpsilon(t, real, v.Bytes(), 0.2)
			runtime.KeepAlive(log)
			// Deleted keys give their memory back.
			log.add(func(add func(evlog.Record)) {
				for i := range c.keys {
					add(evlog.Record{Key: fmt.Appendf(nil, "key-%012d", i)})
				}
			})
			require.NoError(t, v.Wait(t.Context(), log.end()))
			require.Zero(t, v.Bytes())
			require.Zero(t, v.Len())
			log.mu.Lock()
			log.records = slices.Clone(log.records[:c.keys])
			log.mu.Unlock()
			require.Less(t, heap()-before, real/4+1<<20)
			require.NoError(t, v.Close())
		})
	}
}

// Only holes are left below the offset that is waited for.
func TestTable_WaitKnowsHoles(t *testing.T) {
	log := &fakeLog{}
	log.add(func(add func(evlog.Record)) { add(kv("a", "1")) })
	v := open(t, t.Context(), log, nil)
	waiting := make(chan error, 1)
	go func() { waiting <- v.Wait(t.Context(), 5) }()
	log.mu.Lock()
	log.durable = 10
	log.mu.Unlock()
	require.NoError(t, <-waiting)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, v.Wait(ctx, 50), context.Canceled)
}

// The same where the view waits beyond the holes, and retention has removed what lies
// in front of them since: nobody tells it.
func TestTable_WaitKnowsHolesBehindRetention(t *testing.T) {
	log := &fakeLog{}
	log.add(func(add func(evlog.Record)) { add(kv("a", "1")) })
	v := open(t, t.Context(), log, nil)
	waiting := func() (is bool) {
		log.mu.Lock()
		defer log.mu.Unlock()
		if is = log.passed == 10; is {
			log.first = 5
		}
		return is
	}
	log.mu.Lock()
	log.durable = 10
	log.wakeLocked()
	log.mu.Unlock()
	require.Eventually(t, waiting, 20*time.Second, time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for _, next := range []uint64{5, 8, 10} {
		require.NoError(t, v.Wait(ctx, next))
	}
	log.add(func(add func(evlog.Record)) { add(kv("b", "1")) })
	require.NoError(t, v.Wait(ctx, 11))
	require.Contains(t, values(v), "b")
}

// Retention overtakes a view: it makes itself anew from what is left. Until that
// is done it shows the old state.
func TestTable_OvertakenByRetention(t *testing.T) {
	log := &fakeLog{}
	log.add(func(add func(evlog.Record)) {
		add(kv("gone", "1"))
		add(kv("stays", "1"))
	})
	v := open(t, t.Context(), log, nil)
	old := values(v)
	log.mu.Lock()
	log.hold = make(chan struct{})
	hold := log.hold
	log.first = 5
	log.records = append(log.records, evlog.Record{Offset: 6, Key: []byte("stays"), Value: []byte("2")})
	log.durable = 7
	log.wakeLocked()
	log.mu.Unlock()
	<-log.held(hold)
	require.Equal(t, old, values(v))
	require.Equal(t, uint64(2), v.Next())
	close(hold)
	require.NoError(t, v.Wait(t.Context(), 7))
	require.Equal(t, map[string]string{"stays": "2"}, values(v))
	log.add(func(add func(evlog.Record)) { add(kv("more", "3")) })
	require.NoError(t, v.Wait(t.Context(), log.end()))
	require.Equal(t, map[string]string{"stays": "2", "more": "3"}, values(v))
	require.NoError(t, v.Err())
}

func TestTable_ErrorsOfTheLog(t *testing.T) {
	boom := fmt.Errorf("the disk is gone")
	log := &fakeLog{fail: boom}
	_, err := table.Open(t.Context(), log, nil)
	require.ErrorIs(t, err, boom)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = table.Open(ctx, evlogtest.OpenMem(t, nil).Reader(), nil)
	require.ErrorIs(t, err, context.Canceled)

	l := evlogtest.OpenMem(t, nil)
	v := open(t, t.Context(), l.Reader(), nil)
	require.NoError(t, l.Close())
	<-v.Done()
	require.ErrorIs(t, v.Err(), evlog.ErrClosed)
	require.ErrorIs(t, v.Wait(t.Context(), 1), evlog.ErrClosed)
	require.NoError(t, v.Close())
	require.ErrorIs(t, v.Err(), evlog.ErrClosed, "the first reason stays")
}

// Reads, snapshots and waits beside the follower; a snapshot is of one offset.
func TestTable_Concurrent(t *testing.T) {
	l := evlogtest.OpenMem(t, nil)
	v := open(t, t.Context(), l.Reader(), nil)
	var wg sync.WaitGroup
	var ended atomic.Bool
	for range 4 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(rand.Uint64(), 1))
			for !ended.Load() {
				// Each batch sets all keys to its number, so two offsets apart by
				// less than a batch show two numbers at most.
				seen := map[string]bool{}
				for _, e := range v.All() {
					seen[string(e.Value)] = true
				}
				if len(seen) > 2 {
					t.Errorf("%d different values", len(seen))
				}
				v.Get(fmt.Sprint(rng.IntN(10)))
				_, _, _ = v.Bytes(), v.Len(), v.Next()
				runtime.Gosched()
			}
		})
	}
	for i := range 300 {
		var batch []evlog.Record
		for k := range 10 {
			batch = append(batch, kv(fmt.Sprint(k), fmt.Sprint(i)))
		}
		first, err := l.Append(t.Context(), batch...)
		require.NoError(t, err)
		if i%20 == 0 {
			require.NoError(t, v.Wait(t.Context(), first+10))
			e, ok := v.Get("9")
			require.True(t, ok)
			require.Equal(t, fmt.Sprint(i), string(e.Value))
		}
	}
	ended.Store(true)
	wg.Wait()
}

// fakeLog is a log in a slice that a test can do anything with.
type fakeLog struct {
	mu      sync.Mutex
	records []evlog.Record
	first   uint64
	durable uint64
	passed  uint64 // up to where the follower has read
	fail    error
	hold    chan struct{} // Records waits for it, and says so
	holding chan struct{}
	changed chan struct{}
}

var _ cursor.Log = (*fakeLog)(nil)

func (l *fakeLog) ID() string { return "fake" }

func (l *fakeLog) end() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.endLocked()
}

func (l *fakeLog) endLocked() uint64 {
	if n := len(l.records); n > 0 {
		return max(l.durable, l.records[n-1].Offset+1)
	}
	return l.durable
}

func (l *fakeLog) add(f func(add func(evlog.Record))) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(func(r evlog.Record) {
		r.Offset = l.endLocked()
		l.records = append(l.records, r)
	})
	l.wakeLocked()
}

func (l *fakeLog) wakeLocked() {
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// held is closed when somebody waits for hold.
func (l *fakeLog) held(chan struct{}) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holding == nil {
		l.holding = make(chan struct{})
	}
	return l.holding
}

func (l *fakeLog) Bounds(context.Context) (first, next uint64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.first, l.endLocked(), l.fail
}

func (l *fakeLog) Records(_ context.Context, from uint64) iter.Seq2[evlog.Record, error] {
	return func(yield func(evlog.Record, error) bool) {
		l.mu.Lock()
		hold := l.hold
		if hold != nil && l.holding == nil {
			l.holding = make(chan struct{})
		}
		holding := l.holding
		l.hold, l.holding = nil, nil
		l.mu.Unlock()
		if hold != nil {
			close(holding)
			<-hold
		}
		l.pass(from, yield)
	}
}

// pass yields what there is, and returns where it ended.
func (l *fakeLog) pass(from uint64, yield func(evlog.Record, error) bool) (next uint64, more bool) {
	l.mu.Lock()
	records, first, end, fail := slices.Clone(l.records), l.first, l.endLocked(), l.fail
	l.mu.Unlock()
	if from < first {
		fail = &evlog.OffsetError{Asked: from, First: first, Next: end}
	}
	if fail != nil {
		yield(evlog.Record{}, fail)
		return 0, false
	}
	for _, r := range records {
		if r.Offset >= from && !yield(r, nil) {
			return 0, false
		}
	}
	return max(from, end), true
}

func (l *fakeLog) Follow(ctx context.Context, from uint64) iter.Seq2[evlog.Record, error] {
	return func(yield func(evlog.Record, error) bool) {
		for more := true; more; {
			l.mu.Lock()
			if l.changed == nil {
				l.changed = make(chan struct{})
			}
			changed := l.changed
			l.mu.Unlock()
			if from, more = l.pass(from, yield); !more {
				return
			}
			l.mu.Lock()
			l.passed = from
			l.mu.Unlock()
			select {
			case <-changed:
			case <-ctx.Done():
				yield(evlog.Record{}, ctx.Err())
				return
			}
		}
	}
}

// A reader that is told to go on where retention has overtaken it does not do so
// under a table: what was deleted meanwhile would stay in it for ever.
func TestTable_OfAReaderThatGoesOn(t *testing.T) {
	dir := evlogtest.NewDir(t)
	l := dir.Open(&evlog.Options{SegmentBytes: 100, NoRetention: true})
	ctx := t.Context()
	// It looks again only when everything below has happened, as a rule.
	r := dir.Reader(&evlog.ReaderOptions{
		PollInterval: time.Second, NoFileEvents: true,
		OnBehind: func(*evlog.OffsetError) bool { return true },
	})
	put := func(r evlog.Record) {
		_, err := l.Append(ctx, r)
		require.NoError(t, err)
		require.NoError(t, l.Roll(ctx))
	}
	put(kv("a", "1"))
	put(kv("b", "1"))
	v := open(t, ctx, r, nil)
	put(kv("a", ""))
	for i := range 5 {
		put(kv(fmt.Sprint("c", i), "1"))
	}
	_, err := l.Retain(ctx, &evlog.RetainOptions{Below: 5})
	require.NoError(t, err)
	require.NoError(t, v.Wait(ctx, l.Stats().NextOffset))
	// What is left is either of the log as it is, where the view was overtaken, or
	// of all of it, where a quick reader had seen that before the removal.
	left := map[string]string{"c2": "1", "c3": "1", "c4": "1"}
	if all := values(v); len(all) > len(left) {
		maps.Copy(left, map[string]string{"b": "1", "c0": "1", "c1": "1"})
	}
	require.Equal(t, left, values(v))
}
