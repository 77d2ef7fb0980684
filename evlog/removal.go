package evlog

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/evlog-go/evlog/internal/format"
	"github.com/evlog-go/evlog/internal/vfs"
)

// unlinkSegment removes a closed segment whose records are not wanted, or stand in
// the segment below: the .log, and when that is durable the .idx. Held by
// closed.mu.
//
// Until then the .idx says that nobody knows whether the .log is gone for good.
// After a failed sync of the directory, or where the process ended before the
// sync, the page cache shows that it is; but a power failure may bring it back,
// and with it records whose tombstone may have gone by then. The next writer
// finds the .idx: see settleRemovals.
func (l *Log) unlinkSegment(base uint64) error {
	name := format.IndexName(base)
	if _, err := l.dir.Stat(name); gone(err) {
		if f, err := l.dir.OpenFile(name, os.O_RDWR|os.O_CREATE, filePerm); err == nil {
			_ = f.Close() // on a full disk there is none: an index is lost rarely, and a sync fails rarely
		}
	}
	if err := l.dir.Remove(format.SegmentName(base)); err != nil && !gone(err) {
		return err
	}
	return l.removed(base)
}

// removed makes it durable that the .log is gone, and takes the .idx away, which
// needs no sync: it is in nobody's way, and may come back.
func (l *Log) removed(base uint64) error {
	if err := l.dir.Sync(); err != nil { // I5
		return l.poison(fmt.Errorf("evlog: remove segment %d: %w: %w", base, errSyncDir, err))
	}
	if err := l.dir.Remove(format.IndexName(base)); err != nil && !gone(err) {
		l.logger.Warn("index of a removed segment not removed; a later run will", "segment", base, "err", err)
	}
	return nil
}

// settleRemovals sees to the indexes that have no segment, in ascending order: the
// removal of that segment is made durable beyond doubt. names is what the
// directory holds.
func (l *Log) settleRemovals(ctx context.Context, names []string, segments listing) error {
	var alone listing
	for _, name := range names {
		base, ok := format.ParseIndexName(name)
		if _, there := slices.BinarySearch(segments, base); ok && !there && base < l.closed.below.Load() {
			alone = append(alone, base)
		}
	}
	slices.Sort(alone)
	for _, base := range alone {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if err := l.closed.change(func() error { return l.settleRemoval(ctx, base) }); err != nil {
			return err
		}
	}
	return nil
}

// settleRemoval puts a file under the name and removes it: a sync of the directory
// is about names that were changed since the last one, and that one may have
// failed (D6). The file holds what the segment below has from there on, so that
// whoever looks in between finds the same: see fold for two that overlap. Not only
// what it has for its range: where somebody has the file open and it cannot be
// removed again, a merge beside this may go on to remove the next one.
//
// Where it is not known that nothing else is missing there, the index stays, as
// evidence. Held by closed.mu.
func (l *Log) settleRemoval(ctx context.Context, base uint64) error {
	if l.poisoned() {
		return l.failure()
	}
	name := format.SegmentName(base)
	if _, err := l.dir.Stat(name); !gone(err) {
		return err // it is there: a listing had missed it
	}
	if _, err := l.dir.Stat(format.IndexName(base)); err != nil {
		// A removal that was under way when the directory was listed has ended well. To
		// put the file back would show readers an old end that is gone.
		if gone(err) {
			err = nil
		}
		return err
	}
	segments, err := listSegments(l.dir)
	if err != nil {
		return err
	}
	fill := func(vfs.File) error { return nil }
	if below, ok := segments.covering(base); ok {
		next, _ := segments.above(base)
		f, err := openSegment(l.dir, below)
		if err != nil {
			return err
		}
		defer f.Close()
		start, end, ok, err := rangeIn(ctx, l.dir, f, below, base, next)
		if err != nil || !ok {
			return err
		}
		fill = func(to vfs.File) error { return copyBytes(ctx, to, f, start, end) }
	}
	if err := l.blankIndex(base); err != nil {
		return err
	}
	tmp := name + format.TempSuffix
	if err := writeTemp(l.dir, tmp, fill); err != nil {
		return err
	}
	if err := renameTemp(l.dir, tmp, name); err != nil {
		return err
	}
	l.reader.forget(base)
	if err := l.dir.Remove(name); err != nil {
		return err // the segments overlap, which the next compaction clears
	}
	return l.removed(base)
}

// blankIndex takes from an index alone all that it says: it may fit the file that
// is about to be put back, and would claim that the segment ends where another one
// began that has gone as well, as if that were missing.
func (l *Log) blankIndex(base uint64) error {
	name := format.IndexName(base)
	if info, err := l.dir.Stat(name); err == nil && info.Size() == 0 {
		return nil
	}
	tmp := name + format.TempSuffix
	if err := writeTemp(l.dir, tmp, func(vfs.File) error { return nil }); err != nil {
		return err
	}
	if err := renameTemp(l.dir, tmp, name); err != nil {
		return err
	}
	if err := l.dir.Sync(); err != nil { // I5
		return l.poison(fmt.Errorf("evlog: index of removed segment %d: %w: %w", base, errSyncDir, err))
	}
	return nil
}

// rangeIn finds the bytes of the segment f, from start to end, that are its records
// with offsets from from on. ok is false where its index does not say that it goes on
// to next, or where it is damaged.
func rangeIn(ctx context.Context, dir vfs.Dir, f vfs.File, base, from, next uint64) (start, end int64, ok bool, err error) {
	h, err := oldFacts(dir, base, f)
	if noIndex(err) {
		return 0, 0, false, nil
	}
	if err != nil || h.End < next {
		return 0, 0, false, err
	}
	res, err := scanSegment(f, base, func(pos int64, h format.Header, _ []byte) error {
		if h.Offset < from {
			start = pos + h.Size()
		}
		end = pos + h.Size()
		return ctx.Err()
	})
	return start, max(start, end), res.err == io.EOF, err
}
