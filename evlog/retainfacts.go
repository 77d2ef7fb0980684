package evlog

import (
	"context"
	"io"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/evlog-go/evlog/internal/format"
	"github.com/evlog-go/evlog/internal/vfs"
)

// logFiles are the sizes of the files of a log.
type logFiles struct {
	total int64 // of all of them, those of unfinished writes aside
	of    map[uint64]segFiles
}

// segFiles are a segment's files.
type segFiles struct {
	log, index int64
	modified   time.Time // of the .log
}

func (f segFiles) bytes() int64 { return f.log + f.index }

// segments are the bases of the segments, ascending.
func (f logFiles) segments() listing {
	var l listing
	for base, s := range f.of {
		if !s.modified.IsZero() {
			l = append(l, base)
		}
	}
	slices.Sort(l)
	return l
}

// statFiles adds up the files whose names FORMAT.md lists. Unfinished writes
// come and go, and are no reason to remove anything; other people's files
// neither.
func statFiles(dir vfs.Dir, names []string) (logFiles, error) {
	files := logFiles{of: map[uint64]segFiles{}}
	for _, name := range names {
		if !countsAsLog(name) {
			continue
		}
		base, isLog := format.ParseSegmentName(name)
		info, err := dir.Stat(name)
		if gone(err) || err != nil && !isLog {
			continue // of an index and the like, only the size would count
		}
		if err != nil {
			return files, err
		}
		if info.Mode().IsRegular() {
			files.total += info.Size()
		}
		if isLog {
			f := files.of[base]
			f.log, f.modified = info.Size(), info.ModTime()
			files.of[base] = f
		} else if base, ok := format.ParseIndexName(name); ok {
			f := files.of[base]
			f.index = info.Size()
			files.of[base] = f
		}
	}
	return files, nil
}

func countsAsLog(name string) bool {
	switch name {
	case format.DurableName, format.MetaName, format.LockName, format.ConsumersName, format.ConsumersLock:
		return true
	}
	_, isLog := format.ParseSegmentName(name)
	_, isIndex := format.ParseIndexName(name)
	return isLog || isIndex || strings.HasSuffix(name, format.TornSuffix)
}

// segFact is what retention asks about a closed segment. It counts while the
// file has this size and modification time.
type segFact struct {
	base     uint64
	stamp    vfs.Stamp
	maxMS    int64 // highest time of its records; noTime where it is not known
	closedMS int64
	records  int64
	next     uint64 // after its last record; its base without any
}

// noTime is a time that is not plausible whatever the clock says.
const noTime = -1 << 62

// time is what the segment's age counts from: its highest time or its closing,
// whichever is earlier, so that a record with a time in the future pins nothing.
// A time that is not plausible decides nothing; without any, ok is false.
func (f segFact) time(now time.Time) (at time.Time, ok bool) {
	for _, ms := range []int64{f.maxMS, f.closedMS} {
		if t := timeOf(ms); plausible(t, now) && (!ok || t.Before(at)) {
			at, ok = t, true
		}
	}
	return at, ok
}

// plausible reports whether t may be the time of something that has happened.
func plausible(t, now time.Time) bool { return !t.Before(plausibleSince) && !t.After(now) }

// factCache keeps what was learnt, by ascending base: 56 bytes for a segment.
type factCache struct{ facts []segFact }

// of returns what there is to know about a closed segment: from its index, or
// from the segment itself where there is none, with the same result.
func (c *factCache) of(ctx context.Context, dir vfs.Dir, base uint64, files segFiles) (segFact, error) {
	i := sort.Search(len(c.facts), func(i int) bool { return c.facts[i].base >= base })
	known := i < len(c.facts) && c.facts[i].base == base
	if known && c.facts[i].stamp == (vfs.Stamp{Size: files.log, Modified: files.modified.UnixNano()}) {
		return c.facts[i], nil
	}
	f, err := learnFact(ctx, dir, base)
	if err != nil {
		return f, err
	}
	if known {
		c.facts[i] = f
	} else {
		c.facts = slices.Insert(c.facts, i, f)
	}
	return f, nil
}

// forget drops what is known of segments below base.
func (c *factCache) forget(base uint64) {
	i := sort.Search(len(c.facts), func(i int) bool { return c.facts[i].base >= base })
	c.facts = slices.Delete(c.facts, 0, i)
}

func learnFact(ctx context.Context, dir vfs.Dir, base uint64) (segFact, error) {
	f := segFact{base: base, maxMS: noTime, next: base}
	log, err := openSegment(dir, base)
	if err != nil {
		return f, err
	}
	defer log.Close()
	info, err := log.Stat()
	if err != nil {
		return f, err
	}
	f.stamp = vfs.StampFrom(info)
	f.closedMS = info.ModTime().UnixMilli()
	x, err := openIndex(dir, base, log)
	if err == nil {
		if x.header.ClosedMS != 0 {
			f.closedMS = x.header.ClosedMS
		}
		f.take(x.header)
		return f, x.close()
	}
	if !noIndex(err) {
		return f, err
	}
	b, res, err := scanBelow(ctx, log, base, 1<<64-1)
	if err != nil {
		return f, err
	}
	f.take(b.header)
	if res.err != io.EOF {
		f.maxMS = noTime // it is damaged, and there may be later ones
	}
	return f, nil
}

func (f *segFact) take(h format.IndexHeader) {
	f.records = int64(h.Records)
	if h.Records > 0 {
		f.maxMS, f.next = h.MaxTimeMS, h.LastOffset+1
	}
}

// activeFacts describes the active segment from outside the writer.
func (r *Reader) activeFacts(ctx context.Context, d format.Durable) (activeFacts, error) {
	s, err := r.describe(ctx, d.Base, max(d.Base, d.NextOffset), true, d)
	if err != nil {
		return activeFacts{}, err
	}
	a := activeFacts{base: d.Base, next: s.End, records: int64(s.Records)}
	if s.Records > 0 {
		a.maxMS = s.Newest.UnixMilli()
	}
	return a, nil
}

// activeFacts describes the active segment. The highest time may be of a record
// that is not durable yet; their number is not.
func (l *Log) activeFacts(context.Context) (activeFacts, error) {
	l.act.indexMu.Lock()
	defer l.act.indexMu.Unlock()
	h := l.act.index.header
	return activeFacts{base: h.Base, next: l.pub.load().NextOffset, records: l.closed.activeRecords.Load(), maxMS: h.MaxTimeMS}, nil
}
