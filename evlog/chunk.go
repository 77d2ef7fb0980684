package evlog

import (
	"sync/atomic"

	"github.com/evlog-go/evlog/internal/format"
)

// chunk is encoded records on their way to the file, in one piece: a chunk is
// written with one write, and all of it goes into one segment.
type chunk struct {
	buf  []byte
	roll bool   // a new segment begins with this chunk
	base uint64 // the offset counter when the chunk was begun

	next    uint64             // offset after the chunk's last record; 0 if it has none
	pending []span             // parts of buf that a caller of Append waits for
	index   []chunkEntry       // for the sparse index
	last    format.Header      // of the last record; with its checksum once sealed
	lastPos int                // in buf
	summary format.IndexHeader // Records, Tombstones, MinTimeMS, MaxTimeMS
	commit  *commit            // what callers wait for; nil where nobody does
}

// span is a part of a chunk's buffer.
type span struct{ from, to int }

// chunkEntry becomes an index entry when the chunk's position is known.
type chunkEntry struct {
	offset    uint64
	pos       int   // in buf
	maxTimeMS int64 // highest time in the chunk up to and including this record
}

// commit is the outcome of a chunk for those who wait for it.
type commit struct {
	done chan struct{} // closed when err is final
	err  error
	led  atomic.Bool // somebody is after the turn for all who wait for it
}

func (c *commit) finish(err error) {
	c.err = err
	close(c.done)
}

// add encodes a record, the next one of a segment with this spacing; seal
// completes it.
func (c *chunk) add(offset uint64, timeMS int64, r *Record, s *spacing) {
	pos := len(c.buf)
	c.buf = format.AppendUnsealed(c.buf, offset, timeMS, r.Schema, r.Key, r.Value)
	c.note(format.ParseHeader(c.buf[pos:]), pos, s)
}

// seal puts the checksums in, before the chunk is written.
func (c *chunk) seal() {
	format.Seal(c.buf)
	c.last.CRC = format.ParseHeader(c.buf[c.lastPos:]).CRC
}

// note takes the record at pos of buf, the last one so far, into the summary and
// the index.
func (c *chunk) note(h format.Header, pos int, spacing *spacing) {
	s := &c.summary
	if s.Records == 0 {
		s.MinTimeMS, s.MaxTimeMS = h.TimeMS, h.TimeMS
	}
	s.MinTimeMS = min(s.MinTimeMS, h.TimeMS)
	s.MaxTimeMS = max(s.MaxTimeMS, h.TimeMS)
	if h.KeyLen > 0 && h.Size() == format.Size(int(h.KeyLen), 0) {
		s.Tombstones++
	}
	s.Records++
	if spacing.next(h.Size()) {
		c.index = append(c.index, chunkEntry{offset: h.Offset, pos: pos, maxTimeMS: s.MaxTimeMS})
	}
	c.last, c.lastPos = h, pos
	c.next = h.Offset + 1
}

// wait marks the part of the buffer from from on as waited for by Append.
func (c *chunk) wait(from int) {
	if n := len(c.pending); n > 0 && c.pending[n-1].to == from {
		c.pending[n-1].to = len(c.buf)
		return
	}
	c.pending = append(c.pending, span{from, len(c.buf)})
}

// enqueued is the number of records that no caller of Append waits for.
func (c *chunk) enqueued() (n uint64) {
	n = c.summary.Records
	for _, p := range c.pending {
		for pos := p.from; pos < p.to; n-- {
			pos += int(format.ParseHeader(c.buf[pos:]).Size())
		}
	}
	return n
}

// dropPending removes what Append's callers wait for, whose write failed. What
// was enqueued stays, with its offsets; the missing ones become a hole. interval
// is that of the index.
func (c *chunk) dropPending(interval int64) {
	kept := c.buf[:0]
	at := 0
	for _, p := range c.pending {
		kept = append(kept, c.buf[at:p.from]...)
		at = p.to
	}
	kept = append(kept, c.buf[at:]...)
	c.buf = kept
	c.pending = c.pending[:0]
	c.commit = nil
	c.resummarize(interval)
}

// resummarize computes everything that is derived from buf. How far back the
// last entry before the chunk lies is not known any more: it gets one at its
// beginning.
func (c *chunk) resummarize(interval int64) {
	c.summary, c.next, c.index = format.IndexHeader{}, 0, c.index[:0]
	s := newSpacing(interval)
	for pos := 0; pos < len(c.buf); {
		h := format.ParseHeader(c.buf[pos:])
		c.note(h, pos, &s)
		pos += int(h.Size())
	}
}

// reset makes the chunk ready for other records.
func (c *chunk) reset() {
	*c = chunk{buf: c.buf[:0], pending: c.pending[:0], index: c.index[:0]}
}

// addTo appends the chunk's entries to the index of the segment it was written
// to at pos.
func (c *chunk) addTo(b *indexBuilder, pos int64) {
	if c.summary.Records == 0 {
		return
	}
	x := &b.header
	if x.Records == 0 {
		// The segment's first record always has an entry. The chunk may lack it:
		// what was to stand before it can have failed.
		h := format.ParseHeader(c.buf)
		x.FirstOffset, x.FirstPos, x.FirstCRC = h.Offset, pos, h.CRC
		x.MinTimeMS, x.MaxTimeMS = h.TimeMS, h.TimeMS
		if len(c.index) == 0 || c.index[0].pos != 0 {
			b.entries = append(b.entries, format.IndexEntry{Offset: h.Offset, Pos: pos, MaxTimeMS: h.TimeMS})
		}
	}
	for _, e := range c.index {
		b.entries = append(b.entries, format.IndexEntry{
			Offset: e.offset, Pos: pos + int64(e.pos), MaxTimeMS: max(x.MaxTimeMS, e.maxTimeMS),
		})
	}
	x.MinTimeMS = min(x.MinTimeMS, c.summary.MinTimeMS)
	x.MaxTimeMS = max(x.MaxTimeMS, c.summary.MaxTimeMS)
	x.Tombstones += c.summary.Tombstones
	x.Records += c.summary.Records
	x.LastOffset, x.LastPos, x.LastCRC = c.last.Offset, pos+int64(c.lastPos), c.last.CRC
	x.LogSize = pos + int64(len(c.buf))
}
