package evlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/evlog-go/evlog/internal/format"
	"github.com/evlog-go/evlog/internal/vfs"
)

// OffsetAt returns the offset of the first durable record whose time is t or
// later, t counting in whole milliseconds, rounded down. Times may go backwards:
// later records may again have earlier times. ErrNotFound: every record is
// earlier; the offset is then the end of the log.
func (r *Reader) OffsetAt(ctx context.Context, t time.Time) (uint64, error) {
	d, err := r.durable(ctx)
	if err != nil {
		return 0, err
	}
	offset, err := r.firstAt(ctx, t.UnixMilli(), d)
	for tries := 0; fellBehind(err) && tries < maxVanished; tries++ {
		offset, err = r.firstAt(ctx, t.UnixMilli(), d) // retention was at work
	}
	if err == io.EOF {
		return max(d.NextOffset, r.lowest()),
			fmt.Errorf("evlog: first record at %s: %w", t.UTC().Format(time.RFC3339Nano), ErrNotFound)
	}
	return offset, r.closedOr(err)
}

func (r *Reader) firstAt(ctx context.Context, ms int64, d format.Durable) (uint64, error) {
	segments, err := r.listTwice()
	if err != nil {
		return 0, err
	}
	w := r.newWalker(0, d)
	defer w.close()
	return w.firstAt(ctx, segments, ms)
}

// fellBehind reports whether retention has removed what was about to be read.
func fellBehind(err error) bool {
	var behind *OffsetError
	return errors.As(err, &behind) && behind.Asked < behind.First
}

// firstAt returns the offset of the first record with a time of ms or later;
// io.EOF says that there is none. Segments that hold only earlier times are
// passed over; in one that may hold it, the index says where to begin.
func (w *walker) firstAt(ctx context.Context, segments listing, ms int64) (uint64, error) {
	vanished := 0
	for len(segments) > 0 && segments[0] < w.limit.NextOffset {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		base := segments[0]
		if w.r.earlier(base, ms) {
			segments = segments[1:]
			continue
		}
		w.next = base
		if err := w.enter(base, segments); err != nil {
			if vanished++; !gone(err) || vanished > maxVanished {
				return 0, err
			}
			// Removed from the old end, or merged into the one before.
			if segments, err = w.r.listTwice(); err != nil {
				return 0, err
			}
			continue
		}
		if base < w.limit.Base {
			known, err := w.r.learnTimes(w.seg)
			if err != nil {
				return 0, err
			}
			if known && w.r.earlier(base, ms) {
				segments = segments[1:]
				continue
			}
		}
		offset, found, err := w.firstInSegment(ctx, ms)
		if err != nil || found {
			return offset, err
		}
		// The walk went on into another segment, whose first record is earlier.
		base = w.seg.base
		for len(segments) > 0 && segments[0] < base {
			segments = segments[1:]
		}
	}
	return 0, io.EOF
}

// firstInSegment looks in the segment entered. Without a result the walk has
// gone on into the next one.
func (w *walker) firstInSegment(ctx context.Context, ms int64) (offset uint64, found bool, err error) {
	pos, lowest, err := w.seekTime(ms)
	if err != nil {
		return 0, false, err
	}
	w.fr.seek(pos, lowest)
	w.next = lowest
	if err := w.measure(); err != nil {
		return 0, false, err
	}
	base := w.seg.base
	for n := 0; ; n++ {
		if n%1024 == 0 && ctx.Err() != nil {
			return 0, false, ctx.Err()
		}
		h, _, err := w.step(ctx)
		if err != nil {
			return 0, false, err
		}
		if h.TimeMS >= ms {
			return h.Offset, true, nil
		}
		if w.seg.base != base {
			return 0, false, nil
		}
	}
}

// seekTime finds a position at or behind which the first record with a time of
// ms or later stands.
func (w *walker) seekTime(ms int64) (pos int64, lowest uint64, err error) {
	entries, err := w.seg.entries(w.r, w.validEnd(), w.seg.base < w.limit.Base)
	if err == nil {
		var e format.IndexEntry
		var ok bool
		e, ok, err = entries.last(func(e format.IndexEntry) bool { return e.MaxTimeMS < ms })
		if err == nil && ok && trustEntry(w.seg.f, e, w.fr.limit) {
			return e.Pos, e.Offset, nil
		}
	}
	if err != nil && !noIndex(err) {
		return 0, 0, err
	}
	return 0, w.seg.base, nil
}

// segTimes is what is remembered of a closed segment for looking up times, so
// that a log of many segments is not opened file by file. It counts while the
// file has this size and modification time: compaction may have put another one
// under the name.
type segTimes struct {
	stamp        vfs.Stamp
	minMS, maxMS int64
	empty        bool
}

// earlier reports whether it is known that the segment holds no record with a
// time of ms or later.
func (r *Reader) earlier(base uint64, ms int64) bool {
	t, ok := r.timesOf(base)
	return ok && (t.empty || t.maxMS < ms)
}

// timesOf returns what is known of a closed segment's times, if it is still the
// same file.
func (r *Reader) timesOf(base uint64) (t segTimes, ok bool) {
	r.mu.Lock()
	t, ok = r.times[base]
	r.mu.Unlock()
	if !ok {
		return t, false
	}
	stamp, err := vfs.StampOf(r.dir, format.SegmentName(base))
	return t, err == nil && stamp == t.stamp
}

// learnTimes remembers the times of a closed segment from its index.
func (r *Reader) learnTimes(s *segFile) (known bool, err error) {
	h, ok, err := s.header(r.dir)
	if err != nil || !ok {
		return false, err
	}
	info, err := s.f.Stat()
	if err != nil {
		return false, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.times[s.base] = segTimes{
		stamp: vfs.StampFrom(info),
		minMS: h.MinTimeMS, maxMS: h.MaxTimeMS, empty: h.Records == 0,
	}
	return true, nil
}
