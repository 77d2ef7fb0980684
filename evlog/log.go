package evlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/evlog-go/evlog/internal/format"
	"github.com/evlog-go/evlog/internal/vfs"
)

// Log is a log opened for writing. All methods are safe for concurrent use.
type Log struct {
	// Records travel like this: a caller encodes them into the current chunk
	// under mu; whoever has the turn takes all chunks, writes them, syncs the
	// segment, publishes DURABLE and tells those who wait. mu is never held
	// across I/O.

	dir       *stickyDir
	opts      Options
	config    StoredConfig
	rollBytes int64 // config.rollBytes()
	clock     Clock
	stamps    stamper // clock, for records
	logger    *slog.Logger
	lock      *writerLock
	reader    *Reader
	id        string

	mu         sync.Mutex // guards the fields down to the next blank line
	cur        *chunk     // being filled; nil before the first record
	queue      []*chunk   // complete chunks, oldest first
	spare      []*chunk   // for reuse
	buffered   int64      // bytes in cur, queue, and in the hands of the turn
	nextOffset uint64     // that the next record gets
	segBytes   int64      // size of the active segment with everything buffered
	spacing    spacing    // of its index entries, with everything buffered
	err        error      // set once: closed or poisoned
	closing    bool       // no new records
	hookOK     bool       // appending is allowed: see ErrHookRequired
	room       *commit    // finished when there is room again; nil where nobody waits
	gate       *Gate      // held; nil if not
	gateFree   chan struct{}
	stats      Stats
	meta       *meta
	noRoom     error // why the last roll did not happen; nil if it did

	joined atomic.Int64 // callers who wait for a chunk that no turn has taken; changed under mu

	closed closedSegments

	dead chan struct{} // closed when the log is poisoned
	turn chan struct{} // holds one token while somebody works on the files
	act  active        // belongs to the turn
	pub  publication

	zero   zeroer
	house  housekeeper
	retain retainer
	flush  flusher

	compact compactor
	clocks  clockWatch

	eventMu   sync.Mutex // one event at a time; guards onEvent
	onEvent   func(Event)
	closeOnce sync.Once
	closeErr  error
}

// active is the segment that is appended to, and the rest of what belongs to
// whoever has the turn.
type active struct {
	base      uint64
	f         vfs.File
	pos       int64  // end of the records written
	next      uint64 // next(pos): the offset after the last of them, or base
	unsynced  bool   // some bytes below pos were not synced yet
	waiting   []*commit
	durable   durableFile
	gathering gathering
	published time.Duration // when, by Clock.Elapsed

	indexMu sync.Mutex // guards index and began: readers and the flusher look too
	index   *indexBuilder
	prior   *index // entries that index still lacks, from the clean close before
	began   time.Time
}

// ID is the log's identity, a UUID made when it was created. Cursors and
// idempotency keys carry it.
func (l *Log) ID() string { return l.id }

// Reader returns the reader of this log in the same process. It is woken by
// appends without polling, and ends with ErrClosed when the log is closed.
// There is one: closing it does nothing.
func (l *Log) Reader() *Reader { return l.reader }

// Config is what log.json keeps of the options, with defaults filled in.
func (l *Log) Config() StoredConfig { return l.config }

// Stats returns counters and the present state.
func (l *Log) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats
	s.NextOffset = l.nextOffset
	s.DurableNext = l.pub.load().NextOffset
	s.Buffered = l.buffered
	if l.gate != nil {
		s.GateHolder = l.gate.holder
	}
	return s
}

// Close refuses new records, makes what was accepted durable, gives every
// waiting call its result, and releases the log. Followers of this process end
// with ErrClosed. If the disk is full, the error says how many enqueued records
// were lost. A poisoned log is only released: nothing is written, cut off or
// published. Close waits for the append gate, and for a Compact, Retain or Reindex
// that goes on, which it ends: called from their Progress it would wait for ever.
// Calling it again returns the same result.
func (l *Log) Close() error {
	l.closeOnce.Do(func() { l.closeErr = l.close() })
	return l.closeErr
}

func (l *Log) close() error {
	l.mu.Lock()
	l.closing = true
	for l.gate != nil {
		free := l.gateFree
		l.mu.Unlock()
		select {
		case <-free:
			l.mu.Lock()
			continue
		case <-l.dead: // the holder can do nothing more with it
			l.mu.Lock()
		}
		break
	}
	l.mu.Unlock()

	l.compact.stop()
	l.flush.stop()
	l.zero.stop()
	l.retain.stop()
	l.turn <- struct{}{}
	err := l.finish()
	l.mu.Lock()
	if l.err == nil {
		l.err = ErrClosed
	}
	l.failLocked(l.err)
	l.mu.Unlock()
	l.finishWaiting(l.err)
	<-l.turn

	l.house.stop()
	l.reader.shut()
	l.act.indexMu.Lock()
	err = errors.Join(err, l.act.dropPrior())
	l.act.indexMu.Unlock()
	return errors.Join(err, l.act.durable.close(), l.act.f.Close(), l.lock.release(), l.dir.Close())
}

// finish does what a clean close leaves behind: everything durable, the active
// segment at its exact size with an index that matches, and a DURABLE that says
// so. The turn is held.
func (l *Log) finish() (err error) {
	finished := false
	defer func() { l.poisonUnless(finished, recover(), &err) }()
	err = l.leaveClean()
	finished = true
	return err
}

func (l *Log) leaveClean() error {
	if err := l.failure(); err != nil {
		return err
	}
	// Where only what Append's callers wait for could not be written, they are
	// told, and the log is as clean as without them.
	if lost, err := l.commitAll(); err != nil && (lost > 0 || !diskFull(err)) {
		if lost > 0 {
			return fmt.Errorf("evlog: close: %d enqueued records are lost: %w", lost, err)
		}
		return err
	}
	if l.saveJump(); l.poisoned() {
		return l.failure()
	}
	a := &l.act
	if err := a.f.Truncate(a.pos); err != nil {
		return l.poison(fmt.Errorf("evlog: close: %w", err))
	}
	if err := a.f.Sync(); err != nil {
		return l.poison(fmt.Errorf("evlog: close: %w", err))
	}
	if err := l.indexActive(); err != nil {
		l.logger.Warn("index not written at close; the next opening reads the segment", "err", err)
	}
	if err := l.dir.Sync(); err != nil {
		return l.poison(fmt.Errorf("evlog: close: %w: %w", errSyncDir, err))
	}
	if err := a.durable.publish(l.position(), l.activeInPlace); err != nil {
		return l.poison(fmt.Errorf("evlog: close: %w", err))
	}
	a.durable.dirty = true
	if err := a.durable.sync(); err != nil {
		return l.poison(fmt.Errorf("evlog: close: %w", err))
	}
	return nil
}

// commitAll commits what is buffered. After a failure that is no poison, lost
// is the number of enqueued records that could not be written.
func (l *Log) commitAll() (lost uint64, err error) {
	l.mu.Lock()
	for _, c := range append(l.queue, l.curIfAny()...) {
		lost += c.enqueued()
	}
	l.mu.Unlock()
	err = l.commit(true)
	if !errors.Is(err, ErrPoisoned) {
		lost = l.left()
	}
	return lost, err
}

// left is the number of records that are still in the buffer.
func (l *Log) left() (n uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range append(l.queue, l.curIfAny()...) {
		n += c.summary.Records
	}
	return n
}

// indexActive writes the index of the active segment as it stands.
func (l *Log) indexActive() error {
	h, entries := l.act.wholeIndex()
	return writeIndex(l.dir, h, entries)
}

// position is the durable position when everything written is synced.
func (l *Log) position() format.Durable {
	return format.Durable{NextOffset: l.act.next, Base: l.act.base, Position: l.act.pos}
}

// failure returns why the log takes no more records: nil, closed or poisoned.
func (l *Log) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// poisoned reports whether the log must not write anything any more (I5).
func (l *Log) poisoned() bool { return errors.Is(l.failure(), ErrPoisoned) }

// poison makes the log acknowledge nothing more, because of cause, and returns
// the error that every call gets from now on (I5).
func (l *Log) poison(cause error) error {
	l.mu.Lock()
	if l.err != nil {
		err := l.err
		l.mu.Unlock()
		return err
	}
	err := &poisonedError{cause}
	l.err = err
	l.failLocked(err)
	close(l.dead)
	l.mu.Unlock()
	l.logger.Error("poisoned", "err", cause)
	l.event(Event{Kind: EventPoisoned, Err: cause})
	return err
}

// poisonBeside is poison for a goroutine that does not have the turn: it takes it for a
// moment, so that those who wait for a sync are told.
func (l *Log) poisonBeside(cause error) {
	_ = l.poison(cause)
	l.turn <- struct{}{}
	l.releaseTurn()
}

// failLocked gives everybody who waits for something not yet written its error.
func (l *Log) failLocked(err error) {
	for _, c := range append(l.queue, l.curIfAny()...) {
		if c.commit != nil {
			c.commit.finish(err)
		}
	}
	l.queue, l.cur = nil, nil
	l.roomFreedLocked(err)
}

func (l *Log) curIfAny() []*chunk {
	if l.cur == nil {
		return nil
	}
	return []*chunk{l.cur}
}

// finishWaiting gives those who wait for a sync its result. The turn is held.
func (l *Log) finishWaiting(err error) {
	for _, c := range l.act.waiting {
		c.finish(err)
	}
	l.act.waiting = l.act.waiting[:0]
	l.act.gathering.covered = 0
}

// poisonUnless turns a panic, or a runtime.Goexit out of a caller's hook, into a
// poisoned log: nobody may hang because of it, and nothing is known about what
// was being done. Deferred, with recover()'s result.
func (l *Log) poisonUnless(finished bool, panicked any, err *error) {
	switch {
	case finished:
	case panicked != nil:
		l.logger.Error("panic", "value", panicked, "stack", string(debug.Stack()))
		*err = l.poison(fmt.Errorf("panic: %v", panicked))
	default:
		*err = l.poison(errGoexit)
	}
}

var errGoexit = errors.New("the goroutine was ended in the middle of a write")

// event tells the caller's hook. A panic in it poisons the log, and it is not
// called again.
func (l *Log) event(e Event) {
	if p := l.callHook(e); p != nil {
		l.poison(fmt.Errorf("panic in OnEvent: %v", p)) //nolint:errcheck // the log carries it
	}
}

func (l *Log) callHook(e Event) (panicked any) {
	l.eventMu.Lock()
	defer l.eventMu.Unlock()
	if l.onEvent == nil {
		return nil
	}
	defer func() {
		if panicked = recover(); panicked != nil {
			l.onEvent = nil
		}
	}()
	l.onEvent(e)
	return nil
}

// RequireHook stores, durably, that every writer needs the open hook of this
// name from now on (see Options.OpenHook and ErrHookRequired). The log must have
// been opened with it. note is stored beside the name, for the hook to see when
// the log is opened again: a line at most.
func (l *Log) RequireHook(ctx context.Context, note string) error {
	name := l.opts.OpenHook.Name
	if name == "" {
		return badOption("OpenHook", "is not set")
	}
	if err := l.acquireTurn(ctx); err != nil {
		return err
	}
	defer l.releaseTurn()
	l.mu.Lock()
	m := *l.meta
	err := l.err
	l.mu.Unlock()
	switch {
	case err != nil || m.OpenHook == name && m.HookNote == note:
		return err
	case m.OpenHook != "" && m.OpenHook != name:
		return fmt.Errorf("evlog: require the hook %q: %w: the log has %q", name, ErrHookRequired, m.OpenHook)
	case len(note) > maxHookNote:
		return badOption("RequireHook", "has a note of %d bytes, more than %d", len(note), maxHookNote)
	}
	err = l.changeMeta(func(m *meta) { m.OpenHook, m.HookNote = name, note })
	if err == nil || err == l.failure() {
		return err
	}
	err = fmt.Errorf("evlog: store the open hook: %w", err)
	if diskFull(err) {
		return err
	}
	return l.poison(err)
}

// maxHookNote bounds what a hook can leave in log.json.
const maxHookNote = 1 << 10

// Check tells whether Append would refuse the record for what it is: ErrTooLarge.
func (l *Log) Check(r Record) error { return r.check(l.opts.MaxRecordBytes) }

// MaxRecordBytes is Options.MaxRecordBytes, or the default.
func (l *Log) MaxRecordBytes() int64 { return l.opts.MaxRecordBytes }
