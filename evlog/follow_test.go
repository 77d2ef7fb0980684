package evlog_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/internal/vfs"
)

// followers are the ways to follow a log.
func followers(t *testing.T, f func(t *testing.T, open func(p place, l *evlog.Log) *evlog.Reader)) {
	t.Run("in process", func(t *testing.T) {
		f(t, func(_ place, l *evlog.Log) *evlog.Reader { return l.Reader() })
	})
	t.Run("second reader", func(t *testing.T) {
		f(t, func(p place, _ *evlog.Log) *evlog.Reader { return p.reader(t, nil) })
	})
	t.Run("polling", func(t *testing.T) {
		f(t, func(p place, _ *evlog.Log) *evlog.Reader {
			return p.reader(t, &evlog.ReaderOptions{NoFileEvents: true})
		})
	})
	t.Run("fixed interval", func(t *testing.T) {
		f(t, func(p place, _ *evlog.Log) *evlog.Reader {
			return p.reader(t, &evlog.ReaderOptions{NoFileEvents: true, PollInterval: time.Millisecond})
		})
	})
}

func TestFollow_SeesEveryRecordOnce(t *testing.T) {
	followers(t, func(t *testing.T, open func(place, *evlog.Log) *evlog.Reader) {
		eachPlace(t, func(t *testing.T, p place) {
			l := p.open(t, &evlog.Options{SegmentBytes: 200}) // rolls under the follower
			r := open(p, l)
			const n = 300
			var wg sync.WaitGroup
			wg.Go(func() {
				for i := range n {
					if _, err := l.Append(p.ctx, numbered(i, 1)...); err != nil {
						t.Error(err)
						return
					}
				}
			})
			got := take(t, r.Follow(p.ctx, 0), n)
			wg.Wait()
			sameRecs(t, recsAt(0, numbered(0, n)...), got)
		})
	})
}

func TestFollow_StartsAnywhere(t *testing.T) {
	followers(t, func(t *testing.T, open func(place, *evlog.Log) *evlog.Reader) {
		p, _ := inMem(t)
		l := p.open(t, tiny())
		appendEach(t, p.ctx, l, numbered(0, 20)...)
		r := open(p, l)
		for _, from := range []uint64{0, 7, 19, 20} {
			c := make(chan []evtest.Rec, 1)
			end := l.Stats().NextOffset
			go func() { c <- take(t, r.Follow(p.ctx, from), int(end-from)+2) }()
			for range 2 {
				i := int(l.Stats().NextOffset)
				_, err := l.Append(p.ctx, numbered(i, 1)...)
				require.NoError(t, err)
			}
			got := inTime(t, "followed", c)
			sameRecs(t, recsAt(from, numbered(int(from), len(got))...), got)
		}
	})
}

// A follower sees a hole as nothing at all, also one at the end.
func TestFollow_AcrossHoles(t *testing.T) {
	followers(t, func(t *testing.T, open func(place, *evlog.Log) *evlog.Reader) {
		p, _ := inMem(t)
		l := p.open(t, tiny())
		c := make(chan []evtest.Rec, 1)
		r := open(p, l)
		go func() { c <- take(t, r.Follow(p.ctx, 0), 40) }()
		off := uint64(0)
		for i := range 40 {
			off += uint64(i*i) + 1
			rec := numbered(i, 1)[0]
			rec.Offset = off
			require.NoError(t, l.AppendExact(p.ctx, rec))
			if i%7 == 0 {
				require.NoError(t, l.Roll(p.ctx))
			}
		}
		got := inTime(t, "followed", c)
		require.Equal(t, off, got[39].Offset)
	})
}

func TestFollow_EndsWithItsContext(t *testing.T) {
	followers(t, func(t *testing.T, open func(place, *evlog.Log) *evlog.Reader) {
		p, _ := inMem(t)
		l := p.open(t, nil)
		r := open(p, l)
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(p.ctx)
		q := p
		q.ctx = ctx
		f := followInto(q, r, 0)
		_, err := l.Append(p.ctx, rec("k", "v"))
		require.NoError(t, err)
		cancel(cause)
		if err := inTime(t, "the follower", f.done); err != nil {
			require.ErrorIs(t, err, context.Canceled)
		}
		require.LessOrEqual(t, len(f.recs), 1)
	})
}

func TestFollow_CloseWakesFollowersOfThisProcess(t *testing.T) {
	p, _ := inMem(t)
	l := p.open(t, nil)
	want := appendEach(t, p.ctx, l, numbered(0, 5)...)
	var fs []*followed
	for i := range 5 {
		fs = append(fs, followInto(p, l.Reader(), uint64(i)))
	}
	_, err := l.Enqueue(p.ctx, numbered(5, 1)...)
	require.NoError(t, err)
	require.NoError(t, l.Close())
	for i, f := range fs {
		require.ErrorIs(t, inTime(t, "the follower", f.done), evlog.ErrClosed)
		sameRecs(t, append(want, recsAt(5, numbered(5, 1)...)...)[i:][:len(f.recs)], f.recs)
	}
}

// A reader outlives the writer, and goes on with the next one.
func TestFollow_GoesOnWithTheNextWriter(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		l := p.open(t, tiny())
		r := p.reader(t, nil)
		c := make(chan []evtest.Rec, 1)
		go func() { c <- take(t, r.Follow(p.ctx, 0), 60) }()
		for i := range 6 {
			appendEach(t, p.ctx, l, numbered(i*10, 10)...)
			require.NoError(t, l.Close())
			l = p.open(t, nil)
		}
		sameRecs(t, recsAt(0, numbered(0, 60)...), inTime(t, "followed", c))
	})
}

// An idle follower costs next to nothing, whether or not the system tells it
// about changes.
func TestFollow_IdleCostsNothing(t *testing.T) {
	var mu sync.Mutex
	ops := 0
	p := onFS(t, vfs.Inject(vfs.NewMem(), func(vfs.Op) error {
		mu.Lock()
		ops++
		mu.Unlock()
		return nil
	}))
	l := p.open(t, nil)
	_, err := l.Append(p.ctx, rec("k", "v"))
	require.NoError(t, err)
	seen := make(chan evtest.Rec, 10)
	done := make(chan error, 1)
	go func() {
		var last error
		for r, err := range l.Reader().Follow(p.ctx, 0) {
			if last = err; err == nil {
				seen <- evtest.RecOf(r)
			}
		}
		done <- last
	}()
	inTime(t, "the first", seen)
	g := followInto(p, p.reader(t, &evlog.ReaderOptions{PollInterval: time.Hour}), 0)
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return ops
	}
	last := -1
	soon(t, "idle", func() bool {
		time.Sleep(150 * time.Millisecond) // the writer syncs DURABLE once
		now := count()
		same := now == last
		last = now
		return same
	})
	_, err = l.Append(p.ctx, rec("k", "w"))
	require.NoError(t, err)
	require.Equal(t, "w", string(inTime(t, "woken at once", seen).Value))
	require.NoError(t, l.Close())
	require.ErrorIs(t, inTime(t, "in process", done), evlog.ErrClosed)
	_ = g
}

// Who is woken in the active segment reads the records, and asks nothing about the file.
func TestFollow_WokenDoesNotAskForTheSize(t *testing.T) {
	var stats atomic.Int64
	p := onFS(t, vfs.Inject(vfs.NewMem(), func(op vfs.Op) error {
		if op.Kind == vfs.OpStat && strings.HasSuffix(op.Name, ".log") {
			stats.Add(1)
		}
		return nil
	}))
	l := p.open(t, &evlog.Options{NoPreallocate: true})
	_, err := l.Append(p.ctx, rec("k", "first"))
	require.NoError(t, err)
	seen, done := make(chan string, 1), make(chan error, 1)
	go func() {
		var last error
		for r, err := range l.Reader().Follow(p.ctx, 0) {
			if last = err; err == nil {
				seen <- string(r.Value)
			}
		}
		done <- last
	}()
	require.Equal(t, "first", inTime(t, "the first", seen))
	require.NotZero(t, stats.Load())
	stats.Store(0)
	for i := range 100 {
		value := fmt.Sprint(i)
		_, err := l.Append(p.ctx, rec("k", value))
		require.NoError(t, err)
		require.Equal(t, value, inTime(t, "woken", seen))
	}
	require.Zero(t, stats.Load())
	require.NoError(t, l.Close())
	require.ErrorIs(t, inTime(t, "the end", done), evlog.ErrClosed)
}

func TestFollow_SlowReaderFastWriter(t *testing.T) {
	p, _ := inMem(t)
	l := p.open(t, &evlog.Options{SegmentBytes: 100, BufferBytes: 1000})
	r := p.reader(t, nil)
	const n = 200
	var got []evtest.Rec
	appendEach(t, p.ctx, l, numbered(0, 1)...)
	appended := 1
	for rec, err := range r.Follow(p.ctx, 0) {
		require.NoError(t, err)
		got = append(got, evtest.RecOf(rec))
		for ; appended < n && appended < 3*len(got)+3; appended++ {
			_, err := l.Append(p.ctx, numbered(appended, 1)...)
			require.NoError(t, err)
		}
		if len(got) == n {
			break
		}
	}
	sameRecs(t, recsAt(0, numbered(0, n)...), got)
}

func TestFollow_NeverShowsWhatIsNotDurable(t *testing.T) {
	p, m := inMem(t)
	l := p.open(t, &evlog.Options{SegmentBytes: 300})
	r := p.reader(t, &evlog.ReaderOptions{PollInterval: time.Millisecond, NoFileEvents: true})
	var wg sync.WaitGroup
	const n = 150
	for c := range 3 {
		wg.Go(func() {
			for i := range n / 3 {
				if _, err := l.Append(p.ctx, rec("k", fmt.Sprintf("%d/%d", c, i))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	// The image is taken after the record was seen.
	var got []evtest.Rec
	for rec, err := range r.Follow(p.ctx, 0) {
		require.NoError(t, err)
		got = append(got, evtest.RecOf(rec))
		if len(got)%10 == 0 {
			im, err := evtest.ReadFS(m.SyncedImage(), p.dir)
			require.NoError(t, err)
			out := im.Writer()
			require.NoError(t, out.Err)
			sameRecs(t, got, out.Recs[:min(len(got), len(out.Recs))])
		}
		if len(got) == n {
			break
		}
	}
	wg.Wait()
}
