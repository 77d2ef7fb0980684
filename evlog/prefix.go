package evlog

import (
	"bytes"
	"context"
	"fmt"
	"iter"

	"github.com/evlog-go/evlog/internal/format"
)

// Prefix is what was durable at one moment. Whoever reads it twice finds the same
// records, whatever is appended meanwhile; retention and compaction may have
// removed some (see CompactOptions.MinLag). It holds nothing open, and is valid as long as its reader. Methods
// are safe for concurrent use.
type Prefix struct {
	r *Reader
	d format.Durable
}

// Prefix returns what is durable now.
func (r *Reader) Prefix(ctx context.Context) (Prefix, error) {
	d, err := r.durable(ctx)
	return Prefix{r, d}, err
}

// Next is the offset after the last one in the prefix. That of the zero Prefix is
// 0.
func (p Prefix) Next() uint64 { return p.d.NextOffset }

// Below is the part of the prefix below an offset.
func (p Prefix) Below(offset uint64) Prefix {
	p.d.NextOffset = min(p.d.NextOffset, offset)
	return p
}

// Records is Reader.Records up to Next, OnBehind included. From Next on there are
// none.
func (p Prefix) Records(ctx context.Context, from uint64) iter.Seq2[Record, error] {
	return p.ascending(ctx, nil, from)
}

// ByKey is Reader.ByKey up to Next, OnBehind included.
func (p Prefix) ByKey(ctx context.Context, key []byte, from uint64) iter.Seq2[Record, error] {
	return ofKey(p.ascending(ctx, wantKey(key), from), key)
}

// Backward is Reader.Backward from Next down.
func (p Prefix) Backward(ctx context.Context) iter.Seq2[Record, error] {
	return p.descending(ctx, nil)
}

// BackwardByKey yields the records with this key from Next down, newest first. As
// ByKey it passes over segments that hold none.
func (p Prefix) BackwardByKey(ctx context.Context, key []byte) iter.Seq2[Record, error] {
	return ofKey(p.descending(ctx, wantKey(key)), key)
}

func (p Prefix) ascending(ctx context.Context, key *wantedKey, from uint64) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		if from >= p.Next() {
			return
		}
		p.r.ascend(ctx, from, key, p.start, yield)
	}
}

func (p Prefix) descending(ctx context.Context, key *wantedKey) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) { p.r.runBackward(ctx, p.d, p.Next(), key, yield) }
}

// ofKey passes on the records with this key.
func ofKey(records iter.Seq2[Record, error], key []byte) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		for rec, err := range records {
			if (err != nil || bytes.Equal(rec.Key, key)) && !yield(rec, err) {
				return
			}
		}
	}
}

// Get is Reader.Get below Next. From Next on it is ErrNotFound.
func (p Prefix) Get(ctx context.Context, offset uint64) (Record, error) {
	if offset >= p.Next() {
		return Record{}, fmt.Errorf("evlog: get offset %d: %w", offset, ErrNotFound)
	}
	if rec, ok := p.r.quickly(ctx, p.r.listedSegment(offset, true), offset, p.d); ok {
		return rec, nil
	}
	w, err := p.start(offset)
	if err != nil {
		return Record{}, err
	}
	return w.first(ctx, offset)
}

func (p Prefix) start(from uint64) (*walker, error) {
	if err := p.r.usable(); err != nil {
		return nil, err
	}
	return p.r.startAt(from, p.d)
}
