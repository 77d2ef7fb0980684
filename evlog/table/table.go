package table

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/evlog-go/evlog/cursor"
	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/strict"
)

// DefaultMaxBytes is the memory that a view may take if nothing else is said.
const DefaultMaxBytes = 256 << 20

// Options are the choices of Open. Nil and the zero value are the defaults.
type Options struct {
	// MaxBytes bounds the keys and values that the view keeps, with what Go takes
	// to keep them; see Table.Bytes. 0 is DefaultMaxBytes, below 0 is no limit.
	// While a view makes itself anew because retention has overtaken it, the old
	// state is kept beside the new one, and each may take as much.
	MaxBytes int64
}

// Errors of this package.
var (
	// ErrFull: the next record does not fit into MaxBytes. It comes as a
	// *FullError.
	ErrFull = errors.New("table is full")
	// ErrClosed: the table was closed. What it had can still be read.
	ErrClosed = errors.New("table is closed")
)

// FullError says where a view stopped that became too large. It is ErrFull.
type FullError struct {
	Offset          uint64 // of the record that does not fit
	Keys            int    // in the view
	Bytes, MaxBytes int64
}

// Error gives all numbers.
func (e *FullError) Error() string {
	return fmt.Sprintf("table: %v: offset %d does not fit beside %d keys with %d bytes (at most %d)",
		ErrFull, e.Offset, e.Keys, e.Bytes, e.MaxBytes)
}

// Unwrap gives ErrFull.
func (e *FullError) Unwrap() error { return ErrFull }

// Entry is the newest record of a key. Value must not be changed, and stays
// valid.
type Entry struct {
	Offset uint64
	Time   time.Time
	Schema uint16
	Value  []byte
}

// Table is a view of a log. It is current until Close, or until an error stops
// it.
type Table struct {
	log    cursor.Log
	max    int64
	cancel context.CancelFunc
	done   chan struct{} // closed when the view changes no more

	mu      sync.RWMutex // guards the rest
	state   *state
	aside   *state        // being built to replace state; nil mostly
	changed chan struct{} // closed and replaced when state.next rises; nil where nobody waits
	err     error         // why it changes no more
}

// Open builds the view from the log's first record up to its durable end, and
// goes on following it in the background. ctx ends the building alone. A view
// that does not fit is a *FullError and no table; all other errors are the log's.
func Open(ctx context.Context, log cursor.Log, opts *Options) (*Table, error) {
	t := &Table{log: log, max: DefaultMaxBytes, done: make(chan struct{})}
	if opts != nil && opts.MaxBytes != 0 {
		t.max = opts.MaxBytes
	}
	if err := t.build(ctx); err != nil {
		return nil, err
	}
	following, cancel := context.WithCancel(context.WithoutCancel(ctx))
	t.cancel = cancel
	go t.run(following)
	return t, nil
}

// build makes a new state up to the log's end, and then puts it in place of the
// old one. Retention may overtake it: then it begins again.
func (t *Table) build(ctx context.Context) error {
	for {
		first, end, err := t.log.Bounds(ctx)
		if err != nil {
			return err
		}
		s := newState(t.max, first)
		t.mu.Lock()
		t.aside = s
		t.mu.Unlock()
		err = t.fill(ctx, s, first, end)
		if overtaken(err) {
			continue
		}
		t.mu.Lock()
		t.aside = nil
		if err == nil {
			t.state = s
			t.wakeLocked()
		}
		t.mu.Unlock()
		return err
	}
}

func (t *Table) fill(ctx context.Context, s *state, first, end uint64) error {
	for rec, err := range t.log.Records(strict.Context(ctx), first) {
		if err == nil {
			t.mu.Lock() // for Bytes
			err = s.apply(rec)
			t.mu.Unlock()
		}
		if err != nil {
			return err
		}
	}
	s.next = max(s.next, end) // only holes are left below
	return nil
}

// overtaken reports whether err says that retention has removed what was to be
// read next.
func overtaken(err error) bool {
	var out *evlog.OffsetError
	return errors.As(err, &out) && out.Asked < out.First
}

// run follows the log until that ends.
func (t *Table) run(ctx context.Context) {
	defer close(t.done)
	err := t.follow(ctx)
	for overtaken(err) {
		if err = t.build(ctx); err == nil {
			err = t.follow(ctx)
		}
	}
	if ctx.Err() != nil {
		err = ErrClosed
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.err = err
}

func (t *Table) follow(ctx context.Context) error {
	for rec, err := range t.log.Follow(strict.Context(ctx), t.Next()) {
		if err == nil {
			err = t.apply(rec)
		}
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (t *Table) apply(rec evlog.Record) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	err := t.state.apply(rec)
	t.wakeLocked()
	return err
}

func (t *Table) wakeLocked() {
	if t.changed != nil {
		close(t.changed)
		t.changed = nil
	}
}

// Get returns the newest record of a key. ok is false if the key has none, or
// was deleted.
func (t *Table) Get(key string) (e Entry, ok bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if p := t.state.entries[key]; p != nil {
		return *p, true
	}
	return Entry{}, false
}

// All yields every key with its newest record, in no order, as they are when the
// iteration begins. It takes 24 bytes for each key, and holds nobody up while the
// caller works.
func (t *Table) All() iter.Seq2[string, Entry] {
	return func(yield func(string, Entry) bool) {
		type pair struct {
			key string
			e   *Entry // never changed
		}
		t.mu.RLock()
		all := make([]pair, 0, len(t.state.entries))
		for key, e := range t.state.entries {
			all = append(all, pair{key, e})
		}
		t.mu.RUnlock()
		for _, p := range all {
			if !yield(p.key, *p.e) {
				return
			}
		}
	}
}

// Len is the number of keys.
func (t *Table) Len() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.state.entries)
}

// Bytes is the memory that the view takes: keys, values, and what Go needs to
// keep them, which is an estimate. MaxBytes bounds it.
func (t *Table) Bytes() int64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	n := t.state.bytes
	if t.aside != nil {
		n += t.aside.bytes
	}
	return n
}

// Next is the offset up to which the view stands: it is made of the records
// below.
func (t *Table) Next() uint64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.state.next
}

// Wait returns when the view has every record below next. A caller that has
// appended at offset o waits for o+1; one that wants all there is, for the second
// result of the log's Bounds. If the view has stopped before, Wait returns Err.
func (t *Table) Wait(ctx context.Context, next uint64) error {
	for {
		t.mu.Lock()
		at := t.state.next
		if at >= next {
			t.mu.Unlock()
			return nil
		}
		if t.changed == nil {
			t.changed = make(chan struct{})
		}
		changed := t.changed
		t.mu.Unlock()
		holes, err := t.onlyHoles(ctx, at, next)
		if err != nil || holes {
			return err
		}
		if err := t.pause(ctx, changed); err != nil {
			return err
		}
	}
}

// holesEvery is how often Wait looks whether only holes are left: a record tells
// of itself, a hole does not.
const holesEvery = 100 * time.Millisecond

func (t *Table) pause(ctx context.Context, changed <-chan struct{}) error {
	timer := time.NewTimer(holesEvery)
	defer timer.Stop()
	select {
	case <-changed:
		return nil
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-t.done:
		if err := t.Err(); err != nil {
			return err
		}
		return ErrClosed
	}
}

// onlyHoles reports whether the log is durable up to next, with no record left from
// at on below that.
func (t *Table) onlyHoles(ctx context.Context, at, next uint64) (bool, error) {
	_, end, err := t.log.Bounds(ctx)
	if err != nil || end < next {
		return false, t.orStopped(err)
	}
	for at < next {
		var out *evlog.OffsetError
		for rec, err := range t.log.Records(strict.Context(ctx), at) {
			if overtaken(err) && errors.As(err, &out) {
				break
			}
			return err == nil && rec.Offset >= next, t.orStopped(err)
		}
		if out == nil {
			return true, nil
		}
		// The view finds out, unless it is beyond the holes, and waits for what comes
		// after next.
		at = out.First
	}
	return true, nil
}

// orStopped prefers the reason why the view stopped to an error of the log.
func (t *Table) orStopped(err error) error {
	if err != nil && t.Err() != nil {
		return t.Err()
	}
	return err
}

// Done is closed when the view is not kept current any more; Err says why.
func (t *Table) Done() <-chan struct{} { return t.done }

// Err is nil while the view is kept current. After Close it is ErrClosed, else
// what stopped it: a *FullError, or an error of the log.
func (t *Table) Err() error {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.err
}

// Close ends the following. What the view has can still be read. Closing it again
// does nothing. It does not close the log.
func (t *Table) Close() error {
	t.cancel()
	<-t.done
	return nil
}
