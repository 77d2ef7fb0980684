package evlog

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"time"

	"github.com/evlog-go/evlog/internal/format"
	"github.com/evlog-go/evlog/internal/vfs"
)

// SegmentState is what may happen to a segment.
type SegmentState string

// States of a segment.
const (
	SegmentActive  SegmentState = "active"  // appended to
	SegmentClosed  SegmentState = "closed"  // never appended to again
	SegmentDamaged SegmentState = "damaged" // has an invalid record; see SegmentInfo.Err
)

// SegmentInfo describes one segment.
type SegmentInfo struct {
	Base       uint64
	End        uint64 // base of the next one; for the active one the durable next offset
	Records    uint64
	Holes      uint64 // offsets in [Base, End) without a record
	Tombstones uint64
	Bytes      int64     // of valid records; for the active one of durable ones
	DirtyBytes int64     // of these, what compaction has not been through
	FileBytes  int64     // size of the file
	Oldest     time.Time // lowest and highest time of its records; zero without any
	Newest     time.Time
	Closed     time.Time // when it was closed; zero if active or not known
	Cleaned    time.Time // when compaction first cleaned it; zero if it has not
	Indexed    bool      // its .idx is there and matches
	State      SegmentState
	Err        error // why it is damaged: a *CorruptError
}

// Segments describes every segment, oldest first. One without a matching index
// is read from beginning to end.
func (r *Reader) Segments(ctx context.Context) ([]SegmentInfo, error) {
	d, err := r.durable(ctx)
	if err != nil {
		return nil, err
	}
	segments, err := r.listTwice()
	if err != nil {
		return nil, err
	}
	var all []SegmentInfo
	for i, base := range segments {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		end, active := d.NextOffset, true
		if i+1 < len(segments) {
			end, active = segments[i+1], false
		}
		info, err := r.describe(ctx, base, max(base, end), active, d)
		for tries := 0; err == nil && info.Err != nil && tries < maxDoubts; tries++ {
			// The writer may have cut prepared zeros under the scan.
			info, err = r.describe(ctx, base, max(base, end), active, d)
		}
		if gone(err) {
			continue // removed since it was listed
		}
		if err != nil {
			return nil, r.closedOr(err)
		}
		all = append(all, info)
	}
	return all, nil
}

func (r *Reader) describe(ctx context.Context, base, end uint64, active bool, d format.Durable) (SegmentInfo, error) {
	s, err := r.acquire(base)
	if err != nil {
		return SegmentInfo{}, err
	}
	defer r.release(s)
	file, err := s.f.Stat()
	if err != nil {
		return SegmentInfo{}, err
	}
	info := SegmentInfo{Base: base, End: end, FileBytes: file.Size(), State: SegmentClosed}
	if active {
		info.State = SegmentActive
	}
	h, ok, err := r.headerNow(s, active)
	if err != nil {
		return info, err
	}
	if ok && (!active || d.Base == base && d.Position == h.LogSize) {
		info.Indexed = true
		if h.ClosedMS != 0 {
			info.Closed = timeOf(h.ClosedMS)
		}
		if h.CleanedMS != format.Refused { // else compaction met damage in it
			info.fill(h)
			return info, nil
		}
	}
	limit := end
	if active && d.NextOffset <= base {
		limit = base
	}
	b, res, err := scanBelow(ctx, s.f, base, limit)
	if err != nil {
		return info, err
	}
	info.fill(b.header)
	if err := info.judge(res, active, d); err != nil {
		info.State, info.Err = SegmentDamaged, corrupt(r.dir, base, res.end, res.next, err)
	}
	return info, nil
}

// headerNow is the header of a segment's index as it is now: compaction notes in it
// what was not known when a reader looked at it first.
func (r *Reader) headerNow(s *segFile, active bool) (h format.IndexHeader, ok bool, err error) {
	if active {
		return s.header(r.dir)
	}
	return indexHeader(r.dir, s.base, s.f)
}

// fill takes over what an index, read or made, says of the segment.
func (s *SegmentInfo) fill(h format.IndexHeader) {
	s.Records, s.Tombstones, s.Bytes = h.Records, h.Tombstones, h.LogSize
	if h.CleanedMS > 0 {
		s.Cleaned = timeOf(h.CleanedMS)
	} else {
		s.DirtyBytes = s.Bytes
	}
	if s.End-s.Base > h.Records {
		s.Holes = s.End - s.Base - h.Records
	}
	if h.Records > 0 {
		s.Oldest, s.Newest = timeOf(h.MinTimeMS), timeOf(h.MaxTimeMS)
	}
}

// judge returns why the place where reading ended is damage, nil if it is not.
func (s *SegmentInfo) judge(res scanResult, active bool, d format.Durable) error {
	switch {
	case res.err == errLimit:
		return nil
	case !active && res.err != io.EOF, active && d.Base <= s.Base && res.next < d.NextOffset:
		return notEOF(res.err)
	}
	return nil
}

// errLimit says that a scan ended at the offset up to which it was to go.
var errLimit = errors.New("limit reached")

// scanBelow reads the valid records with offsets below limit.
func scanBelow(ctx context.Context, f vfs.File, base, limit uint64) (*indexBuilder, scanResult, error) {
	b := newIndexBuilder(base, 1<<62)
	res, err := scanSegment(f, base, func(pos int64, h format.Header, _ []byte) error {
		if h.Offset >= limit {
			return errLimit
		}
		b.add(pos, h)
		return ctx.Err()
	})
	if err == errLimit {
		res.end, res.next = b.header.LogSize, base
		if b.header.Records > 0 {
			res.next = b.header.LastOffset + 1
		}
		err = nil
	}
	return b, res, err
}

// Status describes a log as a whole.
type Status struct {
	Path        string
	ID          string // empty where log.json is missing or damaged
	Format      int
	Created     time.Time
	Config      StoredConfig
	OpenHook    string
	Gaps        []OffsetRange // left by repair
	First, Next uint64        // as Reader.Bounds
	Segments    int
	Bytes       int64  // of the segments and indexes together
	Holder      Holder // who wrote LOCK last
	// BeyondDurable is the number of valid records beyond the durable position.
	// Beside a live writer they are about to be published; after a power
	// failure the next opening for writing publishes them.
	BeyondDurable uint64
	// DurableErr says why DURABLE could not be used; MetaErr the same of
	// log.json.
	DurableErr, MetaErr error
}

// StoredConfig is what log.json keeps of the options.
type StoredConfig struct {
	SegmentBytes int64
	SegmentAge   time.Duration // 0: no limit
	IndexBytes   int64
	Sync         SyncPolicy
	SyncInterval time.Duration

	Compact        bool
	MinDirtyRatio  float64
	MinLag         time.Duration // 0: none
	TombstoneGrace time.Duration // 0: none

	MaxAge     time.Duration // 0: no limit, as for the rest
	MaxBytes   int64
	MaxRecords int64
	HoldFor    []string
	HoldBytes  int64
	HoldAge    time.Duration
}

// rollBytes is the size from which a new segment is started. A cap on all files
// can only be kept by removing whole segments: they must be a part of it.
func (c StoredConfig) rollBytes() int64 {
	if c.MaxBytes > 0 {
		return max(1, min(c.SegmentBytes, c.MaxBytes/segmentsPerCap))
	}
	return c.SegmentBytes
}

// segmentsPerCap is how many segments MaxBytes is to hold at least.
const segmentsPerCap = 4

// rollAge is the age at which a segment is closed, 0 for none. Records of the
// active segment do not expire, so a log that gets few of them has to close it.
func (c StoredConfig) rollAge() time.Duration {
	switch {
	case c.MaxAge <= 0:
		return c.SegmentAge
	case c.SegmentAge <= 0:
		return max(c.MaxAge/4, time.Millisecond)
	}
	return min(c.SegmentAge, c.MaxAge)
}

// Status describes the log as a whole. It reads the active segment beyond the
// durable position, and nothing else at length.
func (r *Reader) Status(ctx context.Context) (Status, error) {
	s, err := r.status(ctx)
	return s, r.closedOr(err)
}

func (r *Reader) status(ctx context.Context) (Status, error) {
	s := Status{Path: r.dir.Path(), Format: formatVersion, Holder: readHolder(r.dir)}
	if err := r.usable(); err != nil {
		return s, err
	}
	m, err := readMeta(r.dir)
	switch {
	case err == nil:
		s.ID, s.Format, s.Created = m.ID, m.Format, timeOf(m.CreatedMS)
		s.OpenHook, s.Gaps = m.OpenHook, m.Gaps
		s.Config = m.Config.stored()
	default:
		s.MetaErr, s.Config = err, metaConfig{}.stored()
	}
	d, assumed, err := r.src.load(ctx)
	if err != nil {
		return s, err
	}
	s.DurableErr = assumed
	if s.First, s.Next, err = r.Bounds(ctx); err != nil {
		return s, err
	}
	if s.BeyondDurable, err = r.beyond(ctx, d); err != nil {
		return s, err
	}
	return s, r.sizes(&s)
}

// sizes adds up the files of the log.
func (r *Reader) sizes(s *Status) error {
	names, err := allNames(r.dir)
	if err != nil {
		return wrap("list "+r.dir.Path(), err)
	}
	for _, name := range names {
		_, isLog := format.ParseSegmentName(name)
		_, isIndex := format.ParseIndexName(name)
		if !isLog && !isIndex {
			continue
		}
		info, err := r.dir.Stat(name)
		if errors.Is(err, fs.ErrNotExist) || isIndex && noIndex(err) {
			continue
		}
		if err != nil {
			return wrap("status", err)
		}
		s.Bytes += info.Size()
		if isLog {
			s.Segments++
		}
	}
	return nil
}

// Holder is what the last writer wrote into LOCK.
func (r *Reader) Holder() Holder { return readHolder(r.dir) }

// BeyondDurable is the number of valid records beyond the durable position:
// Status.BeyondDurable without the rest.
func (r *Reader) BeyondDurable(ctx context.Context) (uint64, error) {
	if err := r.usable(); err != nil {
		return 0, err
	}
	d, _, err := r.src.load(ctx)
	if err != nil {
		return 0, err
	}
	n, err := r.beyond(ctx, d)
	return n, r.closedOr(err)
}

// beyond counts the valid records beyond the durable position d. Most often
// they are in the active segment; a crash inside a roll leaves them in the one
// before.
func (r *Reader) beyond(ctx context.Context, d format.Durable) (n uint64, err error) {
	segments, err := r.listTwice()
	if err != nil {
		return 0, err
	}
	first, _ := segments.covering(d.NextOffset)
	for _, base := range segments {
		if base < first {
			continue
		}
		more, err := r.beyondIn(ctx, base, d)
		if err != nil && !gone(err) {
			return n, err
		}
		n += more
	}
	return n, nil
}

func (r *Reader) beyondIn(ctx context.Context, base uint64, d format.Durable) (n uint64, err error) {
	s, err := r.acquire(base)
	if err != nil {
		return 0, err
	}
	defer r.release(s)
	info, err := s.f.Stat()
	if err != nil {
		return 0, err
	}
	fr := newFrames(s.f, 0, info.Size(), base)
	if d.Base == base {
		fr.seek(d.Position, d.NextOffset)
	}
	defer fr.release()
	for {
		h, _, err := fr.next()
		if err != nil {
			if err == io.EOF || invalidRecord(err) {
				return n, ctx.Err()
			}
			return n, err
		}
		if h.Offset >= d.NextOffset {
			n++
		}
	}
}
