package evlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/evlog-go/evlog/internal/format"
	"github.com/evlog-go/evlog/internal/vfs"
)

// ByKey yields the records with this key from offset from on, as Records does,
// OnBehind included. It passes over the segments whose key filter says that they
// hold none. Beside compaction it yields those that are left when it gets there.
func (r *Reader) ByKey(ctx context.Context, key []byte, from uint64) iter.Seq2[Record, error] {
	return ofKey(func(yield func(Record, error) bool) {
		r.ascend(ctx, from, wantKey(key), r.startNow(ctx), yield)
	}, key)
}

// Latest returns the newest record with this key, which stays valid; that may
// be a tombstone. ErrNotFound: there is none. It looks from the end of the log
// on, and passes over the segments whose key filter says that they hold none: of
// a segment that does not hold the key 4 KiB are read, in 99.7 % of all cases. The
// active segment has no filter: it is read from its end, and from the second
// look-up on that has to read far in it, what was appended since the last one is.
// A reader takes up to 8 MiB to remember where its keys stand.
func (r *Reader) Latest(ctx context.Context, key []byte) (Record, error) {
	d, err := r.durable(ctx)
	if err != nil {
		return Record{}, err
	}
	var latest Record
	found := false
	for floor, looks := uint64(0), 0; ; looks++ {
		rec, ok, err := r.latest(ctx, key, d, floor)
		if err != nil {
			return Record{}, r.closedOr(err)
		}
		if ok {
			latest, found = rec, true
		}
		// Compaction removes a record for the sake of a newer one in a closed
		// segment. Where the newer one came after d was taken, neither was seen; but
		// then that segment has been closed since.
		floor = d.NextOffset
		before := d.Base
		if d, err = r.durable(ctx); err != nil {
			return Record{}, err
		}
		// Retention removes one for the sake of nothing, and a newer one may stand in
		// the same active segment.
		if d.Base == before && (found || d.NextOffset == floor || looks >= maxVanished) {
			break
		}
	}
	if !found {
		return Record{}, fmt.Errorf("evlog: latest of key %q: %w", key, ErrNotFound)
	}
	return latest, nil
}

// latest returns the newest record with this key among those with offsets from
// floor on that are durable by d.
func (r *Reader) latest(ctx context.Context, key []byte, d format.Durable, floor uint64) (rec Record, found bool, err error) {
	w := r.newWalker(0, d)
	defer w.close()
	w.key = wantKey(key)
	err = w.backward(ctx, d.NextOffset, floor, func(got Record, _ error) bool {
		if found = bytes.Equal(got.Key, key); found {
			rec = got.Clone()
		}
		return !found
	})
	if err == errStopped {
		err = nil
	}
	return rec, found, err
}

// wantedKey is the key that a walker looks for. What it yields may still have
// other keys: it leaves out what it can cheaply.
type wantedKey struct {
	bytes []byte
	hash  uint64
}

// wantKey returns nil for no key: no filter knows records without one.
func wantKey(key []byte) *wantedKey {
	if len(key) == 0 {
		return nil
	}
	return &wantedKey{key, format.KeyHash(key)}
}

// skips reports whether the segment, which ends where the one named above
// begins, can be passed over unread: by its key filter, or by what is remembered
// of the active one, no record in it has the key wanted.
func (w *walker) skips(ctx context.Context, base uint64, segments listing) (above uint64, skips bool, err error) {
	if w.key == nil || base > w.limit.Base {
		return 0, false, nil
	}
	if base == w.limit.Base {
		s, err := w.r.acquire(base)
		if gone(err) {
			return 0, false, nil // for who enters it to find out
		}
		if err != nil {
			return 0, false, err
		}
		defer w.r.release(s)
		_, found, known, err := w.r.newestIn(ctx, s, w.key.hash, w.limit.Position)
		return w.limit.NextOffset, known && !found, err
	}
	above, ok := segments.above(base)
	if !ok {
		return 0, false, nil
	}
	may, err := w.r.mayHold(base, above, w.key.hash)
	return above, !may, err
}

// maxKnownFilters bounds what a reader remembers of key filters: 1 MiB.
const maxKnownFilters = 16384

// knownFilter is what is remembered of a closed segment whose index was found to
// match, so that asking its filter takes one read. It counts while the segment's
// file has this size and modification time, and a block of the filter counts
// while it has this filter's id: what replaces the segment by one with other
// records replaces the index too, before those records are gone elsewhere.
type knownFilter struct {
	stamp vfs.Stamp // of the segment
	end   uint64    // of the segment, by its index
	pos   int64     // of the first block
	shape format.FilterShape
}

// errOtherFilter: what was remembered is not what is there.
var errOtherFilter = errors.New("the index was replaced")

// mayHold asks the key filter of a closed segment for a key's hash. Where there
// is none, or it cannot be read or believed, the segment may hold the key; so it
// may where its index does not say that it ends at above, because whether a file
// between is missing is for those to find out who go through it.
func (r *Reader) mayHold(base, above uint64, hash uint64) (bool, error) {
	r.mu.Lock()
	k, ok := r.filters[base]
	r.mu.Unlock()
	if ok && k.end == above {
		may, err := r.askKnown(base, k, hash)
		if err == nil || !noIndex(err) {
			return may, r.closedOr(err)
		}
	}
	k, may, err := r.askAnew(base, hash)
	if err != nil {
		if noIndex(err) || gone(err) {
			err = nil
		}
		return true, r.closedOr(err)
	}
	return may || k.end != above, nil
}

// askKnown reads the hash's block by what is remembered of the index.
func (r *Reader) askKnown(base uint64, k knownFilter, hash uint64) (bool, error) {
	stamp, err := vfs.StampOf(r.dir, format.SegmentName(base))
	if err != nil {
		return true, err
	}
	if stamp != k.stamp {
		return true, errOtherFilter
	}
	if k.shape.Blocks == 0 {
		return false, nil
	}
	return askFilter(func(b []byte, pos int64) error {
		return vfs.ReadName(r.dir, format.IndexName(base), b, pos)
	}, k.pos, k.shape, hash)
}

// askAnew opens the index, compares it with the segment, and remembers it.
func (r *Reader) askAnew(base uint64, hash uint64) (k knownFilter, may bool, err error) {
	s, err := r.acquire(base)
	if err != nil {
		return k, true, err
	}
	defer r.release(s)
	info, err := s.f.Stat()
	if err != nil {
		return k, true, err
	}
	x, err := openIndex(r.dir, base, s.f)
	if err != nil {
		return k, true, err
	}
	defer x.close()
	if !x.header.Filter.There {
		return k, true, errNoFilter
	}
	k = knownFilter{
		stamp: vfs.StampFrom(info), end: x.header.End,
		pos: x.header.FilterBlockPos(0), shape: x.header.Filter,
	}
	if k.shape.Blocks > 0 {
		may, err = askFilter(func(b []byte, pos int64) error { return readFull(x.f, b, pos) }, k.pos, k.shape, hash)
	}
	if err == nil {
		r.remember(base, k)
	}
	return k, may, err
}

func (r *Reader) remember(base uint64, k knownFilter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.filters) >= maxKnownFilters {
		clear(r.filters)
	}
	r.filters[base] = k
}

// askFilter reads the block that a hash belongs to.
func askFilter(read func(b []byte, pos int64) error, pos int64, shape format.FilterShape, hash uint64) (bool, error) {
	buf := smallBuffers.Get().(*[]byte)
	defer smallBuffers.Put(buf)
	n := int64(shape.BlockBytes)
	b := (*buf)[:n]
	if err := read(b, pos+n*int64(shape.Block(hash))); err != nil {
		return true, err
	}
	block, err := shape.ParseFilterBlock(b)
	if err != nil {
		return true, err
	}
	return block.MayHold(hash), nil
}
