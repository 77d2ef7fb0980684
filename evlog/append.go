package evlog

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"syscall"

	"github.com/evlog-go/evlog/internal/format"
)

// chunkBytes is the size from which a chunk counts as full. It stays in the
// processor's cache between being filled and being written.
const chunkBytes = 256 << 10

// maxBatchBytes is the largest batch: it is encoded in one piece, also where an
// int has 32 bits.
const maxBatchBytes = 1<<31 - 1<<20

// Append appends the records as one batch, with offsets that follow each other
// and with nobody else's in between, and returns when they are durable: record
// i has offset first+i. Concurrent calls share one sync.
//
// Under SyncInterval it waits for the next sync of the interval; under the other
// policies it syncs at once. After a crash a prefix of a batch that was not
// acknowledged may be in the log.
//
// If ctx ends while the call waits for buffer space or for the append gate,
// nothing was appended. Once the records are accepted, it returns first
// together with ErrUnconfirmed. On a full disk the error wraps ENOSPC: nothing
// was appended, and the offsets are a hole. Appending no records is a no-op; a
// batch of 2 GiB or more is ErrTooLarge.
//
// An error that is ErrPoisoned leaves open whether the records are in the log:
// opening it again finds out. After all other errors but ErrUnconfirmed they are
// not.
func (l *Log) Append(ctx context.Context, records ...Record) (first uint64, err error) {
	first, c, err := l.accept(ctx, records, offsetsGiven, true)
	if err != nil || c == nil {
		return first, err
	}
	return first, l.await(ctx, c)
}

// AppendExact is Append for records that carry their own offsets, each above
// the last one in the log, for mirrors and for unpacking. Holes are legal. An
// offset that is too low is ErrOffsetOrder, and nothing was appended.
func (l *Log) AppendExact(ctx context.Context, records ...Record) error {
	_, c, err := l.accept(ctx, records, offsetsCarried, true)
	if err != nil || c == nil {
		return err
	}
	return l.await(ctx, c)
}

// Enqueue accepts the records as one batch and returns their offsets without
// waiting until they are durable; when they will be is the policy's matter, and
// Flush waits for it. It does wait for buffer space. If ctx ends meanwhile,
// nothing was appended.
func (l *Log) Enqueue(ctx context.Context, records ...Record) (first uint64, err error) {
	first, _, err = l.accept(ctx, records, offsetsGiven, false)
	return first, err
}

// EnqueueExact is Enqueue for records that carry their own offsets, as in
// AppendExact.
func (l *Log) EnqueueExact(ctx context.Context, records ...Record) error {
	_, _, err := l.accept(ctx, records, offsetsCarried, false)
	return err
}

// Flush waits until every record accepted before the call is durable. If the
// disk is full, the error wraps ENOSPC, enqueued records stay in the buffer, and
// Flush may be called again. When ctx ends, the error is ErrUnconfirmed.
func (l *Log) Flush(ctx context.Context) error {
	l.mu.Lock()
	if l.err != nil {
		err := l.err
		l.mu.Unlock()
		return err
	}
	c := l.joinLocked()
	l.mu.Unlock()
	return l.lead(ctx, c)
}

type offsetSource bool

const (
	offsetsGiven   offsetSource = false // by the log
	offsetsCarried offsetSource = true  // by the records
)

// accept encodes the records into the buffer. With wait it joins the commit of
// their chunk, which it returns.
func (l *Log) accept(ctx context.Context, records []Record, src offsetSource, wait bool) (uint64, *commit, error) {
	size, unstamped, err := l.measure(records)
	if err != nil {
		return 0, nil, err
	}
	if err := ctx.Err(); err != nil {
		return 0, nil, err
	}
	var now int64
	if unstamped {
		now = l.stamps.now()
	}
	l.lockShortly()
	if err := l.admitLocked(ctx, size, nil); err != nil {
		l.mu.Unlock()
		return 0, nil, err
	}
	return l.encodeAndUnlock(records, size, now, src, wait)
}

// lockTries is how often mu is asked for before waiting. With 200 the median of a call
// was shorter by a seventh than with none, among 64 callers and among 256 on two cores.
const lockTries = 200

// lockShortly is mu.Lock for callers who come by the hundred. Whoever holds mu is done in
// a fraction of a microsecond, but where other goroutines wait to run Lock parks at once,
// and to be parked and woken takes longer than that.
func (l *Log) lockShortly() {
	for range lockTries {
		if l.mu.TryLock() {
			return
		}
	}
	l.mu.Lock()
}

// encodeAndUnlock is the second half of accept: there is room, and mu is held.
func (l *Log) encodeAndUnlock(records []Record, size, now int64, src offsetSource, wait bool) (uint64, *commit, error) {
	if err := l.checkOffsetsLocked(records, src); err != nil {
		l.mu.Unlock()
		return 0, nil, err
	}
	if len(records) == 0 {
		first := l.nextOffset
		l.mu.Unlock()
		return first, nil, nil
	}
	first := l.nextOffset
	if src == offsetsCarried {
		first = records[0].Offset
	}
	c := l.encodeLocked(records, size, now, src, wait)
	var join *commit
	if wait {
		join = l.joinLocked()
	}
	full := len(c.buf) >= chunkBytes
	if full {
		l.queue, l.cur = append(l.queue, c), nil
	}
	l.mu.Unlock()
	l.wake(wait, full)
	return first, join, nil
}

// measure checks the records and adds up their size.
func (l *Log) measure(records []Record) (size int64, unstamped bool, err error) {
	for i := range records {
		r := &records[i]
		n := r.Size()
		// What most records pass is tested here: a call takes as long as the rest.
		if stamped := !r.Time.IsZero(); stamped || len(r.Key) > MaxKeyBytes || n > l.opts.MaxRecordBytes {
			if err := r.check(l.opts.MaxRecordBytes); err != nil {
				return 0, false, err
			}
			unstamped = unstamped || !stamped
		} else {
			unstamped = true
		}
		size += n
	}
	if size > maxBatchBytes {
		return 0, false, fmt.Errorf("evlog: batch of %d bytes: %w (at most %d)", size, ErrTooLarge, maxBatchBytes)
	}
	return size, unstamped, nil
}

// admitLocked waits until the batch may be encoded: the log is open, nobody
// else has the gate, and there is room. It gives up mu while it waits.
func (l *Log) admitLocked(ctx context.Context, size int64, g *Gate) error {
	waited := false
	for {
		switch {
		case l.err != nil:
			return l.err
		case l.closing:
			return ErrClosed
		case !l.hookOK:
			return fmt.Errorf("evlog: append: %w: open it with the hook %q", ErrHookRequired, l.meta.OpenHook)
		}
		if l.gate != g {
			l.stats.GateWaits++
			free := l.gateFree
			l.mu.Unlock()
			select {
			case <-free:
			case <-l.dead:
			case <-ctx.Done():
				l.mu.Lock()
				return ctx.Err()
			}
			l.mu.Lock()
			continue
		}
		if l.buffered == 0 || l.buffered+size <= l.opts.BufferBytes {
			return nil
		}
		if !waited {
			l.stats.RoomWaits++
			waited = true
		}
		if err := l.waitForRoomLocked(ctx); err != nil {
			return err
		}
	}
}

// waitForRoomLocked waits until something was written. The caller writes
// itself if nobody else does.
func (l *Log) waitForRoomLocked(ctx context.Context) error {
	if l.room == nil {
		l.room = &commit{done: make(chan struct{})}
	}
	room := l.room
	l.mu.Unlock()
	defer l.mu.Lock()
	select {
	case <-room.done:
		return room.err
	case <-ctx.Done():
		return ctx.Err()
	case l.turn <- struct{}{}:
		defer l.releaseTurn()
		return l.commit(false)
	}
}

func (l *Log) roomFreedLocked(err error) {
	if l.room != nil {
		l.room.finish(err)
		l.room = nil
	}
}

// checkOffsetsLocked tests that the records' offsets are free.
func (l *Log) checkOffsetsLocked(records []Record, src offsetSource) error {
	if src == offsetsGiven {
		if uint64(len(records)) > math.MaxUint64-l.nextOffset {
			return fmt.Errorf("evlog: offset: %w (no offsets are left above %d)", ErrTooLarge, l.nextOffset)
		}
		return nil
	}
	lowest := l.nextOffset
	for i := range records {
		switch off := records[i].Offset; {
		case off < lowest:
			return fmt.Errorf("evlog: offset %d: %w (lowest possible: %d)", off, ErrOffsetOrder, lowest)
		case off > format.MaxOffset:
			return fmt.Errorf("evlog: offset %d: %w (the highest is %d)", off, ErrTooLarge, uint64(format.MaxOffset))
		}
		lowest = records[i].Offset + 1
	}
	return nil
}

// encodeLocked puts the records into a chunk; there is room for them.
func (l *Log) encodeLocked(records []Record, size, now int64, src offsetSource, wait bool) *chunk {
	// The writer rolls before a batch, never inside one, and never an empty
	// segment.
	if l.segBytes > 0 && l.segBytes+size > l.rollBytes {
		l.beginSegmentLocked()
	}
	c := l.curLocked()
	from := len(c.buf)
	c.buf = slices.Grow(c.buf, int(size))
	for i := range records {
		r := &records[i]
		ms := now
		if !r.Time.IsZero() {
			ms = r.Time.UnixMilli()
		}
		if src == offsetsCarried {
			l.nextOffset = r.Offset
		}
		c.add(l.nextOffset, ms, r, &l.spacing)
		l.nextOffset++
	}
	if wait {
		c.wait(from)
	}
	l.segBytes += size
	l.buffered += size
	l.stats.Records += uint64(len(records))
	l.stats.Bytes += uint64(size)
	l.stats.Batches++
	return c
}

// beginSegmentLocked starts a chunk before which the writer rolls.
func (l *Log) beginSegmentLocked() *chunk {
	if l.cur != nil {
		l.queue, l.cur = append(l.queue, l.cur), nil
	}
	c := l.curLocked()
	c.roll = true
	l.segBytes, l.spacing = 0, newSpacing(l.config.IndexBytes)
	return c
}

// curLocked returns the chunk being filled.
func (l *Log) curLocked() *chunk {
	if l.cur == nil {
		if n := len(l.spare); n > 0 {
			l.cur, l.spare = l.spare[n-1], l.spare[:n-1]
		} else {
			l.cur = &chunk{}
		}
		l.cur.base = l.nextOffset
	}
	return l.cur
}

// joinLocked returns the commit of the chunk being filled. It is finished when
// everything accepted so far is durable.
func (l *Log) joinLocked() *commit {
	c := l.curLocked()
	if c.commit == nil {
		c.commit = &commit{done: make(chan struct{})}
	}
	l.joined.Add(1)
	return c.commit
}

// wake sees to it that what was accepted is written in time.
func (l *Log) wake(wait, full bool) {
	switch {
	case wait && l.config.Sync != SyncInterval: // the caller leads
	case l.config.Sync == SyncAlways:
		l.flush.kick()
	case l.config.Sync == SyncInterval:
		l.flush.arm()
	}
	if full && l.config.Sync != SyncAlways {
		select {
		case l.turn <- struct{}{}:
			defer l.releaseTurn()
			// An error is not this caller's: Flush and Append report it, or the log
			// is poisoned.
			_ = l.commit(false)
		default: // Whoever works now takes it, or the one who finds no room.
		}
	}
}

// await waits for the outcome of an accepted batch.
func (l *Log) await(ctx context.Context, c *commit) error {
	if l.config.Sync == SyncInterval {
		return l.outcome(ctx, c)
	}
	return l.lead(ctx, c)
}

// lead waits for c. The first caller who waits for it does the work, when it
// gets the turn; were all after the turn, each would be woken for it.
func (l *Log) lead(ctx context.Context, c *commit) error {
	if !c.led.CompareAndSwap(false, true) {
		return l.outcome(ctx, c)
	}
	select {
	case <-c.done: // preferred to the end of ctx
		return c.err
	default:
	}
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		l.flush.kick()
		return unconfirmed(ctx)
	case l.turn <- struct{}{}:
	}
	l.takeTurn(c)
	return l.outcome(ctx, c)
}

// takeTurn commits for c and everybody else who waits, and ends the turn.
func (l *Log) takeTurn(c *commit) {
	defer l.releaseTurn() // also when a caller's hook ends the goroutine
	select {
	case <-c.done: // by the one who had the turn before
	default:
		l.gather()
		// The error is in the commits that it concerns, and this one's is not
		// necessarily the first.
		_ = l.commit(true)
	}
}

// outcome waits for the result of a commit, and prefers it to the end of ctx.
func (l *Log) outcome(ctx context.Context, c *commit) error {
	ended := ctx.Done()
	if ended == nil { // a plain receive is the cheaper one
		<-c.done
		return c.err
	}
	select {
	case <-c.done:
		return c.err
	default:
	}
	select {
	case <-c.done:
		return c.err
	case <-ended:
		return unconfirmed(ctx)
	}
}

func unconfirmed(ctx context.Context) error {
	return fmt.Errorf("evlog: %w: %w", ErrUnconfirmed, ctx.Err())
}

func (l *Log) acquireTurn(ctx context.Context) error {
	select {
	case l.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// releaseTurn ends the turn. Whoever poisoned the log in it, or saw it poisoned,
// leaves nobody waiting for a sync that will not come.
func (l *Log) releaseTurn() {
	if err := l.failure(); err != nil {
		l.finishWaiting(err)
	}
	<-l.turn
}

func waitFor(ctx context.Context, c <-chan struct{}) error {
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// diskFull reports whether err says that there is no space left, in a way that
// leaves no doubt about what is on disk: a sync that fails for lack of space, or
// a log that is poisoned for it, is something else.
func diskFull(err error) bool {
	if errors.Is(err, ErrPoisoned) || errors.Is(err, errSyncDir) {
		return false
	}
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, errDiskQuota)
}

// errSyncDir marks a failed sync of the directory.
var errSyncDir = errors.New("sync the directory")
