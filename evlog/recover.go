package evlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/evlog-go/evlog/internal/format"
	"github.com/evlog-go/evlog/internal/vfs"
)

// cutOff is what opening cut off the active segment, zeros that a writer had
// prepared aside.
type cutOff struct {
	bytes  int64
	keptAs string // the file it was saved in; empty if nothing in it was of use
}

// recoverActive makes the active segment one that can be appended to: what is
// valid becomes durable, what is not is cut off, and only then a position is
// published. What a crash leaves after each step is found again by the next
// opening, which does the same.
func (l *Log) recoverActive(ctx context.Context, s survey) (cut cutOff, err error) {
	base := s.segments.active()
	f, err := l.dir.OpenFile(format.SegmentName(base), os.O_RDWR, 0)
	if err != nil {
		return cut, wrap("open the active segment", err)
	}
	l.act.f, l.act.base = f, base
	l.act.durable.at(l.dir)
	if done, err := l.openClean(s); err != nil || done {
		return cut, err
	}
	b, res, err := scanActive(ctx, f, base, l.meta.Config.stored().IndexBytes)
	if err != nil {
		return cut, wrap("read the active segment", err)
	}
	if err := l.checkAcknowledged(s, res); err != nil {
		return cut, err
	}
	if res.end < res.size {
		if cut, err = keepTorn(ctx, l.dir, f, base, res); err != nil {
			return cut, err
		}
	}
	from := int64(0)
	if s.durableErr == nil && s.durable.Base == base {
		from = s.durable.Position
	}
	if err := makeDurable(f, from, res); err != nil {
		return cut, wrap(fmt.Sprintf("recover segment %d", base), err)
	}
	if res.end == 0 && s.durableErr == nil && s.durable.Base < base {
		// A roll did not get to its end, and nothing vouches for this name.
		l.act.f = nil
		if err := f.Close(); err != nil {
			return cut, wrap("close an empty segment", err)
		}
		if f, err = renewSegment(l.dir, base); err != nil {
			return cut, wrap("make the active segment again", err)
		}
	}
	l.act.become(f, base, l.meta.Config.stored().IndexBytes)
	l.act.pos, l.act.next, l.act.index = res.end, res.next, b
	l.act.began = l.beginning(s.segments, b.header)
	if err := l.act.durable.open(l.position()); err != nil {
		return cut, wrap("publish DURABLE", err)
	}
	return cut, nil
}

// scanActive reads the valid prefix and builds the index on the way. Nobody else
// writes to the file, so that it can be read ahead.
func scanActive(ctx context.Context, f vfs.File, base uint64, interval int64) (*indexBuilder, scanResult, error) {
	b := newIndexBuilder(base, interval)
	fr, err := wholeFile(f, base)
	if err != nil {
		return b, scanResult{}, err
	}
	fr.still = fr.limit
	res, err := scanFrames(fr, func(pos int64, h format.Header, _ []byte) error {
		b.add(pos, h)
		return ctx.Err()
	})
	return b, res, err
}

// openClean takes the short way after a clean close: DURABLE's position is the
// file's size, and the index written at close matches; then only the last
// record is read.
func (l *Log) openClean(s survey) (done bool, err error) {
	a := &l.act
	info, err := a.f.Stat()
	if err != nil {
		return false, wrap("open the active segment", err)
	}
	if l.opts.Verify == VerifyAll || s.durableErr != nil || s.durable.Base != a.base || s.durable.Position != info.Size() {
		return false, nil
	}
	x, err := openIndex(l.dir, a.base, a.f)
	if err != nil {
		if noIndex(err) {
			return false, nil
		}
		return false, wrap("open the active segment's index", err)
	}
	next, ok := lastIntact(a.f, x.header)
	if !ok || next != s.durable.NextOffset {
		return false, x.close()
	}
	a.become(a.f, a.base, l.meta.Config.stored().IndexBytes)
	a.pos, a.next, a.prior = info.Size(), next, x
	a.index.header = x.header
	a.index.header.ClosedMS, a.index.header.End = 0, 0
	a.index.since = sinceLast(x)
	a.began = l.beginning(s.segments, x.header)
	return true, wrap("open DURABLE", a.durable.hold())
}

// sinceLast is the number of bytes since the record of an index's last entry; -1
// without any.
func sinceLast(x *index) int64 {
	if x.len() == 0 {
		return -1
	}
	e, err := x.entry(x.len() - 1)
	if err != nil {
		return x.header.LogSize
	}
	return x.header.LogSize - e.Pos
}

// lastIntact checks the last record that an index names and returns the offset
// after it.
func lastIntact(f vfs.File, h format.IndexHeader) (next uint64, ok bool) {
	if h.Records == 0 {
		return h.Base, true
	}
	fr := newFrames(f, h.LastPos, h.LogSize, h.LastOffset)
	defer fr.release()
	rec, _, err := fr.next()
	return h.LastOffset + 1, err == nil && rec.Offset == h.LastOffset
}

// checkAcknowledged refuses to open a log in which acknowledged records are
// damaged or missing. Nothing is cut.
func (l *Log) checkAcknowledged(s survey, res scanResult) error {
	base := s.segments.active()
	if s.durableErr != nil {
		// Consumers commit durable offsets only: what they have finished was
		// acknowledged, and giving its offsets out again would be silent.
		committed, err := maxCommitted(l.dir, l.meta)
		if err != nil {
			return wrap("open", err)
		}
		if committed > res.next {
			return fmt.Errorf("evlog: open: %w", corrupt(l.dir, base, res.end, res.next,
				fmt.Errorf("DURABLE is lost and consumers have read up to offset %d: %w", committed, notEOF(res.err))))
		}
		return nil
	}
	d := s.durable
	switch {
	case d.Base < base && d.NextOffset > base && d.NextOffset <= res.next:
		return fmt.Errorf("evlog: open: %w", &CorruptError{
			Path: pathOf(l.dir, format.DurableName), Offset: d.NextOffset, Err: errInsideActive,
		})
	case d.Base == base && res.next < d.NextOffset:
	case d.Base < base && d.NextOffset > base:
	default:
		return nil
	}
	return fmt.Errorf("evlog: open: %w", corrupt(l.dir, base, res.end, res.next,
		fmt.Errorf("records up to offset %d were acknowledged: %w", d.NextOffset, notEOF(res.err))))
}

// errFileEnds: the end of the file, where there should be more.
var errFileEnds = errors.New("the file ends")

func notEOF(err error) error {
	if err == io.EOF {
		return errFileEnds
	}
	return err
}

// makeDurable writes the records between the durable position and the end of
// the valid prefix again, with the same bytes, since the page cache is no
// evidence that they are on disk (I5), cuts what follows, and syncs.
func makeDurable(f vfs.File, from int64, res scanResult) error {
	buf := make([]byte, scanBytes)
	for pos := from; pos < res.end; {
		b := buf[:min(int64(len(buf)), res.end-pos)]
		if err := readFull(f, b, pos); err != nil {
			return err
		}
		if _, err := f.WriteAt(b, pos); err != nil {
			return err
		}
		pos += int64(len(b))
	}
	if res.end < res.size {
		if err := f.Truncate(res.end); err != nil {
			return err
		}
	}
	return f.Sync()
}

// renewSegment puts a new empty file in the place of a segment without records,
// so that its name becomes durable. The name is never gone in between: were it
// unlinked and the directory sync after that failed, the page cache would show
// the segment before as the active one while the disk still has this one, and
// what is acknowledged there would be lost with the next power failure.
func renewSegment(dir vfs.Dir, base uint64) (vfs.File, error) {
	name := format.SegmentName(base)
	if err := writeFileDurably(dir, name, nil); err != nil {
		return nil, err
	}
	return dir.OpenFile(name, os.O_RDWR, 0)
}

// beginning is when the active segment got its first record, as far as can be
// told: not before the segment below was closed, or the log created. The
// records' own times are the application's, and count only where they fit.
func (l *Log) beginning(segments listing, h format.IndexHeader) time.Time {
	now := l.clock.Now()
	if h.Records == 0 {
		return now
	}
	earliest := timeOf(l.meta.CreatedMS)
	if n := len(segments); n > 1 {
		if info, err := l.dir.Stat(format.SegmentName(segments[n-2])); err == nil {
			earliest = info.ModTime()
		}
	}
	if t := timeOf(h.MinTimeMS); !t.Before(earliest) && !t.After(now) {
		return t
	}
	if earliest.Before(plausibleSince) || earliest.After(now) {
		return now
	}
	return earliest
}

// plausibleSince is the earliest time that a clock is believed.
var plausibleSince = time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)

func isTemp(name string) bool { return strings.HasSuffix(name, format.TempSuffix) }

func isConsumersTemp(name string) bool {
	return strings.HasPrefix(name, "consumers") && isTemp(name)
}
