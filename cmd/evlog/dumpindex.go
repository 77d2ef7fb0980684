package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/evlog-go/evlog/internal/format"
)

// errPastEnd: the header claims more entries than the file has room for.
var errPastEnd = errors.New("entries run past the end of the file")

// errFilterPastEnd: the header claims more of a filter than the file has room
// for.
var errFilterPastEnd = errors.New("key filter runs past the end of the file")

// index prints the header, the entries and the key filter of a .idx.
func (d *dumper) index() error {
	size := d.w.size
	b, err := d.w.bytes(0, int(min(size, format.IndexHeaderSize)))
	if err != nil {
		return err
	}
	h, err := format.ParseIndexHeader(b)
	if err != nil {
		if err := d.putDamage(0, int64(len(b)), err); err != nil {
			return err
		}
		return d.blocksAlone()
	}
	if d.at < format.IndexHeaderSize {
		if err := d.putIndexHeader(h); err != nil {
			return err
		}
	}
	for i := range h.IndexBlocks() {
		if err := d.ctx.Err(); err != nil {
			return err
		}
		pos, n := h.IndexBlockRange(i)
		if pos+int64(n) > size {
			return d.putDamage(pos, max(size-pos, 0), errPastEnd)
		}
		if err := d.block(i, pos, n); err != nil {
			return err
		}
	}
	end, err := d.filter(h)
	if err != nil {
		return err
	}
	if end < size && d.at < size {
		return d.putItem(end, size-end, place{"rest", end, size - end}, "rest of the file")
	}
	return nil
}

// filter prints the blocks of the key filter, and returns where they end.
func (d *dumper) filter(h format.IndexHeader) (end int64, err error) {
	size := d.w.size
	n := int64(h.Filter.BlockBytes)
	for i := range h.Filter.Blocks {
		if err := d.ctx.Err(); err != nil {
			return 0, err
		}
		pos := h.FilterBlockPos(i)
		if pos+n > size {
			return size, d.putDamage(pos, max(size-pos, 0), errFilterPastEnd)
		}
		if pos+n <= d.at {
			continue
		}
		b, err := d.w.bytes(pos, int(n))
		if err != nil {
			return 0, err
		}
		f, err := h.Filter.ParseFilterBlock(b)
		if err != nil {
			err = d.putDamage(pos, n, err)
		} else {
			err = d.putFilterBlock(i, pos, n, f)
		}
		if err != nil {
			return 0, err
		}
	}
	return h.FilterBlockPos(h.Filter.Blocks), nil
}

func (d *dumper) putFilterBlock(i uint32, pos, n int64, f format.FilterBlock) error {
	item := struct {
		place
		Block   uint32 `json:"block"`
		Keys    int    `json:"keys"`
		Columns int    `json:"columns"`
	}{place{"filter", pos, n}, i, f.Keys, f.Columns}
	return d.putItem(pos, n, item, "key filter: block %d, %s in %s", i,
		plural(uint64(f.Keys), "key"), plural(uint64(f.Columns), "column"))
}

// blocksAlone prints the blocks of an index whose header is lost. Blocks stand
// at fixed distances, and each has its own checksum.
func (d *dumper) blocksAlone() error {
	for i := 0; ; i++ {
		pos := int64(format.IndexHeaderSize) + int64(i)*format.IndexBlockSize
		if pos >= d.w.size {
			return nil
		}
		if err := d.block(i, pos, int(min(d.w.size-pos, format.IndexBlockSize))); err != nil {
			return err
		}
	}
}

// block prints the n bytes at pos, block i.
func (d *dumper) block(i int, pos int64, n int) error {
	if pos+int64(n) <= d.at {
		return nil
	}
	b, err := d.w.bytes(pos, n)
	if err != nil {
		return err
	}
	entries, err := format.ParseIndexBlock(nil, b)
	if err != nil {
		return d.putDamage(pos, int64(n), err)
	}
	for k, e := range entries {
		at := format.FirstEntryPos(i) + int64(k)*format.IndexEntrySize
		if at+format.IndexEntrySize <= d.at {
			continue
		}
		if err := d.putEntry(at, e); err != nil {
			return err
		}
	}
	return nil
}

func (d *dumper) putEntry(pos int64, e format.IndexEntry) error {
	item := struct {
		place
		Offset    uint64 `json:"offset"`
		Position  int64  `json:"position"`
		MaxTimeMS int64  `json:"max_ts_ms"`
	}{place{"entry", pos, format.IndexEntrySize}, e.Offset, e.Pos, e.MaxTimeMS}
	return d.putItem(pos, format.IndexEntrySize, item, "entry: offset %d at byte %d, highest time up to here %s",
		e.Offset, e.Pos, d.times.in(time.UnixMilli(e.MaxTimeMS)).Format(timeLayout))
}

// indexHeaderItem is the header in JSON.
type indexHeaderItem struct {
	place
	Base        uint64 `json:"base"`
	LogSize     int64  `json:"log_size"`
	Records     uint64 `json:"records"`
	Tombstones  uint64 `json:"tombstones"`
	FirstOffset uint64 `json:"first_offset"`
	FirstPos    int64  `json:"first_position"`
	FirstCRC    string `json:"first_crc"`
	LastOffset  uint64 `json:"last_offset"`
	LastPos     int64  `json:"last_position"`
	LastCRC     string `json:"last_crc"`
	MinTimeMS   int64  `json:"min_ts_ms"`
	MaxTimeMS   int64  `json:"max_ts_ms"`
	ClosedMS    int64  `json:"closed_ms"`
	CleanedMS   int64  `json:"cleaned_ms"`
	End         uint64 `json:"end"`
	Entries     uint32 `json:"entries"`
	// Of the key filter; nil where there is none.
	Filter *filterItem `json:"filter,omitempty"`
}

type filterItem struct {
	ID         string `json:"id"`
	Keys       uint64 `json:"keys"`
	Blocks     uint32 `json:"blocks"`
	BlockBytes uint16 `json:"block_bytes"`
}

func (d *dumper) putIndexHeader(h format.IndexHeader) error {
	item := indexHeaderItem{
		place: place{"header", 0, format.IndexHeaderSize}, Base: h.Base, LogSize: h.LogSize,
		Records: h.Records, Tombstones: h.Tombstones,
		FirstOffset: h.FirstOffset, FirstPos: h.FirstPos, FirstCRC: fmt.Sprintf("%08x", h.FirstCRC),
		LastOffset: h.LastOffset, LastPos: h.LastPos, LastCRC: fmt.Sprintf("%08x", h.LastCRC),
		MinTimeMS: h.MinTimeMS, MaxTimeMS: h.MaxTimeMS,
		ClosedMS: h.ClosedMS, CleanedMS: h.CleanedMS, End: h.End, Entries: h.Entries,
	}
	filter := "none"
	if f := h.Filter; f.There {
		item.Filter = &filterItem{fmt.Sprintf("%08x", f.ID), h.Keys, f.Blocks, f.BlockBytes}
		filter = fmt.Sprintf("%08x for %s in %s of %d B", f.ID, plural(h.Keys, "key"), plural(uint64(f.Blocks), "block"), f.BlockBytes)
	}
	return d.putItem(0, format.IndexHeaderSize, item,
		"header: base %d, .log of %d B with %s (%s), first offset %d at byte %d crc %08x, "+
			"last offset %d at byte %d crc %08x, times %s to %s, closed %s, cleaned %s, end %d, entries %d, key filter %s",
		h.Base, h.LogSize, plural(h.Records, "record"), plural(h.Tombstones, "tombstone"),
		h.FirstOffset, h.FirstPos, h.FirstCRC, h.LastOffset, h.LastPos, h.LastCRC,
		d.cellMS(h.MinTimeMS), d.cellMS(h.MaxTimeMS), d.cellOrDash(h.ClosedMS), d.cellOrDash(h.CleanedMS), h.End, h.Entries, filter)
}

func (d *dumper) cellMS(ms int64) string { return d.times.in(time.UnixMilli(ms)).Format(timeLayout) }

// cellOrDash is a time for which 0 means "not known".
func (d *dumper) cellOrDash(ms int64) string {
	switch ms {
	case 0:
		return "-"
	case format.NotVouched:
		return "- (index rebuilt)"
	case format.Refused:
		return "- (damaged)"
	}
	return d.cellMS(ms)
}
