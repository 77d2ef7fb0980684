package evlog

import (
	"fmt"
	"time"

	"github.com/evlog-go/evlog/internal/format"
	"github.com/evlog-go/evlog/internal/invariant"
)

// commit writes everything that is buffered, in order, and with sync makes it
// durable and publishes it. The turn is held. The order is the promise (I1):
// write, sync the segment, publish DURABLE, acknowledge.
//
// The error is the first one; each waiting caller gets the one that concerns
// it.
func (l *Log) commit(sync bool) (err error) {
	chunks, err := l.take()
	if err != nil {
		return err
	}
	defer l.settle(chunks, &err)
	finished := false
	defer func() { l.poisonUnless(finished, recover(), &err) }()
	err = l.commitChunks(chunks, sync)
	finished = true
	return err
}

func (l *Log) commitChunks(chunks []*chunk, sync bool) error {
	full := l.writeAll(chunks)
	if full != nil && !diskFull(full) {
		return full
	}
	if sync || full != nil {
		if err := l.syncAndPublish(); err != nil {
			return err
		}
	}
	return full
}

// take takes all chunks out of the buffer.
func (l *Log) take() ([]*chunk, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return nil, l.err
	}
	chunks := l.queue
	if l.cur != nil {
		chunks = append(chunks, l.cur)
	}
	l.queue, l.cur = nil, nil
	l.act.gathering.covered += l.joined.Swap(0)
	return chunks, nil
}

// settle gives each chunk's callers their result where a failure left them
// without, and frees the chunks. Deferred by commit, so it runs after a panic
// too.
func (l *Log) settle(chunks []*chunk, err *error) {
	poisoned := l.failure()
	if poisoned != nil {
		*err = poisoned
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var left []*chunk
	for _, c := range chunks {
		switch {
		case poisoned != nil:
			if c.commit != nil {
				c.commit.finish(poisoned)
			}
		case len(c.buf) > 0:
			left = append(left, c) // enqueued records that the disk had no room for
		default:
			c.reset()
			if len(l.spare) < 4 && cap(c.buf) <= 2*chunkBytes || len(l.spare) == 0 && int64(cap(c.buf)) <= l.opts.BufferBytes {
				l.spare = append(l.spare, c)
			}
		}
	}
	if poisoned != nil {
		return
	}
	l.queue = append(left, l.queue...)
	l.recountLocked()
	l.roomFreedLocked(*err)
}

// recountLocked brings the counters in line with what is written and buffered,
// after something that had been counted was dropped.
func (l *Log) recountLocked() {
	l.buffered, l.segBytes = 0, l.act.pos
	for _, c := range append(l.queue, l.curIfAny()...) {
		if c.roll {
			l.segBytes = 0
		}
		l.buffered += int64(len(c.buf))
		l.segBytes += int64(len(c.buf))
	}
}

// writeAll writes the chunks to the segments that they belong to. On a full
// disk it undoes the write that failed and takes what Append's callers wait for
// out of this chunk and the ones behind it.
func (l *Log) writeAll(chunks []*chunk) error {
	for i, c := range chunks {
		if err := l.writeChunk(c); err != nil {
			if !diskFull(err) {
				return l.poison(err)
			}
			return l.giveUp(chunks[i:], err)
		}
	}
	return nil
}

func (l *Log) writeChunk(c *chunk) error {
	a := &l.act
	if c.roll && a.pos > 0 {
		if err := l.roll(c.base); err != nil {
			return err
		}
	}
	if n := len(c.buf); n > 0 {
		c.seal()
		if invariant.Enabled {
			l.checkChunk(c)
		}
		l.zero.claim(a.pos + int64(n))
		a.unsynced = true
		if _, err := a.f.WriteAt(c.buf, a.pos); err != nil {
			return fmt.Errorf("evlog: write segment %d at byte %d: %w", a.base, a.pos, err)
		}
		l.written(c)
	}
	if c.commit != nil {
		a.waiting = append(a.waiting, c.commit)
		c.commit = nil
	}
	return nil
}

// written takes a chunk that is in the file into account.
func (l *Log) written(c *chunk) {
	a := &l.act
	n := int64(len(c.buf))
	now := l.clock.Now()
	a.indexMu.Lock()
	if a.pos == 0 {
		a.began = now
	}
	c.addTo(a.index, a.pos)
	a.indexMu.Unlock()
	first := a.pos == 0
	a.pos += n
	l.zero.extend(a.pos, n)
	l.retain.grown(a.pos)
	a.next = c.next
	c.buf, c.pending = c.buf[:0], c.pending[:0]
	l.mu.Lock()
	l.buffered -= n
	l.stats.Writes++
	l.mu.Unlock()
	if first {
		l.flush.nudge() // the age of the segment begins
	}
}

// giveUp handles a full disk: the file is cut back to what earlier writes put
// there, the callers of Append are told, and what was enqueued is kept.
func (l *Log) giveUp(chunks []*chunk, full error) error {
	a := &l.act
	l.zero.pause()
	if err := a.f.Truncate(a.pos); err != nil {
		return l.poison(fmt.Errorf("evlog: cut segment %d after a failed write: %w", a.base, err))
	}
	if err := a.f.Sync(); err != nil {
		return l.poison(fmt.Errorf("evlog: sync segment %d after a failed write: %w", a.base, err))
	}
	for _, c := range chunks {
		if c.commit != nil {
			c.commit.finish(full)
		}
		c.dropPending(l.config.IndexBytes)
	}
	l.mu.Lock()
	l.stats.DiskFull++
	l.mu.Unlock()
	l.logger.Warn("disk is full", "err", full)
	l.event(Event{Kind: EventDiskFull, Base: a.base, Offset: a.next, Err: full})
	l.flush.retryLater()
	return full
}

// syncAndPublish makes what is written durable, publishes it, and tells those
// who wait.
func (l *Log) syncAndPublish() error {
	a := &l.act
	if a.unsynced {
		start := l.clock.Elapsed()
		if err := a.f.SyncData(); err != nil {
			return l.poison(fmt.Errorf("evlog: sync segment %d: %w", a.base, err))
		}
		a.unsynced = false
		a.gathering.sync = l.clock.Elapsed() - start
		l.countSync(a.gathering.sync)
	}
	if l.position() != l.pub.load() {
		if err := l.publish(); err != nil {
			return err
		}
	} else if err := l.dir.settle(); err != nil { // what opening found is promised as well
		return l.poison(wrap("open", err))
	}
	if err := l.failure(); err != nil {
		return err // the zeroer's sync failed meanwhile: acknowledge nothing (I5)
	}
	a.gathering.expect(l.joined.Load())
	l.finishWaiting(nil)
	a.gathering.told = time.Now() // waking them has taken its time
	return nil
}

// publish tells readers in all processes how far the log is durable.
func (l *Log) publish() error {
	l.zero.settle()
	if err := l.failure(); err != nil {
		return err
	}
	p := l.position()
	if invariant.Enabled {
		old := l.pub.load()
		invariant.Check(p.NextOffset >= old.NextOffset, "durable offset goes back from %d to %d", old.NextOffset, p.NextOffset)
		invariant.Check(!l.act.unsynced, "publishing unsynced records")
	}
	if err := l.act.durable.publish(p, l.activeInPlace); err != nil {
		return l.poison(fmt.Errorf("evlog: publish DURABLE: %w", err))
	}
	l.closed.activeRecords.Store(int64(l.act.index.header.Records))
	l.act.published = l.clock.Elapsed()
	l.pub.set(p)
	l.flush.published()
	return nil
}

// activeInPlace tests that the name of the active segment still leads to its
// file. Records in a file that nobody can open are not in the log.
func (l *Log) activeInPlace() error {
	name := format.SegmentName(l.act.base)
	same, err := l.dir.Same(name, l.act.f)
	if err == nil && !same {
		err = fmt.Errorf("%s was removed or replaced while it was written", pathOf(l.dir, name))
	}
	return err
}

func (l *Log) countSync(d time.Duration) {
	l.mu.Lock()
	l.stats.Syncs++
	l.stats.SyncTime += d
	l.mu.Unlock()
}

// checkChunk tests a chunk before it is written (I3).
func (l *Log) checkChunk(c *chunk) {
	lowest := l.act.next
	for pos := 0; pos < len(c.buf); {
		h, err := format.Parse(c.buf[pos:], lowest)
		invariant.Check(err == nil, "record at %d of a chunk: %v", pos, err)
		lowest = h.Offset + 1
		pos += int(h.Size())
	}
	invariant.Check(lowest == c.next, "chunk ends at %d, not %d", lowest, c.next)
}
