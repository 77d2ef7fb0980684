package cursortest_test

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/cursor"
	"github.com/evlog-go/evlog/cursor/cursortest"
	"github.com/evlog-go/evlog/evlog"
)

// fakeLog keeps the contract in as few lines as can be, unless it is told to
// break a rule of it.
type fakeLog struct {
	breaks string

	mu      sync.Mutex // guards the rest
	id      string
	recs    []evlog.Record
	first   uint64
	next    uint64
	pos     uint64
	pending []evlog.Record // not durable
	changed chan struct{}
}

func newFakeLog(breaks string) *fakeLog {
	return &fakeLog{breaks: breaks, id: "fake", changed: make(chan struct{})}
}

func (l *fakeLog) ID() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.breaks == "the id stays" {
		return fmt.Sprint(l.id, l.next)
	}
	return l.id
}

func (l *fakeLog) Bounds(context.Context) (first, next uint64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	next = l.next
	switch l.breaks {
	case "an empty log has bounds":
		next += 2
	case "only what is durable is seen":
		next += uint64(len(l.pending))
	}
	return l.first, next, nil
}

func (l *fakeLog) append(_ context.Context, recs ...evlog.Record) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := l.next
	for _, r := range recs {
		r.Offset = l.next
		l.next++
		if l.breaks == "what was appended is read" {
			r.Time = r.Time.Truncate(time.Second)
		}
		l.recs = append(l.recs, r.Clone())
	}
	close(l.changed)
	l.changed = make(chan struct{})
	return first, nil
}

func (l *fakeLog) appendAt(ctx context.Context, recs ...evlog.Record) error {
	for _, r := range recs {
		l.mu.Lock()
		l.next = r.Offset
		l.mu.Unlock()
		if _, err := l.append(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

func (l *fakeLog) enqueue(_ context.Context, recs ...evlog.Record) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending = append(l.pending, recs...)
	return l.next, nil
}

func (l *fakeLog) removeBelow(_ context.Context, offset uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.first = offset
	l.recs = slices.DeleteFunc(l.recs, func(r evlog.Record) bool { return r.Offset < offset })
	return nil
}

func (l *fakeLog) reopen(context.Context) (cursor.Log, error) {
	if l.breaks == "another opening sees the same log" {
		return newFakeLog(""), nil
	}
	return l, nil
}

// at returns the first record at or above from, and what to wait for where
// there is none.
func (l *fakeLog) at(from uint64) (rec evlog.Record, ok bool, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i, found := slices.BinarySearchFunc(l.recs, from, func(r evlog.Record, o uint64) int { return cmp.Compare(r.Offset, o) })
	switch {
	case i == len(l.recs), l.breaks == "holes are legal" && !found:
		return evlog.Record{}, false, l.changed
	}
	return l.recs[i], true, l.changed
}

func (l *fakeLog) Records(ctx context.Context, from uint64) iter.Seq2[evlog.Record, error] {
	return l.read(ctx, from, false)
}

func (l *fakeLog) Follow(ctx context.Context, from uint64) iter.Seq2[evlog.Record, error] {
	return l.read(ctx, from, true)
}

func (l *fakeLog) read(ctx context.Context, from uint64, follow bool) iter.Seq2[evlog.Record, error] {
	return func(yield func(evlog.Record, error) bool) {
		l.mu.Lock()
		first, end := l.first, l.next
		l.mu.Unlock()
		if l.breaks == "reading starts at any offset" {
			from = from / 2 * 2
		}
		l.readFrom(ctx, from, first, end, follow, yield)
	}
}

func (l *fakeLog) readFrom(ctx context.Context, from, first, end uint64, follow bool, yield func(evlog.Record, error) bool) {
	if l.breaks == "outside is out of range" && from > end || l.breaks == "what was removed is out of range" && from < first {
		from = min(max(from, first), end)
	}
	if from < first || from > end {
		yield(evlog.Record{}, &evlog.OffsetError{Asked: from, First: first, Next: end})
		return
	}
	for {
		if err := ctx.Err(); err != nil && l.breaks != "the context ends reading" {
			if l.breaks != "following ends with the context" {
				yield(evlog.Record{}, err)
			}
			return
		}
		if l.breaks == "many read at once" {
			from = l.shared(from)
		}
		rec, ok, changed := l.at(from)
		switch {
		case !follow && (!ok || rec.Offset >= end) && !(ok && l.breaks == "the end is pinned at the start"):
			return
		case ok:
			if !yield(rec, nil) {
				if l.breaks == "a loop may be left" {
					l.recs = nil
				}
				return
			}
			from = rec.Offset + 1
			continue
		case l.breaks == "following waits for more":
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// shared makes one position of those of all who read.
func (l *fakeLog) shared(from uint64) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pos = max(l.pos, from)
	return l.pos
}

func (l *fakeLog) fixture() cursortest.LogFixture {
	return cursortest.LogFixture{
		Log: l, Append: l.append, AppendAt: l.appendAt, Enqueue: l.enqueue,
		RemoveBelow: l.removeBelow, Reopen: l.reopen,
	}
}

func TestLog_Fake(t *testing.T) {
	cursortest.TestLog(t, func(*testing.T) cursortest.LogFixture { return newFakeLog("").fixture() })
}

// Each rule fails on a log that breaks it.
func TestLog_EachRuleCanFail(t *testing.T) {
	rules, _ := cursortest.Rules()
	for _, rule := range rules {
		t.Run(rule, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			require.NoError(t, cursortest.CheckLog(ctx, rule, newFakeLog("").fixture()))
			err := cursortest.CheckLog(ctx, rule, newFakeLog(rule).fixture())
			require.Error(t, err)
			t.Log(err)
		})
	}
}

// fakeStore is the same for stores.
type fakeStore struct {
	breaks string
	logID  string
	place  *place
}

// place is where the stores of several logs keep their consumers.
type place struct {
	mu  sync.Mutex // guards all
	all map[string]cursor.Position
}

func newFakeStore(breaks string) *fakeStore {
	return &fakeStore{breaks: breaks, logID: "one", place: &place{all: map[string]cursor.Position{}}}
}

func (s *fakeStore) fixture() cursortest.StoreFixture {
	return cursortest.StoreFixture{
		Store: s,
		Reopen: func(context.Context) (cursor.Store, error) {
			if s.breaks == "another opening sees the same consumers" {
				return newFakeStore(""), nil
			}
			return &fakeStore{breaks: s.breaks, logID: s.logID, place: s.place}, nil
		},
		OtherLog: func(context.Context) (cursor.Store, error) {
			return &fakeStore{breaks: s.breaks, logID: "two", place: s.place}, nil
		},
	}
}

func (s *fakeStore) find(name string) (cursor.Position, error) {
	p, ok := s.place.all[name]
	switch {
	case !ok && s.breaks == "an unknown consumer is an error":
		return cursor.Position{Name: name, Updated: time.Now()}, nil
	case !ok:
		return p, cursor.ErrUnknownConsumer
	case p.LogID != s.logID && s.breaks != "a cursor of another log is an error":
		return p, &cursor.LogError{Name: name, Cursor: p.Next, LogID: s.logID, CursorsLogID: p.LogID}
	case s.breaks == "what was committed is loaded":
		p.Next++
	}
	return p, nil
}

func (s *fakeStore) Load(_ context.Context, name string) (cursor.Position, error) {
	s.place.mu.Lock()
	defer s.place.mu.Unlock()
	return s.find(name)
}

func (s *fakeStore) Commit(ctx context.Context, name string, from, to uint64) error {
	switch {
	case s.breaks == "names that cannot be are refused":
	default:
		if err := cursor.CheckName(name); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil && s.breaks != "a context that has ended changes nothing" {
		return err
	}
	if to < from && s.breaks != "a commit does not go backwards" {
		return fmt.Errorf("%w: %d is below %d", cursor.ErrOrder, to, from)
	}
	if from == to && s.breaks == "a commit of the same position makes a consumer known" {
		return nil
	}
	if s.breaks == "names are kept exactly" {
		name = fmt.Sprintf("%.10s", name)
	}
	if s.breaks == "high offsets are kept" {
		to = uint64(float64(to))
	}
	return s.move(name, from, to, false)
}

func (s *fakeStore) move(name string, from, to uint64, reset bool) error {
	s.place.mu.Lock()
	defer s.place.mu.Unlock()
	p, err := s.find(name)
	if err != nil && !reset && err != cursor.ErrUnknownConsumer { //nolint:errorlint // find's own
		return err
	}
	if s.breaks == "consumers do not lose each other's commits" {
		read := maps.Clone(s.place.all)
		s.place.mu.Unlock() // a gap between reading and writing
		time.Sleep(time.Millisecond)
		s.place.mu.Lock()
		s.place.all = read
	}
	if p.Next != from && s.breaks != "a commit from elsewhere is refused" && s.breaks != "of two consumers under one name one moves" {
		return &cursor.MovedError{Name: name, Want: from, Stored: p.Next}
	}
	if reset && s.breaks == "a reset goes anywhere" {
		to = max(to, from)
	}
	if reset && s.breaks == "a reset binds to the log" {
		for other, p := range s.place.all {
			p.LogID = s.logID
			s.place.all[other] = p
		}
	}
	s.place.all[name] = cursor.Position{Name: name, Next: to, Updated: time.Now(), LogID: s.logID}
	return nil
}

func (s *fakeStore) Reset(_ context.Context, name string, from, to uint64) error {
	return s.move(name, from, to, true)
}

func (s *fakeStore) List(context.Context) ([]cursor.Position, error) {
	s.place.mu.Lock()
	defer s.place.mu.Unlock()
	var all []cursor.Position
	for _, p := range s.place.all {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b cursor.Position) int {
		if s.breaks == "consumers are listed by name" {
			a, b = b, a
		}
		return cmp.Compare(a.Name, b.Name)
	})
	return all, nil
}

func (s *fakeStore) Remove(_ context.Context, name string) error {
	s.place.mu.Lock()
	defer s.place.mu.Unlock()
	if _, ok := s.place.all[name]; !ok {
		return cursor.ErrUnknownConsumer
	}
	if s.breaks != "a removed consumer is unknown" {
		delete(s.place.all, name)
	}
	return nil
}

func TestStore_Fake(t *testing.T) {
	cursortest.TestStore(t, func(*testing.T) cursortest.StoreFixture { return newFakeStore("").fixture() })
}

// Each rule fails on a store that breaks it.
func TestStore_EachRuleCanFail(t *testing.T) {
	_, rules := cursortest.Rules()
	for _, rule := range rules {
		t.Run(rule, func(t *testing.T) {
			require.NoError(t, cursortest.CheckStore(t.Context(), rule, newFakeStore("").fixture()))
			err := cursortest.CheckStore(t.Context(), rule, newFakeStore(rule).fixture())
			require.Error(t, err)
			t.Log(err)
		})
	}
}
