package evlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/evlog-go/evlog/internal/format"
	"github.com/evlog-go/evlog/internal/vfs"
)

// maxIndexJobs bounds the indexes that wait to be written; beyond, the one who
// rolls writes them.
const maxIndexJobs = 64

// housekeeper is the goroutine that writes derived data: the indexes of
// segments that were rolled, and of older ones that have none. What it cannot
// do is done by a later opening.
type housekeeper struct {
	l      *Log
	cancel context.CancelFunc
	jobs   chan indexJob
	done   chan struct{}

	closing chan struct{} // closed when the log is being closed
}

type indexJob struct {
	header  format.IndexHeader
	entries []format.IndexEntry
}

func (h *housekeeper) start(l *Log, names []string) {
	ctx, cancel := context.WithCancel(context.Background())
	h.l, h.cancel = l, cancel
	h.jobs, h.done = make(chan indexJob, maxIndexJobs), make(chan struct{})
	h.closing = make(chan struct{})
	go h.run(ctx, names)
}

// closeGrace is how long Close waits for indexes that were missing at the
// start. What is not done by then is left to a later opening.
const closeGrace = time.Second

// stop writes the indexes of all rolled segments and ends.
func (h *housekeeper) stop() {
	close(h.closing)
	t := time.AfterFunc(closeGrace, h.cancel)
	defer t.Stop()
	close(h.jobs)
	<-h.done
	h.cancel()
}

// writeIndex has the index of a closed segment written. The turn is held.
func (h *housekeeper) writeIndex(header format.IndexHeader, entries []format.IndexEntry) {
	job := indexJob{header, entries}
	select {
	case h.jobs <- job:
	default:
		h.do(job)
	}
}

// run first writes the indexes that were missing at the start, then looks for
// ones that do not match, and waits for work.
func (h *housekeeper) run(ctx context.Context, names []string) {
	defer close(h.done)
	segments, indexed := segmentsOf(names), map[uint64]bool{}
	for _, name := range names {
		if base, ok := format.ParseIndexName(name); ok {
			indexed[base] = true
		}
	}
	for _, missing := range []bool{true, false} {
		for i, base := range segments[:len(segments)-1] {
			if indexed[base] == missing {
				continue
			}
			if ctx.Err() != nil || !missing && h.isClosing() {
				break
			}
			h.doWaiting()
			h.check(ctx, base, segments[i+1])
		}
	}
	for job := range h.jobs {
		h.do(job)
	}
}

func (h *housekeeper) isClosing() bool {
	select {
	case <-h.closing:
		return true
	default:
		return false
	}
}

// doWaiting does the work that has come meanwhile.
func (h *housekeeper) doWaiting() {
	for {
		select {
		case job, ok := <-h.jobs:
			if !ok {
				return
			}
			h.do(job)
		default:
			return
		}
	}
}

func (h *housekeeper) do(job indexJob) {
	if h.l.poisoned() {
		return
	}
	h.l.closed.mu.Lock()
	_, err := h.l.dir.Stat(format.SegmentName(job.header.Base))
	if err == nil { // an index without its segment would stay for ever
		err = writeIndex(h.l.dir, job.header, job.entries)
	}
	h.l.closed.mu.Unlock()
	h.report(job.header.Base, err)
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
}

// check rebuilds the index of a closed segment unless it is there and matches.
func (h *housekeeper) check(ctx context.Context, base, end uint64) {
	if h.l.poisoned() {
		return
	}
	f, err := openSegment(h.l.dir, base)
	if err != nil {
		return // gone, or for a reader to complain about
	}
	defer f.Close()
	x, err := openIndex(h.l.dir, base, f)
	if err == nil {
		err = x.checkBlocks()
		_ = x.close()
		if err == nil {
			return
		}
	}
	if !noIndex(err) {
		h.report(base, err)
		return
	}
	h.report(base, h.l.rebuildIndex(ctx, f, base, end))
}

// Reindex writes the index of every closed segment anew, keeping what the old
// one knows that is not in the log: when the segment was closed and cleaned, and
// where it ends. It returns how many were written. progress may be nil. It can
// be cancelled at any time, and appends go on meanwhile.
func (l *Log) Reindex(ctx context.Context, progress func(done, total int)) (int, error) {
	if err := l.failure(); err != nil {
		return 0, err
	}
	all, err := listSegments(l.dir)
	if err != nil {
		return 0, err
	}
	var firstErr error
	written := 0
	for i, base := range all[:len(all)-1] {
		if err := errors.Join(ctx.Err(), l.failure()); err != nil {
			return written, err
		}
		err := l.reindexOne(ctx, base, all[i+1])
		if err == nil {
			written++
		} else if firstErr == nil && !gone(err) {
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

func (l *Log) reindexOne(ctx context.Context, base, end uint64) error {
	f, err := openSegment(l.dir, base)
	if err != nil {
		return err
	}
	defer f.Close()
	return l.rebuildIndex(ctx, f, base, end)
}

// rebuildIndex writes the index of the closed segment f anew, unless the
// segment was removed or replaced since f was opened.
func (l *Log) rebuildIndex(ctx context.Context, f vfs.File, base, end uint64) error {
	l.closed.mu.Lock()
	defer l.closed.mu.Unlock()
	same, err := l.dir.Same(format.SegmentName(base), f)
	if err == nil && !same {
		err = fs.ErrNotExist
	}
	if err != nil {
		return err
	}
	return rebuildIndex(ctx, l.dir, f, base, end, l.config.IndexBytes)
}

// rebuildIndex writes the index of the closed segment f, which ends at end. A
// damaged segment gets none.
func rebuildIndex(ctx context.Context, dir vfs.Dir, f vfs.File, base, end uint64, interval int64) error {
	b := newIndexBuilder(base, interval)
	res, err := scanSegment(f, base, func(pos int64, h format.Header, _ []byte) error {
		b.add(pos, h)
		return ctx.Err()
	})
	if err != nil {
		return err
	}
	if res.err != io.EOF {
		return corrupt(dir, base, res.end, res.next, res.err)
	}
	b.header.End = end
	info, err := f.Stat()
	if err != nil {
		return err
	}
	b.header.ClosedMS = info.ModTime().UnixMilli()
	if old, err := oldFacts(dir, base, f); err == nil {
		b.header.ClosedMS, b.header.CleanedMS = old.ClosedMS, old.CleanedMS
		if old.End != 0 {
			b.header.End = old.End
		}
	}
	return writeIndex(dir, b.header, b.entries)
}

// oldFacts returns the header of the index that is there, if it belongs to the
// segment; its entries may be damaged.
func oldFacts(dir vfs.Dir, base uint64, log vfs.File) (format.IndexHeader, error) {
	x, err := openIndex(dir, base, log)
	if err != nil {
		return format.IndexHeader{}, err
	}
	if x.header.ClosedMS == 0 {
		err = fs.ErrNotExist // the index of a clean close; it was active then
	}
	return x.header, errors.Join(err, x.close())
}
