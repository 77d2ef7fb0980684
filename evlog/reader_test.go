package evlog_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/internal/vfs"
)

// randomLog makes a closed log with holes, tiny segments and every kind of

// record.

// interesting offsets: around every record and every hole.

// checkReader compares every kind of question with brute force over want.

// checkSegments adds up the records of each segment.

// The index of a segment that is being written, and of one that was taken up

// again.

// I7: derived data can be deleted or be wrong, and the answers are the same.

// lieInIndex moves offsets and positions of an index's first block and makes

// its checksum right again. An entry's highest time is left: nothing could tell

// that it is wrong but the whole segment.

func TestReader_EmptyLog(t *testing.T) {
	p, _ := inMem(t)
	l := p.open(t, nil)
	for _, r := range []*evlog.Reader{l.Reader(), p.reader(t, nil)} {
		first, next, err := r.Bounds(p.ctx)
		require.NoError(t, err)
		require.Zero(t, first)
		require.Zero(t, next)
		recs, err := collect(r.Records(p.ctx, 0))
		require.NoError(t, err)
		require.Empty(t, recs)
		recs, err = collect(r.Backward(p.ctx, math.MaxUint64))
		require.NoError(t, err)
		require.Empty(t, recs)
		_, err = r.Get(p.ctx, 0)
		require.ErrorIs(t, err, evlog.ErrNotFound)
		_, err = r.Latest(p.ctx, []byte("k"))
		require.ErrorIs(t, err, evlog.ErrNotFound)
		off, err := r.OffsetAt(p.ctx, time.UnixMilli(0))
		require.ErrorIs(t, err, evlog.ErrNotFound)
		require.Zero(t, off)
		segs, err := r.Segments(p.ctx)
		require.NoError(t, err)
		require.Len(t, segs, 1)
		require.Equal(t, evlog.SegmentActive, segs[0].State)
	}
	p.verified(t)
}

func TestReader_OffsetBeyondTheEnd(t *testing.T) {
	p, _ := inMem(t)
	l := p.open(t, tiny())
	appendEach(t, p.ctx, l, numbered(0, 20)...)
	for _, r := range []*evlog.Reader{l.Reader(), p.reader(t, nil)} {
		for _, off := range []uint64{21, 22, 1 << 40, math.MaxUint64} {
			recs, err := collect(r.Records(p.ctx, off))
			require.Empty(t, recs)
			require.ErrorIs(t, err, evlog.ErrOffsetOutOfRange, "from %d", off)
			var oe *evlog.OffsetError
			require.ErrorAs(t, err, &oe)
			require.Equal(t, evlog.OffsetError{Asked: off, First: 0, Next: 20}, *oe)
			_, err = collect(r.Follow(p.ctx, off))
			require.ErrorIs(t, err, evlog.ErrOffsetOutOfRange, "follow from %d", off)
		}
		recs, err := collect(r.Records(p.ctx, 20))
		require.NoError(t, err, "at the end is fine")
		require.Empty(t, recs)
	}
}

// What an old DURABLE hides is not beyond the log: a cursor there waits.

// posOf is the position of an offset's record in the segment with base 0.

// A reader takes no lock, writes nothing, and needs no writer.

func TestReader_ChangesNothing(t *testing.T) {
	im, want := randomLog(t, 3, 60)
	m := vfs.NewMem()
	onFS(t, m).put(t, im)
	p := onFS(t, vfs.Inject(m, func(op vfs.Op) error {
		if op.Kind&(changesLog|vfs.OpLock|vfs.OpMkdir) != 0 {
			return syscall.EROFS
		}
		return nil
	}))
	before := m.Ops()
	r := p.reader(t, nil)
	checkReader(t, p.ctx, r, want, evtest.Rand(1))
	_, err := r.Segments(p.ctx)
	require.NoError(t, err)
	_, err = r.Status(p.ctx)
	require.NoError(t, err)
	p.verified(t)
	rep, err := evlog.Repair(p.ctx, p.dir, nil)
	require.NoError(t, err)
	require.False(t, rep.Executed)
	require.Equal(t, before, m.Ops())
	require.ErrorIs(t, p.refused(t, nil), syscall.EROFS)
}

// I2: nothing is seen before the sync that covers it has returned, in no

// process.

// Everything that any reader shows is at that moment safe from power failure.

func TestReader_IteratorCanBeLeftAndTakenAgain(t *testing.T) {
	im, want := randomLog(t, 5, 50)
	p := placeWith(t, im)
	r := p.reader(t, nil)
	seq := r.Records(p.ctx, want[0].Offset)
	for n := range len(want) {
		sameRecs(t, want[:n+1], take(t, seq, n+1))
	}
}

// Slices belong to the caller until the next step; Clone keeps them.

func TestReader_SlicesAndClone(t *testing.T) {
	p, _ := inMem(t)
	l := p.open(t, tiny())
	want := appendEach(t, p.ctx, l, numbered(0, 200)...)
	var clones []evlog.Record
	for r, err := range l.Reader().Records(p.ctx, 0) {
		require.NoError(t, err)
		c := r.Clone()
		_ = append(r.Key, "overflow"...)   // must not reach the value
		_ = append(r.Value, "overflow"...) // nor the next record
		require.True(t, c.Equal(r))
		clones = append(clones, c)
	}
	require.Len(t, clones, len(want))
	for i, c := range clones {
		require.True(t, want[i].Same(evtest.RecOf(c)))
	}
}

func TestReader_ManyAtOnce(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		l := p.open(t, tiny())
		want := appendEach(t, p.ctx, l, numbered(0, 150)...)
		r := p.reader(t, nil)
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for _, r := range []*evlog.Reader{r, l.Reader()} {
					got, err := collect(r.Records(p.ctx, uint64(i*10)))
					if err != nil || diffRecs(want[i*10:], got) != "" {
						t.Errorf("%v %s", err, diffRecs(want[i*10:], got))
					}
					if _, err := r.Get(p.ctx, uint64(i)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
	})
}

func TestReader_EndIsPinnedAtTheStart(t *testing.T) {
	p, _ := inMem(t)
	l := p.open(t, tiny())
	want := appendEach(t, p.ctx, l, numbered(0, 30)...)
	var got []evtest.Rec
	for r, err := range p.reader(t, nil).Records(p.ctx, 0) {
		require.NoError(t, err)
		got = append(got, evtest.RecOf(r))
		_, err := l.Append(p.ctx, rec("k", "never ends otherwise"))
		require.NoError(t, err)
	}
	sameRecs(t, want, got)
}

func TestReader_CloseEndsIterators(t *testing.T) {
	p, _ := inMem(t)
	l := p.open(t, nil)
	appendEach(t, p.ctx, l, numbered(0, 3)...)
	r := p.reader(t, nil)
	f := followInto(p, r, 0)
	require.NoError(t, r.Close())
	require.ErrorIs(t, inTime(t, "the follower", f.done), evlog.ErrClosed)
	_, err := collect(r.Records(p.ctx, 0))
	require.ErrorIs(t, err, evlog.ErrClosed)
	_, _, err = r.Bounds(p.ctx)
	require.ErrorIs(t, err, evlog.ErrClosed)
	_, err = r.Get(p.ctx, 0)
	require.ErrorIs(t, err, evlog.ErrClosed)
	_, err = r.Status(p.ctx)
	require.ErrorIs(t, err, evlog.ErrClosed)
	require.NoError(t, r.Close())
	require.Len(t, p.all(t), 3, "the log goes on")
}

func TestReader_ContextEnds(t *testing.T) {
	im, _ := randomLog(t, 8, 500)
	p := placeWith(t, im)
	r := p.reader(t, nil)
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	n := 0
	var last error
	for _, err := range r.Records(ctx, 0) {
		if err != nil {
			last = err
			continue
		}
		n++
		if n == 5 {
			cancel()
		}
	}
	require.ErrorIs(t, last, context.Canceled)
	require.Less(t, n, 500)
}

// FORMAT.md, Readers: a damaged or missing DURABLE is looked at again for 100

// ms; it may be in the middle of being written.

// keepAdvancing lets time pass until the returned function is called.

// A torn read of DURABLE beside a writer is not the end of the log.

// A hole reaches up to the durable offset, and a record behind it is on its

// way: a reader inside the hole must not take it early.

// An index that a clean close wrote describes a segment that grew afterwards:

// all of it is right, but for the size.

// The reader is closed before any of its operations on files: whoever reads

// gets ErrClosed or the whole answer, and nothing about files that are closed.

func TestReader_ClosedAtEveryOperation(t *testing.T) {
	im, want := randomLog(t, 12, 25)
	mid := want[len(want)/2]
	for name, ask := range map[string]func(ctx context.Context, r *evlog.Reader) error{
		"Records": func(ctx context.Context, r *evlog.Reader) error {
			got, err := collect(r.Records(ctx, 0))
			if err == nil && len(got) != len(want) {
				return fmt.Errorf("%d records and no error", len(got))
			}
			return err
		},
		"Follow": func(ctx context.Context, r *evlog.Reader) error {
			for _, err := range r.Follow(ctx, mid.Offset) {
				if err != nil {
					return err
				}
			}
			return errors.New("ended without an error")
		},
		"Backward": func(ctx context.Context, r *evlog.Reader) error {
			_, err := collect(r.Backward(ctx, math.MaxUint64))
			return err
		},
		"Get": func(ctx context.Context, r *evlog.Reader) error {
			_, err := r.Get(ctx, mid.Offset)
			return err
		},
		"OffsetAt": func(ctx context.Context, r *evlog.Reader) error {
			_, err := r.OffsetAt(ctx, time.UnixMilli(mid.TimeMS))
			return err
		},
		"OffsetOfLast": func(ctx context.Context, r *evlog.Reader) error {
			_, err := r.OffsetOfLast(ctx, 12)
			return err
		},
		"ByKey": func(ctx context.Context, r *evlog.Reader) error {
			_, err := collect(r.ByKey(ctx, []byte("key-1"), 0))
			return err
		},
		"Segments": func(ctx context.Context, r *evlog.Reader) error {
			_, err := r.Segments(ctx)
			return err
		},
		"Status": func(ctx context.Context, r *evlog.Reader) error {
			_, err := r.Status(ctx)
			return err
		},
		"Bounds": func(ctx context.Context, r *evlog.Reader) error {
			_, _, err := r.Bounds(ctx)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			for n := 1; ; n++ {
				m := vfs.NewMem()
				onFS(t, m).put(t, im)
				var s switchable
				p := onFS(t, vfs.Inject(m, s.run))
				r := p.reader(t, nil)
				var met atomic.Bool
				count := vfs.FailNth(vfs.OpAny&^vfs.OpClose, "", n, errors.New("now"))
				closed := make(chan error, 1)
				s.set(func(op vfs.Op) error {
					if count(op) != nil {
						met.Store(true)
						go func() { closed <- r.Close() }()
						runtime.Gosched()
						select { // it may have to wait for this very operation
						case err := <-closed:
							closed <- err
						case <-time.After(5 * time.Millisecond):
						}
					}
					return nil
				})
				done := make(chan error, 1)
				go func() { done <- ask(p.ctx, r) }()
				if name == "Follow" && n > 3 {
					select {
					case err := <-done:
						done <- err
					case <-time.After(20 * time.Millisecond):
						if !met.Load() { // it waits for records: the end
							_ = r.Close()
							require.ErrorIs(t, inTime(t, name, done), evlog.ErrClosed)
							return
						}
					}
				}
				err := inTime(t, name, done)
				if err != nil {
					require.ErrorIs(t, err, evlog.ErrClosed, "closed at operation %d", n)
				}
				if !met.Load() {
					require.NoError(t, err)
					return
				}
				require.NoError(t, inTime(t, "Close", closed))
			}
		})
	}
}
