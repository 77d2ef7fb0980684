package evlog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"time"

	"github.com/evlog-go/evlog/internal/format"
	"github.com/evlog-go/evlog/internal/vfs"
)

const (
	// rewriteBytes is what is written at once to a segment that is copied.
	rewriteBytes = 256 << 10
	// syncStep is how much a throttled copy writes before it syncs: what piles
	// up in the page cache is what an append's sync may have to wait for.
	syncStep = 1 << 20
)

// segmentCopy is the next content of a closed segment, written under a temporary
// name. Records keep their bytes.
type segmentCopy struct {
	l        *Log
	base     uint64
	f        vfs.File // nil: closed
	facts    *indexFacts
	index    *indexBuild // made of facts; nil: none could be, because of indexErr
	indexErr error
	buf      []byte // not written yet
	pos      int64  // in f, of buf
	unsynced int64
	stepwise bool // sync every syncStep
	pace     func(n int64) error
	work     *pacer
}

// newCopy starts a copy of the segment with this base.
func (c *compaction) newCopy(ctx context.Context, base uint64) (*segmentCopy, error) {
	name := format.SegmentName(base) + format.TempSuffix
	f, err := c.dir.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, filePerm)
	if err != nil {
		return nil, err
	}
	s := &segmentCopy{
		l: c.log, base: base, f: f, buf: make([]byte, 0, rewriteBytes), stepwise: c.opts.BytesPerSecond > 0,
		pace: func(n int64) error { return c.pace(ctx, n) }, work: &c.work,
	}
	if c.hashes == nil {
		c.hashes = make([]uint64, 0, min(maxKeyHashes, c.records))
	}
	s.collect(c.hashes)
	return s, nil
}

// collect begins to collect what the index of the copy is made from. hashes is
// memory to use.
func (c *segmentCopy) collect(hashes []uint64) {
	c.facts = newIndexFacts(c.base, c.l.config.IndexBytes, maxKeyHashes)
	c.facts.keys.list = hashes[:0]
}

func (c *segmentCopy) tempName() string { return format.SegmentName(c.base) + format.TempSuffix }

// add appends the records of a run, which stand at pos of src and were checked. A
// large one comes alone, and may be without its value.
func (c *segmentCopy) add(run []byte, src vfs.File, pos int64) error {
	if len(run) == 0 {
		return nil
	}
	at := c.size()
	var h format.Header
	for rest := run; len(rest) > 0; at += h.Size() {
		var rec []byte
		h, rec, rest = cutRecord(rest)
		c.facts.add(at, h, rec)
	}
	if size := format.ParseHeader(run).Size(); int64(len(run)) < size {
		return c.addLarge(format.ParseHeader(run), src, pos)
	}
	if len(c.buf)+len(run) > rewriteBytes {
		if err := c.flush(); err != nil {
			return err
		}
	}
	if len(run) > rewriteBytes {
		return c.write(run)
	}
	c.buf = append(c.buf, run...)
	return nil
}

// size is how many bytes were added.
func (c *segmentCopy) size() int64 { return c.pos + int64(len(c.buf)) }

// addLarge copies a record piece by piece.
func (c *segmentCopy) addLarge(h format.Header, src vfs.File, pos int64) error {
	if err := c.flush(); err != nil {
		return err
	}
	const crcEnd = 8
	var crc uint32
	piece := c.buf[:rewriteBytes]
	for at, end := pos, pos+h.Size(); at < end; {
		b := piece[:min(int64(len(piece)), end-at)]
		if err := readFull(src, b, at); err != nil {
			return err
		}
		if at == pos {
			crc = format.UpdateChecksum(0, b[crcEnd:])
		} else {
			crc = format.UpdateChecksum(crc, b)
		}
		if err := c.write(b); err != nil {
			return err
		}
		at += int64(len(b))
	}
	if crc != h.CRC {
		return format.ErrCRC // it was valid a moment ago
	}
	return nil
}

func (c *segmentCopy) flush() error {
	err := c.write(c.buf)
	c.buf = c.buf[:0]
	return err
}

func (c *segmentCopy) write(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	if _, err := c.f.WriteAt(b, c.pos); err != nil {
		return err
	}
	c.pos += int64(len(b))
	c.unsynced += int64(len(b))
	if c.stepwise && c.unsynced >= syncStep {
		if err := c.f.SyncData(); err != nil {
			return err
		}
		c.unsynced = 0
	}
	return c.pace(int64(len(b)))
}

// cut takes back what was added beyond the first size bytes, which is the end of
// a record.
func (c *segmentCopy) cut(ctx context.Context, size int64) error {
	err := c.flush()
	if err == nil {
		err = c.f.Truncate(size)
	}
	if err != nil {
		return err
	}
	c.pos = size
	c.collect(c.facts.keys.list)
	return readRecords(ctx, c.l.dir, c.f, c.base, nil, c.facts.add)
}

// finish makes the copy durable under its temporary name. closedMS becomes the
// file's modification time, which is what is left of the closing time where the
// index is lost. Within the millisecond it is random: by size and modification
// time readers tell whether a name still stands for the file they know.
//
// The index of the copy is made while the disk works, and put into place right
// behind it. A copy without one is as good, only slower to read.
func (c *segmentCopy) finish(ctx context.Context, closedMS int64) error {
	err := c.flush()
	if err == nil {
		err = c.l.dir.Chtimes(c.tempName(), timeOf(closedMS).Add(rand.N(time.Millisecond)))
	}
	if err == nil {
		synced := make(chan error, 1)
		go func() { synced <- c.f.Sync() }()
		err = c.buildIndex(ctx)
		err = errors.Join(<-synced, err)
	}
	f := c.f
	c.f = nil
	return errors.Join(err, f.Close())
}

func (c *segmentCopy) buildIndex(ctx context.Context) error {
	x, err := writeFacts(ctx, c.l.dir, c.f, c.facts, "copy", c.work)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		c.indexErr = fmt.Errorf("make its index: %w", err)
		return nil
	}
	c.index = x
	return nil
}

// putIndex puts the copy's index into place. The copy is in its own.
func (c *segmentCopy) putIndex(closedMS, cleanedMS int64, end uint64) error {
	if c.index == nil {
		return c.indexErr
	}
	h := c.index.b.header
	h.ClosedMS, h.CleanedMS, h.End = closedMS, cleanedMS, end
	x := c.index
	c.index = nil
	return x.finishAs(h)
}

// discard removes the copy. If that fails, the next opening does it.
func (c *segmentCopy) discard() {
	if c.f != nil {
		_ = c.f.Close()
		c.f = nil
	}
	if c.index != nil {
		c.index.drop()
		c.index = nil
	}
	_ = c.l.dir.Remove(c.tempName())
}

// replaceBy puts a finished copy into the place of the segment that src is. Held
// by closed.mu. src is closed first: Windows renames over no open file.
//
// An error of the directory's sync leaves open which of the two files the name
// stands for after a power failure (D6). The page cache shows the copy, and the
// next sync would not write the name again. So the log is poisoned: what follows
// a replacement, above all the removal of tombstones, must not happen.
func (l *Log) replaceBy(c *segmentCopy, src vfs.File) error {
	name := format.SegmentName(c.base)
	if err := l.stillThere(c.base, src); err != nil {
		return err
	}
	l.reader.forget(c.base)
	if err := src.Close(); err != nil {
		return err
	}
	if err := l.dir.Rename(c.tempName(), name); err != nil {
		return err
	}
	if err := l.dir.Sync(); err != nil {
		return l.poison(fmt.Errorf("evlog: replace segment %d: %w: %w", c.base, errSyncDir, err))
	}
	return nil
}

// stillThere tests, under closed.mu, that the closed segment is the file that f
// was opened as, and that the log may still be written to. fs.ErrNotExist: the
// segment was removed or replaced.
func (l *Log) stillThere(base uint64, f vfs.File) error {
	if l.poisoned() {
		return l.failure()
	}
	same, err := l.dir.Same(format.SegmentName(base), f)
	if err == nil && !same {
		err = fs.ErrNotExist
	}
	return err
}

// setFacts changes what the index of a segment knows beside the log: ClosedMS,
// CleanedMS and End. The rest of the file stays as it is. An error for which
// noIndex holds says that there is no index that matches. Held by closed.mu.
func (l *Log) setFacts(base uint64, f vfs.File, change func(*format.IndexHeader)) error {
	x, err := openIndex(l.dir, base, f)
	if err != nil {
		return err
	}
	if err := x.close(); err != nil {
		return err
	}
	if x.header.ClosedMS == 0 {
		return errIndexStale // of a clean close: the one that follows the roll would take its place, see oldFacts
	}
	name := format.IndexName(base)
	info, err := l.dir.Stat(name)
	if err != nil {
		return err
	}
	b, err := readFile(l.dir, name, info.Size())
	if err != nil {
		return err
	}
	h := x.header
	change(&h)
	if h == x.header {
		return nil
	}
	if err := format.SetIndexFacts(b, h); err != nil {
		return err
	}
	tmp := name + format.TempSuffix
	err = writeTemp(l.dir, tmp, func(f vfs.File) error {
		_, err := f.WriteAt(b, 0)
		return err
	})
	if err != nil {
		return err
	}
	return renameTemp(l.dir, tmp, name)
}
