package evlog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/evlog-go/evlog/internal/format"
	"github.com/evlog-go/evlog/internal/vfs"
)

// Roll closes the active segment and starts the next one, after everything
// accepted before the call is durable. An empty segment is left as it is.
// Without room for the new file the error wraps ENOSPC, and the old segment
// stays active.
func (l *Log) Roll(ctx context.Context) error {
	l.mu.Lock()
	if l.err != nil {
		defer l.mu.Unlock()
		return l.err
	}
	if l.segBytes > 0 {
		l.beginSegmentLocked()
	}
	rolls := l.stats.Rolls
	c := l.joinLocked()
	l.mu.Unlock()
	return l.rolled(ctx, c, rolls)
}

// RollTo is Roll to a segment that begins at the offset next: the offsets in
// between are a hole. It makes the end of a log what it is in the log that this
// one is a copy of, if that has holes at its end. An offset below the next one is
// ErrOffsetOrder, and a hole at the beginning of an empty segment is refused
// (ErrBadOptions): see Options.FirstOffset. If next is the next offset already,
// nothing is rolled. Like an append it waits for the append gate.
func (l *Log) RollTo(ctx context.Context, next uint64) error {
	l.mu.Lock()
	err := l.admitLocked(ctx, 0, nil)
	switch {
	case err != nil:
	case next < l.nextOffset:
		err = fmt.Errorf("evlog: roll to %d: %w (lowest possible: %d)", next, ErrOffsetOrder, l.nextOffset)
	case next > format.MaxOffset:
		err = fmt.Errorf("evlog: roll to %d: %w (the highest is %d)", next, ErrTooLarge, uint64(format.MaxOffset))
	case next > l.nextOffset && l.segBytes == 0:
		err = badOption("RollTo", "%d: the segment that begins at %d is empty", next, l.nextOffset)
	case next > l.nextOffset, l.noRoom != nil && l.segBytes > 0:
		l.nextOffset = next // if there was no room, it is that already
		l.beginSegmentLocked()
	}
	c := &commit{}
	if err == nil {
		c = l.joinLocked()
	}
	rolls := l.stats.Rolls
	l.mu.Unlock()
	if err != nil {
		return err
	}
	return l.rolled(ctx, c, rolls)
}

// rolled waits for the commit of a roll, and tells of one that found no room.
func (l *Log) rolled(ctx context.Context, c *commit, rolls uint64) error {
	if err := l.lead(ctx, c); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stats.Rolls == rolls && l.noRoom != nil {
		return wrap("roll", l.noRoom)
	}
	return nil
}

// roll starts the segment with this base. The turn is held, and everything that
// belongs into the old segment is written. What a crash leaves after each step:
//
//  1. truncate, set the closing time, sync: still the active segment, at its
//     exact size.
//  2. create the next one, sync it and the directory: an empty active segment that
//     DURABLE does not know; opening makes it again.
//  3. publish and sync DURABLE {base, base, 0}: done.
//
// Without room for the new file the old segment stays active.
func (l *Log) roll(base uint64) error {
	a := &l.act
	l.zero.pause()
	closed := l.clock.Now()
	if err := l.closeActive(closed.UnixMilli()); err != nil {
		return err
	}
	f, err := l.createSegment(base)
	if err != nil {
		if diskFull(err) {
			return l.stayActive(err)
		}
		return l.poison(fmt.Errorf("evlog: create segment %d: %w", base, err))
	}
	h, entries := a.wholeIndex()
	h.ClosedMS, h.End = closed.UnixMilli(), base
	l.house.writeIndex(h, entries)
	if err := a.f.Close(); err != nil {
		return l.poison(fmt.Errorf("evlog: close segment %d: %w", a.base, err))
	}
	a.become(f, base, l.config.IndexBytes)
	if err := l.finishRoll(); err != nil {
		return err
	}
	l.compact.rolled(h.LogSize)
	return nil
}

// closeActive brings the active segment to the form of a closed one.
func (l *Log) closeActive(closedMS int64) error {
	a := &l.act
	step := func(what string, err error) error {
		if err == nil {
			return nil
		}
		return l.poison(fmt.Errorf("evlog: roll: %s segment %d: %w", what, a.base, err))
	}
	if err := step("truncate", a.f.Truncate(a.pos)); err != nil {
		return err
	}
	if err := l.dir.Chtimes(format.SegmentName(a.base), timeOf(closedMS)); err != nil {
		// The truncation has just set about the same time.
		l.logger.Warn("closing time not set", "segment", a.base, "err", err)
	}
	start := l.clock.Elapsed()
	if err := step("sync", a.f.Sync()); err != nil {
		return err
	}
	a.unsynced = false
	l.countSync(l.clock.Elapsed() - start)
	return nil
}

// createSegment makes an empty segment whose name is durable.
func (l *Log) createSegment(base uint64) (vfs.File, error) {
	name := format.SegmentName(base)
	f, err := l.dir.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, filePerm)
	if err != nil {
		if diskFull(err) {
			// Sure only if the name is not there: appending to the old segment
			// beside a newer one would give offsets out twice (I3).
			if _, statErr := l.dir.Stat(name); !errors.Is(statErr, fs.ErrNotExist) {
				return nil, fmt.Errorf("%w: %w, and the file may be there", errSyncDir, err)
			}
		}
		return nil, err
	}
	// The file too: without a journal the directory's sync makes the name
	// durable, but not what it names.
	err = f.Sync()
	if err == nil {
		err = l.dir.Sync()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", errSyncDir, err), f.Close())
	}
	return f, nil
}

// stayActive keeps the old segment, since there is no room for another one.
func (l *Log) stayActive(full error) error {
	l.logger.Warn("no room for a new segment; the old one stays active", "base", l.act.base, "err", full)
	l.mu.Lock()
	l.noRoom = full
	l.mu.Unlock()
	l.zero.use(l.act.base, l.act.pos)
	return nil
}

// finishRoll publishes the new segment, after which the old one is closed.
func (l *Log) finishRoll() error {
	if err := l.publish(); err != nil {
		return err
	}
	l.act.durable.dirty = true
	if err := l.act.durable.sync(); err != nil {
		return l.poison(fmt.Errorf("evlog: roll: sync DURABLE: %w", err))
	}
	if err := l.failure(); err != nil {
		return err
	}
	l.closed.below.Store(l.act.base)
	l.finishWaiting(nil)
	l.reader.rolled(l.act.base)
	l.mu.Lock()
	l.stats.Rolls++
	l.noRoom = nil
	l.mu.Unlock()
	l.zero.use(l.act.base, 0)
	l.retain.rolled()
	l.event(Event{Kind: EventRolled, Base: l.act.base, Offset: l.act.next})
	return nil
}

// become makes f, an empty file, the active segment.
func (a *active) become(f vfs.File, base uint64, interval int64) {
	a.indexMu.Lock()
	defer a.indexMu.Unlock()
	a.f, a.base, a.pos, a.next = f, base, 0, base
	a.index = newIndexBuilder(base, interval)
}

// wholeIndex returns the index of the active segment as written so far.
func (a *active) wholeIndex() (format.IndexHeader, []format.IndexEntry) {
	a.indexMu.Lock()
	defer a.indexMu.Unlock()
	a.loadPrior()
	return a.index.header, a.index.entries
}

// loadPrior reads the entries of the index that the segment was opened with. If
// it was damaged since, they are missing, and looking up the old part of the
// segment takes longer. indexMu is held.
func (a *active) loadPrior() {
	if a.prior == nil {
		return
	}
	var all []format.IndexEntry
	for i := range a.prior.len() {
		e, err := a.prior.entry(i)
		if err != nil {
			break
		}
		all = append(all, e)
	}
	a.index.entries = append(all, a.index.entries...)
	_ = a.dropPrior()
}

// dropPrior closes the index that the segment was opened with. indexMu is held.
func (a *active) dropPrior() error {
	if a.prior == nil {
		return nil
	}
	x := a.prior
	a.prior = nil
	return x.close()
}

// entries returns the index entries of the active segment if base is it.
func (a *active) entries(base uint64) (entrySlice, bool) {
	a.indexMu.Lock()
	defer a.indexMu.Unlock()
	if a.index == nil || a.index.header.Base != base {
		return nil, false
	}
	a.loadPrior()
	return entrySlice(a.index.entries), true
}
