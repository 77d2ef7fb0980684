package evlog

import (
	"errors"
	"io/fs"
	"sync"
	"sync/atomic"

	"github.com/evlog-go/evlog/internal/format"
	"github.com/evlog-go/evlog/internal/vfs"
)

// maxCachedFiles bounds the segments that a reader keeps open while nobody reads
// them.
const maxCachedFiles = 32

// segFile is a segment open for reading, shared by all who read it and closed
// by the last one (refs) when it is no longer cached.
type segFile struct {
	base uint64
	name string
	f    vfs.File
	refs int // guarded by Reader.mu

	searched atomic.Bool // for a key, and far, while it was active

	named atomic.Uint64 // durableSource.changes, +1, when the name was last found to lead here; 0: unknown

	mu     sync.Mutex // guards the rest
	looked bool       // for an index
	final  bool       // index matched when the segment could not grow any more
	index  *index     // nil: none that matches
	stale  *index     // matched before the segment grew; somebody may still use it
	scan   *sparse    // entries found by reading, where there is no index
}

// fileCache is the open segments, most recently used last. Guarded by Reader.mu.
type fileCache struct{ open []*segFile }

// acquire opens the segment, or returns the open one if the name still leads to
// it. fs.ErrNotExist: it is gone. The caller releases it.
func (r *Reader) acquire(base uint64) (*segFile, error) {
	s, err := r.held(base)
	if s != nil || err != nil {
		return s, err
	}
	f, err := openSegment(r.dir, base)
	if err != nil {
		return nil, err
	}
	s = &segFile{base: base, name: format.SegmentName(base), f: f, refs: 1}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		s.refs = 0
		s.close()
		return nil, ErrClosed
	}
	r.files.add(s)
	return s, nil
}

// held returns the segment if it is open and the name still leads to it, otherwise
// nil. The caller releases it.
func (r *Reader) held(base uint64) (*segFile, error) {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil, ErrClosed
	}
	s := r.files.find(base)
	if s != nil {
		s.refs++
	}
	r.mu.Unlock()
	if s == nil {
		return nil, nil
	}
	same, err := s.current(r)
	if err == nil && same {
		return s, nil
	}
	r.drop(s)
	r.release(s)
	return nil, err
}

// listedSegment is the segment that covers offset by the last listing: acquired, or
// with open false held; nil if that cannot be done.
func (r *Reader) listedSegment(offset uint64, open bool) *segFile {
	r.mu.Lock()
	base, ok := r.segments.covering(offset)
	r.mu.Unlock()
	if !ok {
		return nil
	}
	get := (*Reader).held
	if open {
		get = (*Reader).acquire
	}
	s, err := get(r, base)
	if err != nil {
		return nil
	}
	return s
}

// current reports whether the segment's name leads to this file.
func (s *segFile) current(r *Reader) (bool, error) {
	changes, ours := r.src.changes()
	if ours && s.named.Load() == changes+1 {
		return true, nil
	}
	same, err := r.dir.Same(s.name, s.f)
	if same && ours {
		s.named.Store(changes + 1)
	}
	return same, err
}

// release gives back what acquire returned.
func (r *Reader) release(s *segFile) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.refs--
	if s.refs == 0 && !r.files.holds(s) {
		s.close()
	}
}

// drop takes a segment out of the cache.
func (r *Reader) drop(s *segFile) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.files.remove(s)
}

// forget closes a segment that is cached and that nobody reads: where an open
// file cannot be replaced, what is kept just in case must not be in the way.
func (r *Reader) forget(base uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.files.find(base); s != nil {
		r.files.remove(s)
	}
}

func (c *fileCache) find(base uint64) *segFile {
	for i, s := range c.open {
		if s.base == base {
			copy(c.open[i:], c.open[i+1:])
			c.open[len(c.open)-1] = s
			return s
		}
	}
	return nil
}

func (c *fileCache) holds(s *segFile) bool {
	for _, o := range c.open {
		if o == s {
			return true
		}
	}
	return false
}

// add caches s in place of another one of that name and, when there are too
// many, of the one used longest ago.
func (c *fileCache) add(s *segFile) {
	if old := c.find(s.base); old != nil {
		c.remove(old)
	}
	if len(c.open) >= maxCachedFiles {
		c.remove(c.open[0])
	}
	c.open = append(c.open, s)
}

func (c *fileCache) remove(s *segFile) {
	for i, o := range c.open {
		if o == s {
			c.open = append(c.open[:i], c.open[i+1:]...)
			if s.refs == 0 {
				s.close()
			}
			return
		}
	}
}

// purge closes what is cached and not in the listing: an open file would keep
// the space of a segment that was removed.
func (c *fileCache) purge(segments listing) {
	for i := len(c.open) - 1; i >= 0; i-- {
		if base, ok := segments.covering(c.open[i].base); !ok || base != c.open[i].base {
			c.remove(c.open[i])
		}
	}
}

// close closes the files. Only reading was done with them.
func (s *segFile) close() {
	_ = s.f.Close()
	for _, x := range []*index{s.index, s.stale} {
		if x != nil {
			_ = x.close()
		}
	}
}

// entries returns a sparse index of the segment: the writer's, the one on disk,
// or one that is made by reading up to the valid position upTo. closed says that
// the segment does not grow any more.
func (s *segFile) entries(r *Reader, upTo int64, closed bool) (entryList, error) {
	x, list, err := s.lists(r, upTo, closed)
	if x != nil {
		return x, err
	}
	return list, err
}

// noScan is an upTo of who takes the list as far as others have made it, where there is
// no index.
const noScan = -1

// lists is entries for who must not take memory: where x is nil, list is meant.
func (s *segFile) lists(r *Reader, upTo int64, closed bool) (x *index, list entrySlice, err error) {
	if list, ok := r.src.entries(s.base); ok {
		return nil, list, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	x, err = s.indexLocked(r.dir)
	if err != nil {
		return nil, nil, err
	}
	if x != nil {
		s.final = s.final || closed
		return x, nil, nil
	}
	if upTo == noScan {
		if s.scan != nil {
			list = s.scan.list
		}
		return nil, list, nil
	}
	if s.scan == nil {
		s.scan = &sparse{next: s.base, interval: r.config().IndexBytes}
	}
	list, err = s.scan.extend(s.f, upTo)
	return nil, list, err
}

// indexLocked returns the index on disk if it matches.
func (s *segFile) indexLocked(dir vfs.Dir) (*index, error) {
	if s.looked && s.index == nil {
		return nil, nil
	}
	if s.index != nil && s.final {
		return s.index, nil
	}
	if s.index != nil {
		info, err := s.f.Stat()
		if err != nil {
			return nil, err
		}
		if info.Size() == s.index.header.LogSize {
			return s.index, nil
		}
		// It was written at a clean close, and the writer is back.
		s.index, s.stale = nil, s.index
		return nil, nil
	}
	x, err := openIndex(dir, s.base, s.f)
	if err != nil && !noIndex(err) {
		return nil, err
	}
	s.looked, s.index = true, x
	return x, nil
}

// header returns the header of the index on disk; ok is false where none
// matches.
func (s *segFile) header(dir vfs.Dir) (h format.IndexHeader, ok bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x, err := s.indexLocked(dir)
	if err != nil || x == nil {
		return h, false, err
	}
	return x.header, true, nil
}

// maxSparse bounds a sparse index made by reading: 480 KiB, so that it need not get
// coarser for a segment of the default size.
const maxSparse = 20_480

// sparse is a sparse index made by reading a segment that has none: an active
// one in another process, or one whose .idx is missing. It grows with what is
// read, and gets coarser instead of larger.
type sparse struct {
	pos      int64  // read up to here
	next     uint64 // lowest offset that may stand there
	interval int64
	entryAt  int64 // from here on the next entry is due
	minMS    int64
	maxMS    int64
	list     entrySlice
}

// extend reads on up to the position upTo.
func (x *sparse) extend(f vfs.File, upTo int64) (entrySlice, error) {
	fr := newFrames(f, x.pos, upTo, x.next)
	defer fr.release()
	for fr.pos < upTo {
		pos := fr.pos
		h, _, err := fr.next()
		if err != nil {
			if invalidRecord(err) {
				break // for whoever reads there to report
			}
			return nil, err
		}
		if pos == 0 {
			x.minMS, x.maxMS = h.TimeMS, h.TimeMS
		}
		x.minMS, x.maxMS = min(x.minMS, h.TimeMS), max(x.maxMS, h.TimeMS)
		if pos >= x.entryAt {
			x.list = append(x.list, format.IndexEntry{Offset: h.Offset, Pos: pos, MaxTimeMS: x.maxMS})
			x.entryAt = pos + x.interval
		}
		x.pos, x.next = fr.pos, fr.lowest
		x.thin()
	}
	return x.list, nil
}

// thin drops every second entry of a list that has become too long. The old
// array stays as it is: somebody may be searching it.
func (x *sparse) thin() {
	if len(x.list) < maxSparse {
		return
	}
	half := make(entrySlice, 0, maxSparse)
	for i := 0; i < len(x.list); i += 2 {
		half = append(half, x.list[i])
	}
	x.list = half
	x.interval = max(1, 2*x.interval)
}

func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) }
