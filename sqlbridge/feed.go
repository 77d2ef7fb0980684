package sqlbridge

import (
	"context"
	"iter"
	"sync"
	"time"

	"github.com/evlog-go/evlog/evlog"
)

// feed collects records: one goroutine fills it from the log while another one
// applies what was taken before. So reading and SQLite work at the same time, no
// transaction is open while the log is waited for, and what came during one
// transaction is there for the next.
type feed struct {
	clock   evlog.Clock
	batch   int // records that are enough to go on with
	records int // and that are read ahead
	bytes   int64
	delay   time.Duration

	// wake has an element when there is something to look at: the first record,
	// enough of them, or the end. room has one when records were taken.
	wake, room chan struct{}

	taken records // those that were taken last; only take uses them

	mu    sync.Mutex // guards the rest
	next  records
	spare records       // memory for what comes after next
	since time.Duration // when the first of next came
	ended bool
	err   error // why it ended
}

// readAhead is how many records are collected also where batches are smaller:
// to wake a goroutine for each of them would be felt.
const readAhead = 256

func (b *Bridge) newFeed(o RunOptions) *feed {
	batches := 1 + (readAhead-1)/o.BatchRecords
	if o.BatchDelay > 0 {
		batches = 1 // the rest of several would not wait for more
	}
	return &feed{
		clock: b.clock, batch: o.BatchRecords, records: batches * o.BatchRecords, bytes: o.BatchBytes,
		delay: o.BatchDelay, wake: make(chan struct{}, 1), room: make(chan struct{}, 1),
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// fill takes records until they end, with the reason for take.
func (f *feed) fill(ctx context.Context, records iter.Seq2[evlog.Record, error]) {
	err := func() error {
		for rec, err := range records {
			if err == nil {
				err = f.add(ctx, rec)
			}
			if err != nil {
				return err
			}
		}
		return ctx.Err()
	}()
	f.mu.Lock()
	f.ended, f.err = true, err
	f.mu.Unlock()
	signal(f.wake)
}

// add copies a record, once there is room.
func (f *feed) add(ctx context.Context, rec evlog.Record) error {
	f.mu.Lock()
	for f.fullLocked() {
		f.mu.Unlock()
		select {
		case <-f.room:
		case <-ctx.Done():
			return ctx.Err()
		}
		f.mu.Lock()
	}
	f.next.add(rec)
	n := len(f.next.recs)
	if n == 1 && f.delay > 0 {
		f.since = f.clock.Elapsed()
	}
	full := f.fullLocked()
	f.mu.Unlock()
	if n == 1 || n == f.batch || full {
		signal(f.wake)
	}
	return nil
}

func (f *feed) fullLocked() bool { return len(f.next.recs) >= f.records || f.next.bytes >= f.bytes }

// take waits for records, which belong to the caller until the next call. At
// the end it returns why they ended, and nil for both where that was no error.
func (f *feed) take(ctx context.Context) ([]evlog.Record, error) {
	for {
		f.mu.Lock()
		f.recycleLocked()
		ready, wait, err := f.readyLocked()
		if ready {
			f.taken, f.next, f.spare = f.next, f.spare, records{}
		}
		f.mu.Unlock()
		if ready {
			signal(f.room)
			return f.taken.recs, nil
		}
		if err != nil || wait < 0 {
			return nil, err
		}
		if err := f.await(ctx, wait); err != nil {
			return nil, err
		}
	}
}

// recycleLocked keeps the memory of what was taken before.
func (f *feed) recycleLocked() {
	if f.taken.recs == nil {
		return
	}
	f.spare, f.taken = f.taken, records{}
	f.spare.clear()
}

// readyLocked reports whether there is enough to go on with, or how long to wait
// for it (0: until woken, below 0: there will be none).
func (f *feed) readyLocked() (ready bool, wait time.Duration, err error) {
	switch {
	case len(f.next.recs) == 0 && f.ended:
		return false, -1, f.err
	case len(f.next.recs) == 0:
		return false, 0, nil
	case f.delay > 0 && !f.ended && len(f.next.recs) < f.batch && !f.fullLocked():
		if wait := f.since + f.delay - f.clock.Elapsed(); wait > 0 {
			return false, wait, nil
		}
	}
	return true, 0, nil
}

func (f *feed) await(ctx context.Context, wait time.Duration) error {
	var due <-chan time.Time
	if wait > 0 {
		timer, stop := f.clock.Timer(wait)
		defer stop()
		due = timer
	}
	select {
	case <-f.wake:
	case <-due:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// records are copies, whose bytes lie in common blocks. The memory is
// used again, so that following a log leaves nothing for the garbage collector.
type records struct {
	recs  []evlog.Record
	bytes int64
	block []byte // the one that is being filled
}

// Blocks grow with their number, so that one record does not take a large one.
const (
	minBlockBytes = 1 << 10
	maxBlockBytes = 256 << 10
)

func (b *records) add(rec evlog.Record) {
	n := len(rec.Key) + len(rec.Value)
	if cap(b.block)-len(b.block) < n {
		b.block = make([]byte, 0, max(n, minBlockBytes, min(2*cap(b.block), maxBlockBytes)))
	}
	rec.Key = b.copy(rec.Key)
	rec.Value = b.copy(rec.Value)
	b.recs = append(b.recs, rec)
	b.bytes += int64(n)
}

// copy keeps nil what is nil.
func (b *records) copy(p []byte) []byte {
	if len(p) == 0 {
		return nil
	}
	at := len(b.block)
	b.block = append(b.block, p...)
	return b.block[at:len(b.block):len(b.block)]
}

// clear empties it. A block for one large record is not kept.
func (b *records) clear() {
	clear(b.recs)
	b.recs, b.bytes, b.block = b.recs[:0], 0, b.block[:0]
	if cap(b.block) > maxBlockBytes {
		b.block = nil
	}
}
