package evlog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"time"

	"github.com/evlog-go/evlog/internal/format"
	"github.com/evlog-go/evlog/internal/vfs"
)

// maxIndexJobs bounds the indexes that wait to be written; beyond, the one who
// rolls writes them.
const maxIndexJobs = 64

// housekeeper is the goroutine that writes derived data: the indexes of segments
// that were rolled, at once, and without a key filter, which is made from the
// segment when nothing else waits; and those of older ones that have none. What
// it cannot do is done by a later opening.
type housekeeper struct {
	l      *Log
	cancel context.CancelFunc
	jobs   chan indexJob
	done   chan struct{}

	closing context.Context // ends when the log is being closed
	close   context.CancelFunc
	one     chan struct{} // holds a token while Reindex goes on, and once the log is closed

	buildMu sync.Mutex // held while an index is read whole, or made by reading: one at a time

	mu    sync.Mutex // guards plain
	plain []uint64   // segments whose indexes were written without a filter
}

type indexJob struct {
	header  format.IndexHeader
	entries []format.IndexEntry
	changes uint64 // of closed segments, when it was made
}

func (h *housekeeper) start(l *Log, names []string) {
	ctx, cancel := context.WithCancel(context.Background())
	h.l, h.cancel = l, cancel
	h.jobs, h.done = make(chan indexJob, maxIndexJobs), make(chan struct{})
	h.closing, h.close = context.WithCancel(context.Background())
	h.one = make(chan struct{}, 1)
	go h.run(ctx, names)
}

// closeGrace is how long Close waits for indexes that were missing at the
// start. What is not done by then is left to a later opening.
const closeGrace = time.Second

// stop ends a Reindex that goes on, writes the indexes of all rolled segments, and
// ends.
func (h *housekeeper) stop() {
	h.close()
	h.one <- struct{}{}
	t := time.AfterFunc(closeGrace, h.cancel)
	defer t.Stop()
	close(h.jobs)
	<-h.done
	h.cancel()
}

// begin waits until no other Reindex goes on; the token is then the caller's. The
// context returned ends with the log.
func (h *housekeeper) begin(ctx context.Context) (context.Context, func(), error) {
	select {
	case h.one <- struct{}{}:
	case <-h.closing.Done():
		return nil, nil, ErrClosed
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	ctx, cancel := context.WithCancelCause(ctx)
	forget := context.AfterFunc(h.closing, func() { cancel(ErrClosed) })
	return ctx, func() {
		forget()
		cancel(nil)
		<-h.one
	}, nil
}

// writeIndex has the index of a closed segment written. The turn is held.
func (h *housekeeper) writeIndex(header format.IndexHeader, entries []format.IndexEntry) {
	job := indexJob{header, entries, h.l.closed.changes.Load()}
	select {
	case h.jobs <- job:
	default:
		h.do(job)
	}
}

// run first writes the indexes that were missing at the start, then looks for
// ones that do not match or lack a filter, and waits for work.
func (h *housekeeper) run(ctx context.Context, names []string) {
	defer close(h.done)
	if err := h.l.dir.settle(); err != nil {
		h.l.poisonBeside(wrap("open", err)) // whoever writes finds out, and need not be the first
	}
	segments, indexed := segmentsOf(names), map[uint64]bool{}
	if err := h.l.settleRemovals(ctx, names, segments); err != nil && ctx.Err() == nil {
		h.l.logger.Warn("indexes of removed segments not removed; a later run will", "err", err)
	}
	for _, name := range names {
		if base, ok := format.ParseIndexName(name); ok {
			indexed[base] = true
		}
	}
	// There may be any number of them, and nobody waits but Close, for a moment.
	slowly := &pacer{rate: DefaultCompactRate, hurry: h.closing.Done()}
	for _, missing := range []bool{true, false} {
		for _, base := range segments[:len(segments)-1] {
			if indexed[base] == missing {
				continue
			}
			if ctx.Err() != nil || !missing && h.closing.Err() != nil {
				break
			}
			h.doWaiting()
			h.check(ctx, base, slowly)
		}
	}
	for open := true; open; {
		open = h.doWaiting()
		if base, ok := h.nextPlain(); ok && ctx.Err() == nil {
			h.check(ctx, base, nil) // it was written a moment ago, and need not come from the disk
			open = true
			continue
		}
		if job, ok := <-h.jobs; ok {
			h.do(job)
		}
	}
}

// filterSoon has a filter made for a closed segment whose index was written
// without one, as soon as somebody has the time.
func (h *housekeeper) filterSoon(base uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.Contains(h.plain, base) {
		h.plain = append(h.plain, base)
	}
}

// nextPlain takes the oldest of the segments that are to get a filter.
func (h *housekeeper) nextPlain() (base uint64, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.plain) == 0 {
		return 0, false
	}
	base = h.plain[0]
	h.plain = slices.Delete(h.plain, 0, 1)
	return base, true
}

// doWaiting does the work that has come meanwhile. It reports whether more may
// come.
func (h *housekeeper) doWaiting() bool {
	for {
		select {
		case job, ok := <-h.jobs:
			if !ok {
				return false
			}
			h.do(job)
		default:
			return true
		}
	}
}

// do writes the index of a segment that was rolled, unless somebody has removed
// or replaced it since: then the one who did has written its own.
func (h *housekeeper) do(job indexJob) {
	if h.l.poisoned() {
		return
	}
	base := job.header.Base
	h.l.closed.mu.Lock()
	err := h.stillThere(job.header)
	if err == nil {
		if h.l.closed.changes.Load() != job.changes {
			// The next segment may have been merged into this one, of which no index is
			// left to tell. Who makes the filter finds out where it ends.
			job.header.End = 0
		}
		err = writeIndex(h.l.dir, job.header, job.entries)
	}
	h.l.closed.mu.Unlock()
	if err == nil {
		h.filterSoon(base)
	}
	h.report(base, err)
}

// stillThere tests that the header describes the segment that has its name now,
// and that compaction was not quicker: its index knows more.
func (h *housekeeper) stillThere(header format.IndexHeader) error {
	f, err := openSegment(h.l.dir, header.Base)
	if err != nil {
		return err
	}
	defer f.Close()
	err = matchIndex(header, header.Base, f)
	if errors.Is(err, errIndexStale) {
		return fs.ErrNotExist
	}
	if there, none := oldFacts(h.l.dir, header.Base, f); none == nil && there.CleanedMS != format.NotCleaned {
		return fs.ErrNotExist
	}
	return err
}

func (h *housekeeper) report(base uint64, err error) {
	if errors.Is(err, context.Canceled) || gone(err) {
		return // or the segment was removed
	}
	if err != nil {
		h.l.logger.Warn("index not written; a later opening will", "segment", base, "err", err)
		return
	}
	h.l.event(Event{Kind: EventIndexed, Base: base})
	h.l.retain.kick() // it takes space
}

// check rebuilds the index of a closed segment unless it is there and matches,
// with a filter.
func (h *housekeeper) check(ctx context.Context, base uint64, pace *pacer) {
	if h.l.poisoned() {
		return
	}
	f, err := openSegment(h.l.dir, base)
	if err != nil {
		return // gone, or for a reader to complain about
	}
	defer f.Close()
	err = h.whole(f, base)
	if err == nil {
		return
	}
	if !noIndex(err) {
		h.report(base, err)
		return
	}
	if h.vouches(f, base) {
		return
	}
	h.report(base, h.l.rebuildIndex(ctx, f, base, pace))
}

// whole says what is wrong with the index of a closed segment, or that it lacks a
// filter. Reindex waits for that: an open file cannot be replaced everywhere.
// Retention and compaction may be refused meanwhile, and try again.
func (h *housekeeper) whole(f vfs.File, base uint64) error {
	h.buildMu.Lock()
	defer h.buildMu.Unlock()
	x, err := openIndex(h.l.dir, base, f)
	if err != nil {
		return err
	}
	err = errors.Join(x.checkBlocks(), x.checkFilter())
	_ = x.close()
	return err
}

// vouches reports whether an index that does not match is all that tells of
// records that are missing at the end of its segment. It stays until repair or
// Reindex, for verify to see.
func (h *housekeeper) vouches(f vfs.File, base uint64) bool {
	lost, ok := missingAtEnd(h.l.dir, base, f, 0)
	h.l.mu.Lock()
	gaps := h.l.meta.Gaps
	h.l.mu.Unlock()
	if !ok || covered(gaps, lost.To-1, lost.To) {
		return false // or repair knows
	}
	h.l.logger.Warn("records are missing at the end of a closed segment; evlog verify shows how many", "segment", base)
	return true
}

// Reindex writes the index of every closed segment anew, keeping what the old
// one knows that is not in the log: when the segment was closed and cleaned, and
// where it ends. It returns how many were written. progress may be nil. It can
// be cancelled at any time, and appends go on meanwhile. Close ends it, with
// ErrClosed; progress must call neither that nor Reindex.
func (l *Log) Reindex(ctx context.Context, progress func(done, total int)) (int, error) {
	if err := l.failure(); err != nil {
		return 0, err
	}
	ctx, end, err := l.house.begin(ctx)
	if err != nil {
		return 0, err
	}
	defer end()
	all, err := allSegments(l.dir)
	if err != nil {
		return 0, err
	}
	var firstErr error
	written := 0
	for i, base := range all[:len(all)-1] {
		if err := l.failure(); err != nil {
			return written, err
		}
		if ctx.Err() != nil {
			return written, context.Cause(ctx)
		}
		err := l.reindexOne(ctx, base)
		switch {
		case err == nil:
			written++
		case ctx.Err() != nil:
			return written, context.Cause(ctx)
		case firstErr == nil && !gone(err):
			firstErr = fmt.Errorf("evlog: reindex segment %d: %w", base, err)
		}
		if progress != nil {
			progress(i+1, len(all)-1)
		}
	}
	return written, firstErr
}

// reindexActive writes the index of the active segment, which closing would
// write too, but without telling whether it could.
func (l *Log) reindexActive(ctx context.Context) error {
	if err := l.acquireTurn(ctx); err != nil {
		return err
	}
	defer l.releaseTurn()
	return wrap("reindex the active segment", l.indexActive())
}

func (l *Log) reindexOne(ctx context.Context, base uint64) error {
	f, err := openSegment(l.dir, base)
	if err != nil {
		return err
	}
	defer f.Close()
	return l.rebuildIndex(ctx, f, base, nil)
}

// rebuildIndex writes the index of the closed segment f anew, unless the
// segment was removed or replaced since f was opened. Reading it takes long:
// only at the end it keeps others from changing segments.
func (l *Log) rebuildIndex(ctx context.Context, f vfs.File, base uint64, pace *pacer) error {
	l.house.buildMu.Lock()
	defer l.house.buildMu.Unlock()
	x, err := buildIndex(ctx, l.dir, f, base, l.config.IndexBytes, maxKeyHashes, pace)
	if err != nil {
		return err
	}
	l.closed.mu.Lock()
	defer l.closed.mu.Unlock()
	if err := l.stillThere(base, f); err != nil {
		x.drop()
		return err
	}
	l.reader.forget(base) // what it keeps open just in case
	return x.finish()
}
