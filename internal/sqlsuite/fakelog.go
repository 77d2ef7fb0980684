package sqlsuite

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/evlog-go/evlog/cursor"
	"github.com/evlog-go/evlog/evlog"
)

// fakeLog is a cursor.Log with everything that logs may have: holes, a first
// offset above 0, and an end that the test moves.
type fakeLog struct {
	id string
	// onBounds is called by Bounds, which is where a consumer looks at the log
	// when it has read its cursor.
	onBounds func()

	mu    sync.Mutex // guards the rest
	recs  []evlog.Record
	first uint64
	next  uint64
	grown chan struct{} // closed and replaced when there is more
}

func newLog(id string) *fakeLog { return &fakeLog{id: id, grown: make(chan struct{})} }

// logOf has n records from offset first on.
func logOf(id string, first uint64, n int) *fakeLog {
	l := newLog(id)
	l.first, l.next = first, first
	l.add(n)
	return l
}

// add appends n records.
func (l *fakeLog) add(n int) {
	for range n {
		end := l.end()
		l.append(evlog.Record{Key: fmt.Appendf(nil, "k%d", end%7), Value: fmt.Appendf(nil, "value of %d", end)})
	}
}

// append appends records and returns the offset of the first.
func (l *fakeLog) append(recs ...evlog.Record) (first uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first = l.next
	for _, r := range recs {
		r = r.Clone()
		r.Offset = l.next
		l.recs = append(l.recs, r)
		l.next++
	}
	close(l.grown)
	l.grown = make(chan struct{})
	return first
}

// skip leaves out n offsets, as compaction does.
func (l *fakeLog) skip(n uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next += n
}

// drop removes the records below offset, as retention does.
func (l *fakeLog) drop(offset uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.first = offset
	for len(l.recs) > 0 && l.recs[0].Offset < offset {
		l.recs = l.recs[1:]
	}
}

func (l *fakeLog) ID() string { return l.id }

func (l *fakeLog) Bounds(context.Context) (first, next uint64, err error) {
	if l.onBounds != nil {
		l.onBounds()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.first, l.next, nil
}

func (l *fakeLog) Records(ctx context.Context, from uint64) iter.Seq2[evlog.Record, error] {
	return func(yield func(evlog.Record, error) bool) { l.read(ctx, from, false, yield) }
}

func (l *fakeLog) Follow(ctx context.Context, from uint64) iter.Seq2[evlog.Record, error] {
	return func(yield func(evlog.Record, error) bool) { l.read(ctx, from, true, yield) }
}

func (l *fakeLog) read(ctx context.Context, from uint64, follow bool, yield func(evlog.Record, error) bool) {
	end := l.end()
	for {
		rec, more, err := l.at(from, end, follow)
		if err == nil {
			err = ctx.Err()
		}
		switch {
		case err != nil:
			yield(evlog.Record{}, err)
			return
		case rec != nil:
			if !yield(rec.Clone(), nil) {
				return
			}
			from = rec.Offset + 1
		case more == nil:
			return
		default:
			select {
			case <-more:
			case <-ctx.Done():
			}
		}
	}
}

func (l *fakeLog) end() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next
}

// at returns the first record from an offset on, or what to wait for, or
// neither at the end.
func (l *fakeLog) at(from, end uint64, follow bool) (*evlog.Record, <-chan struct{}, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if from < l.first || from > l.next {
		return nil, nil, &evlog.OffsetError{Asked: from, First: l.first, Next: l.next}
	}
	i, _ := slices.BinarySearchFunc(l.recs, from, func(r evlog.Record, o uint64) int { return cmp.Compare(r.Offset, o) })
	switch {
	case i < len(l.recs) && (follow || l.recs[i].Offset < end):
		return &l.recs[i], nil, nil
	case follow:
		return nil, l.grown, nil
	}
	return nil, nil, nil
}

// all returns the records from an offset on.
func (l *fakeLog) all(from uint64) []evlog.Record {
	var recs []evlog.Record
	for rec, err := range l.Records(context.Background(), from) {
		if err != nil {
			panic(err)
		}
		recs = append(recs, rec)
	}
	return recs
}

var _ cursor.Log = (*fakeLog)(nil)
