package evlog_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/evlog/evlogtest"
	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/internal/vfs"
)

func TestOpen_ManyAtOnceMakeOneLog(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		var opened atomic.Int32
		var wg sync.WaitGroup
		hold := make(chan struct{})
		for range 16 {
			wg.Go(func() {
				l, err := evlog.Open(p.ctx, p.dir, nil)
				if err != nil {
					if !errors.Is(err, evlog.ErrLocked) {
						t.Error(err)
					}
					return
				}
				opened.Add(1)
				<-hold
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		soon(t, "one is open", func() bool { return opened.Load() > 0 })
		require.ErrorIs(t, p.refused(t, nil), evlog.ErrLocked)
		close(hold)
		wg.Wait()
		p.verified(t)
	})
}

func TestOpen_ContextEnds(t *testing.T) {
	im, want := logWith(t, nil, 300)
	delete(im, evtest.IndexFile(0)) // so that the segment has to be read
	p := placeWith(t, im)
	ctx, cancel := context.WithCancel(p.ctx)
	cancel()
	_, err := evlog.Open(ctx, p.dir, nil)
	require.ErrorIs(t, err, context.Canceled)
	_, err = evlog.Open(ctx, p.dir, &evlog.Options{Verify: evlog.VerifyAll})
	require.ErrorIs(t, err, context.Canceled)
	l := p.open(t, nil)
	sameRecs(t, want, p.all(t))
	require.NoError(t, l.Close())
}

func TestOpen_LockFile(t *testing.T) {
	clock := evlogtest.NewClock(time.UnixMilli(1_758_337_200_123))
	p, _ := inMem(t)
	l := p.open(t, &evlog.Options{Clock: clock})
	host, err := os.Hostname()
	require.NoError(t, err)
	want := fmt.Sprintf("\n%d %s %d\n", os.Getpid(), host, int64(1_758_337_200_123))
	require.Equal(t, want, string(p.image(t)["LOCK"]))
	require.Equal(t, os.Getpid(), status(t, p).Holder.PID)
	require.NoError(t, l.Close())
	require.Zero(t, status(t, p).Holder.PID)
}

func TestOpen_FileModes(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("has no modes")
	}
	p := onDisk(t)
	l := p.open(t, tiny())
	appendEach(t, p.ctx, l, numbered(0, 40)...)
	require.NoError(t, l.Close())
	info, err := os.Stat(p.dir)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o700), info.Mode().Perm())
	entries, err := os.ReadDir(p.dir)
	require.NoError(t, err)
	for _, e := range entries {
		info, err := e.Info()
		require.NoError(t, err)
		require.Zero(t, info.Mode().Perm()&0o077, "%s is %v", e.Name(), info.Mode())
	}
}

func TestOpen_PathIsAFile(t *testing.T) {
	p := onDisk(t)
	require.NoError(t, os.WriteFile(p.dir, []byte("x"), 0o600))
	require.Contains(t, p.refused(t, nil).Error(), p.dir)
	_, err := evlog.OpenReader(p.ctx, p.dir, nil)
	require.Error(t, err)
	p.dir = filepath.Join(p.dir, "below")
	require.Error(t, p.refused(t, nil))
}

func TestEvents_TellWhatHappened(t *testing.T) {
	im := build().segment(0, 0, 1).tail(0, 1, 2, 3, 4, 5).durable(2, 0).im
	p := placeWith(t, im)
	var mu sync.Mutex
	var events []evlog.Event
	l := p.open(t, &evlog.Options{SegmentBytes: 1 << 20, OnEvent: func(e evlog.Event) {
		mu.Lock()
		defer mu.Unlock()
		events = append(events, e)
	}})
	_, err := l.Append(p.ctx, rec("k", "v"))
	require.NoError(t, err)
	require.NoError(t, l.Roll(p.ctx))
	require.NoError(t, l.Close())
	has := func(want evlog.Event) {
		t.Helper()
		for _, e := range events {
			if e == want {
				return
			}
		}
		require.Fail(t, "no such event", "%+v in %+v", want, events)
	}
	has(evlog.Event{Kind: evlog.EventConfigured})
	has(evlog.Event{Kind: evlog.EventOpened, Base: 0, Offset: 2, Bytes: 5})
	has(evlog.Event{Kind: evlog.EventRolled, Base: 3, Offset: 3})
	has(evlog.Event{Kind: evlog.EventIndexed, Base: 0})
}

// The closing time is in the file's own time too, for when the index is lost.
func TestRoll_SetsTheClosingTime(t *testing.T) {
	clock := evlogtest.NewClock(time.UnixMilli(1_700_000_000_000).UTC())
	p, m := inMem(t)
	l := p.open(t, &evlog.Options{Clock: clock})
	appendEach(t, p.ctx, l, numbered(0, 2)...)
	clock.Advance(time.Hour)
	closed := clock.Now()
	require.NoError(t, l.Roll(p.ctx))
	for _, m := range []*vfs.Mem{m, m.SyncedImage()} {
		d, err := m.OpenDir(p.dir)
		require.NoError(t, err)
		defer d.Close()
		info, err := d.Stat(evtest.SegmentFile(0))
		require.NoError(t, err)
		require.Equal(t, closed.UnixMilli(), info.ModTime().UnixMilli())
	}
	soon(t, "indexed", func() bool { return len(p.image(t)[evtest.IndexFile(0)]) > 0 })
	segs, err := l.Reader().Segments(p.ctx)
	require.NoError(t, err)
	require.Equal(t, closed.UnixMilli(), segs[0].Closed.UnixMilli())
}

func TestReindex_ProgressAndCancel(t *testing.T) {
	im, want := logWith(t, &evlog.Options{SegmentBytes: 150}, 30)
	eachIndex(im, func(name string) { delete(im, name) })
	p := placeWith(t, im)
	n := len(im.Bases())
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	_, err := evlog.Reindex(ctx, p.dir, func(done, _ int) {
		if done == 2 {
			cancel()
		}
	})
	require.ErrorIs(t, err, context.Canceled)
	var last, total int
	_, err = evlog.Reindex(p.ctx, p.dir, func(d, n int) {
		require.GreaterOrEqual(t, d, last)
		last, total = d, n
	})
	require.NoError(t, err)
	require.Equal(t, total, last)
	rep := p.verified(t)
	indexed := 0
	for _, s := range rep.Segments {
		if s.Indexed {
			indexed++
		}
	}
	require.GreaterOrEqual(t, indexed, n-1)
	sameRecs(t, want, p.all(t))
}

// Close waits for a Reindex that is at a segment, and ends it: afterwards the
// directory may be another writer's.
func TestReindex_EndedByClose(t *testing.T) {
	im, _ := logWith(t, &evlog.Options{SegmentBytes: 150}, 30)
	p := placeWith(t, im)
	var armed atomic.Bool
	at, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	p = p.on(vfs.Inject(p.fsys, func(op vfs.Op) error {
		if armed.Load() && op.Kind == vfs.OpWrite && strings.HasSuffix(op.Name, ".build.tmp") {
			once.Do(func() {
				close(at)
				<-goOn
			})
		}
		return nil
	}))
	l := p.open(t, nil)
	quiet(t, p)
	armed.Store(true)
	reindexed, closed := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := l.Reindex(p.ctx, nil)
		reindexed <- err
	}()
	inTime(t, "reindexing", at)
	go func() { closed <- l.Close() }()
	_, err := l.Reindex(p.ctx, nil) // waits for the other one, or for Close to get there
	require.ErrorIs(t, err, evlog.ErrClosed)
	select {
	case err := <-closed:
		require.FailNow(t, "Close came back before Reindex", "%v", err)
	case <-time.After(20 * time.Millisecond): // too soon to tell is no failure
	}
	close(goOn)
	require.ErrorIs(t, inTime(t, "Reindex", reindexed), evlog.ErrClosed)
	require.NoError(t, inTime(t, "Close", closed))
	for name := range p.image(t) {
		require.False(t, strings.HasSuffix(name, ".tmp"), name)
	}
	_, err = l.Reindex(p.ctx, nil)
	require.ErrorIs(t, err, evlog.ErrClosed)
}

// A closing time and an end that only the index knows survive a rebuild.
func TestReindex_KeepsWhatOnlyTheIndexKnows(t *testing.T) {
	clock := evlogtest.NewClock(time.UnixMilli(1_700_000_000_000))
	p, _ := inMem(t)
	l := p.open(t, &evlog.Options{Clock: clock, SegmentBytes: 150})
	appendEach(t, p.ctx, l, numbered(0, 12)...)
	require.NoError(t, l.Close())
	r := p.reader(t, nil)
	before, err := r.Segments(p.ctx)
	require.NoError(t, err)
	p.lets(t, r)
	clock.Advance(24 * time.Hour)
	_, err = evlog.Reindex(p.ctx, p.dir, nil)
	require.NoError(t, err)
	after, err := p.reader(t, nil).Segments(p.ctx)
	require.NoError(t, err)
	require.Equal(t, before, after)
}

func TestVerify_BesideALiveWriter(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		l := p.open(t, &evlog.Options{SegmentBytes: 1500, IndexBytes: 100})
		done := make(chan struct{})
		var wg sync.WaitGroup
		for c := range 4 {
			wg.Go(func() {
				for i := range 400 {
					if _, err := l.Append(p.ctx, rec("k", fmt.Sprintf("%d/%d", c, i))); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		go func() { wg.Wait(); close(done) }()
		for writing := true; writing; {
			select {
			case <-done:
				writing = false
			default:
			}
			rep, err := evlog.Verify(p.ctx, p.dir, nil)
			require.NoError(t, err)
			require.True(t, rep.OK(), "%+v", rep.Problems)
		}
		require.NoError(t, l.Close())
		require.EqualValues(t, 1600, p.verified(t).Records)
	})
}

func TestVerify_ProgressAndCancel(t *testing.T) {
	im, _ := logWith(t, &evlog.Options{SegmentBytes: 150}, 30)
	p := placeWith(t, im)
	var last, total int64
	_, err := evlog.Verify(p.ctx, p.dir, &evlog.VerifyOptions{Progress: func(done, all int64) {
		require.GreaterOrEqual(t, done, last)
		last, total = done, all
	}})
	require.NoError(t, err)
	require.Equal(t, total, last)
	require.Positive(t, total)
	ctx, cancel := context.WithCancel(p.ctx)
	cancel()
	_, err = evlog.Verify(ctx, p.dir, nil)
	require.ErrorIs(t, err, context.Canceled)
}

// Readers in any number come and go while the writer writes, and each sees a
// log that only grows.
func TestReader_ComeAndGoBesideAWriter(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		l := p.open(t, &evlog.Options{SegmentBytes: 1000, IndexBytes: 100})
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				for i := range 600 {
					if _, err := l.Append(p.ctx, rec("k", strings.Repeat("x", i%90))); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		for c := range 3 {
			wg.Go(func() {
				var next uint64
				for range 25 {
					r, err := evlog.OpenReader(p.ctx, p.dir, &evlog.ReaderOptions{NoFileEvents: c == 0})
					if err != nil {
						t.Error(err)
						return
					}
					recs, err := collect(r.Records(p.ctx, next))
					if err != nil {
						t.Error(err)
					}
					for _, rec := range recs {
						if rec.Offset != next {
							t.Errorf("got %d, want %d", rec.Offset, next)
						}
						next = rec.Offset + 1
					}
					if err := r.Close(); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		require.NoError(t, l.Close())
		p.verified(t)
	})
}

func TestClose_ManyAtOnce(t *testing.T) {
	p, _ := inMem(t)
	l := p.open(t, nil)
	_, err := l.Enqueue(p.ctx, numbered(0, 10)...)
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	require.Len(t, p.all(t), 10)
}

// DURABLE is replaced by another file under followers that watch it.
func TestFollow_DurableReplacedUnderIt(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		l := p.open(t, nil)
		appendEach(t, p.ctx, l, numbered(0, 1)...)
		r := p.reader(t, nil)
		seen := make(chan evtest.Rec, 100)
		ctx, cancel := context.WithCancel(p.ctx)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for rec, err := range r.Follow(ctx, 0) {
				if err != nil {
					return
				}
				seen <- evtest.RecOf(rec)
			}
		}()
		inTime(t, "the first", seen)
		d, err := p.fsys.OpenDir(p.dir)
		require.NoError(t, err)
		defer d.Close()
		for i := 1; i < 6; i++ {
			require.NoError(t, d.Remove("DURABLE"))
			appendEach(t, p.ctx, l, numbered(i, 1)...)
			require.EqualValues(t, i, inTime(t, "followed on", seen).Offset)
		}
		cancel()
		inTime(t, "ended", done)
	})
}

func TestReader_WaitForMore(t *testing.T) {
	followers(t, func(t *testing.T, open func(place, *evlog.Log) *evlog.Reader) {
		p, _ := inMem(t)
		l := p.open(t, nil)
		r := open(p, l)
		done := make(chan error, 1)
		go func() { done <- r.Wait(p.ctx, 0) }()
		appendEach(t, p.ctx, l, numbered(0, 1)...)
		require.NoError(t, inTime(t, "Wait", done))
		require.NoError(t, r.Wait(p.ctx, 0), "it is there already")
		ctx, cancel := context.WithCancel(p.ctx)
		go func() { done <- r.Wait(ctx, 1) }()
		cancel()
		require.ErrorIs(t, inTime(t, "Wait", done), context.Canceled)
		go func() { done <- r.Wait(p.ctx, 1) }()
		if r == l.Reader() {
			require.NoError(t, l.Close())
		} else {
			require.NoError(t, r.Close())
		}
		require.ErrorIs(t, inTime(t, "Wait", done), evlog.ErrClosed)
		require.ErrorIs(t, r.Wait(p.ctx, 0), evlog.ErrClosed)
	})
}

func TestReader_HolderAndBeyondDurable(t *testing.T) {
	im := build().segment(0, upTo(0, 5)...).durable(2, 0).im
	p := placeWith(t, im)
	r := p.reader(t, nil)
	n, err := r.BeyondDurable(p.ctx)
	require.NoError(t, err)
	require.EqualValues(t, 3, n)
	require.Zero(t, r.Holder().PID)
	l := p.open(t, nil)
	require.Equal(t, os.Getpid(), r.Holder().PID)
	n, err = r.BeyondDurable(p.ctx)
	require.NoError(t, err)
	require.Zero(t, n)
	require.NoError(t, l.Close())
}

func TestRepair_OfALogThatLostEverySegment(t *testing.T) {
	for _, b := range []*builder{
		build().durableAt(evtest.Durable{Next: 7, Base: 4, Pos: 10}),
		build().durableAt(evtest.Durable{Next: 3}).file("consumers.json", []byte(`{"version":1,"log_id":"`+builtID+`","consumers":{"a":{"next_offset":7,"updated_ms":1}}}`)),
	} {
		p := placeWith(t, b.im)
		require.ErrorIs(t, p.refused(t, nil), evlog.ErrCorrupt)
		require.ErrorIs(t, p.refused(t, &evlog.Options{MustExist: true}), evlog.ErrCorrupt)
		rep, err := evlog.Repair(p.ctx, p.dir, &evlog.RepairOptions{Execute: true})
		require.NoError(t, err)
		require.EqualValues(t, 7, rep.Next)
		require.Equal(t, []evlog.OffsetRange{{From: 0, To: 7}}, status(t, p).Gaps)
		l := p.open(t, nil)
		off, err := l.Append(p.ctx, rec("k", "v"))
		require.NoError(t, err)
		require.EqualValues(t, 7, off, "no offset comes back")
		require.NoError(t, l.Close())
		p.verified(t)
	}
}
