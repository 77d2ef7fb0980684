package evlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/evlog-go/evlog/internal/format"
	"github.com/evlog-go/evlog/internal/invariant"
	"github.com/evlog-go/evlog/internal/strict"
)

// Records yields the records from offset from on, in order, up to the durable
// end as it was when the iteration began. Each is valid until the next step. An
// error is yielded last, with a zero Record: an *OffsetError when from is below
// the first offset left or beyond the end, a *CorruptError at damage (reading
// stops there, nothing is skipped), or the context's.
func (r *Reader) Records(ctx context.Context, from uint64) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		r.ascend(ctx, from, nil, r.startNow(ctx), yield)
	}
}

// ascend yields the records from offset from on, and may leave out ones without
// the key, unless it is nil.
func (r *Reader) ascend(
	ctx context.Context, from uint64, key *wantedKey, start startFunc, yield func(Record, error) bool,
) {
	w, err := r.iterate(ctx, from, start)
	if err != nil {
		yield(Record{}, err)
		return
	}
	w.key = key
	w.yieldAll(ctx, yield)
}

// yieldAll yields what the walker finds, an error last.
func (w *walker) yieldAll(ctx context.Context, yield func(Record, error) bool) {
	defer w.close()
	if err := w.each(ctx, yield); err != nil && err != errStopped {
		yield(Record{}, err)
	}
}

// Follow is Records that goes on: when everything durable has been read it
// waits for more, without using the processor, until ctx ends. It ends with the
// context's error, or ErrClosed when the reader or the log of this process is
// closed.
func (r *Reader) Follow(ctx context.Context, from uint64) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		w, err := r.iterate(ctx, from, r.startNow(ctx))
		if err != nil {
			yield(Record{}, err)
			return
		}
		defer w.close()
		wait, stop := r.src.waiter()
		defer stop()
		for {
			if err := w.each(ctx, yield); err != nil {
				if err != errStopped {
					yield(Record{}, err)
				}
				return
			}
			if err := w.await(ctx, wait); err != nil {
				yield(Record{}, err)
				return
			}
		}
	}
}

// Wait returns when the durable offset is above next: when a consumer that has
// read up to next can read on. It ends with ctx's error, or ErrClosed.
func (r *Reader) Wait(ctx context.Context, next uint64) error {
	if err := r.usable(); err != nil {
		return err
	}
	wait, stop := r.src.waiter()
	defer stop()
	for {
		if err := wait(ctx, next); err != nil {
			return err
		}
		d, err := r.durable(ctx)
		if err != nil || d.NextOffset > next {
			return err
		}
	}
}

// errStopped says that the caller has left the loop.
var errStopped = errors.New("iteration stopped")

// batchRecords is how many records are made at once. To pass on a record means to
// copy it, and right behind the writing of its fields one by one a copy would
// have to wait until they have arrived in the cache.
const batchRecords = 32

// each yields the records up to the limit.
func (w *walker) each(ctx context.Context, yield func(Record, error) bool) error {
	var batch [batchRecords]Record
	var run []byte
	for {
		// The context is looked at now and then: asking takes a lock.
		err := ctx.Err()
		if err == nil && len(run) == 0 {
			run, err = w.run(ctx)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		var n int
		n, run = w.cut(&batch, run)
		for i := range batch[:n] {
			if invariant.Enabled && (batch[i].Offset < w.next || batch[i].Offset >= w.limit.NextOffset) { // I2, I6
				invariant.Check(false, "record %d outside [%d, %d)", batch[i].Offset, w.next, w.limit.NextOffset)
			}
			w.next = batch[i].Offset + 1
			w.fr.seen++
			if !yield(batch[i], nil) {
				return errStopped
			}
		}
	}
}

// cut makes the first records of a run, and returns how many, and the rest of the
// run.
func (w *walker) cut(batch *[batchRecords]Record, run []byte) (n int, rest []byte) {
	for n < len(batch) && len(run) > 0 {
		offset, size := format.OffsetOf(run), format.SizeOf(run)
		if offset >= w.limit.NextOffset {
			// Not durable yet. It is read again when it is.
			w.fr.seek(w.fr.pos-int64(len(run)), w.limit.NextOffset)
			if n == 0 {
				w.next = w.limit.NextOffset
			}
			return n, nil
		}
		rec := run[:size]
		run = run[size:]
		if offset < w.next {
			w.fr.seen++
			continue
		}
		w.doubts = 0
		batch[n].set(rec, &w.time)
		n++
	}
	return n, run
}

// await waits until there is more than the limit, and moves it up.
func (w *walker) await(ctx context.Context, wait func(context.Context, uint64) error) error {
	w.fr.release() // any number may wait, for any time; what is unread is read again
	for {
		if err := wait(ctx, w.limit.NextOffset); err != nil {
			return err
		}
		d, err := w.r.durable(ctx)
		if err != nil {
			return err
		}
		if d.NextOffset > w.limit.NextOffset {
			return w.extend(d)
		}
	}
}

// startFunc makes a walker at an offset, or says why there can be none.
type startFunc func(from uint64) (*walker, error)

// startNow starts up to what is durable then.
func (r *Reader) startNow(ctx context.Context) startFunc {
	return func(from uint64) (*walker, error) { return r.start(ctx, from) }
}

// iterate makes a walker that goes on, if it may, where it falls behind. Every
// iterator that goes up begins here.
func (r *Reader) iterate(ctx context.Context, from uint64, start startFunc) (*walker, error) {
	ask := r.opts.OnBehind
	if strict.Is(ctx) {
		ask = nil
	}
	for {
		w, err := start(from)
		if err == nil {
			w.onBehind = ask
			return w, nil
		}
		var behind *OffsetError
		if ask == nil || !errors.As(err, &behind) || from >= behind.First || !ask(behind) {
			return nil, err
		}
		from = behind.First
	}
}

// start makes a walker at offset from. An offset beyond the durable end,
// but not beyond the valid records, is one whose time will come.
func (r *Reader) start(ctx context.Context, from uint64) (*walker, error) {
	d, err := r.durable(ctx)
	if err != nil {
		return nil, err
	}
	return r.startBelow(ctx, from, d)
}

func (r *Reader) startBelow(ctx context.Context, from uint64, d format.Durable) (*walker, error) {
	if from > d.NextOffset {
		if err := r.checkAhead(ctx, from, d); err != nil {
			return nil, err
		}
	}
	return r.startAt(from, d)
}

// startAt makes a walker at an offset that is not ahead of the log.
func (r *Reader) startAt(from uint64, d format.Durable) (*walker, error) {
	if err := r.checkBehind(from, d); err != nil {
		return nil, err
	}
	return r.newWalker(from, d), nil
}

// checkAhead tests an offset above the durable end: it is ahead of the log only
// when it is above the valid records too.
func (r *Reader) checkAhead(ctx context.Context, from uint64, d format.Durable) error {
	end, err := r.salvageEnd(ctx)
	if err != nil {
		return err
	}
	if next := max(end.NextOffset, d.NextOffset); from > next {
		return wrap("read", &OffsetError{Asked: from, First: r.lowest(), Next: next})
	}
	return nil
}

// checkBehind tests an offset at the end of the log, which no walker looks for.
func (r *Reader) checkBehind(from uint64, d format.Durable) error {
	segments, err := r.listed()
	if err != nil {
		return err
	}
	if _, ok := segments.covering(from); ok {
		return nil
	}
	for range 2 { // only two listings that agree count
		if segments, err = r.list(); err != nil {
			return err
		}
		if _, ok := segments.covering(from); ok {
			return nil
		}
	}
	if len(segments) == 0 {
		return fmt.Errorf("evlog: read %s: %w: every segment is gone", r.dir.Path(), ErrNoLog)
	}
	return wrap("read", &OffsetError{Asked: from, First: segments[0], Next: d.NextOffset})
}

// lowest is the lower bound of the offsets left, by the last listing.
func (r *Reader) lowest() uint64 {
	segments, err := r.listed()
	if err != nil || len(segments) == 0 {
		return 0
	}
	return segments[0]
}
