package main

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/evlog-go/evlog/internal/format"
	"github.com/evlog-go/evlog/internal/jsonl"
)

// settle is how long a writer may need to finish a record that was being
// written while it was read.
const settle = 100 * time.Millisecond

// log prints the records of a .log and what stands between them.
func (d *dumper) log() error {
	search := format.NewFinder(d.w.r, d.w.size)
	pos, lowest := d.at, baseOf(d.path)
	for pos < d.w.size {
		if err := d.ctx.Err(); err != nil {
			return err
		}
		h, err := d.check(pos, lowest)
		switch {
		case format.Invalid(err):
			if pos, err = d.invalid(search, pos, lowest, err); err != nil {
				return err
			}
			continue
		case err != nil:
			return err
		}
		if err := d.putRecord(pos, h); err != nil {
			return err
		}
		pos += h.Size()
		lowest = h.Offset + 1
	}
	return nil
}

// invalid deals with bytes at pos that are no record, why says why. It returns
// the position to go on at.
func (d *dumper) invalid(search *format.Finder, pos int64, lowest uint64, why error) (int64, error) {
	zeros, err := d.w.zerosUpTo(pos)
	if err != nil {
		return 0, err
	}
	if zeros == d.w.size {
		return zeros, d.putZeros(pos)
	}
	if !d.settled {
		d.settled = true
		d.w.forget()
		return pos, d.pause()
	}
	next, _, err := search.Find(d.ctx, pos+1, lowest)
	if err != nil {
		return 0, err
	}
	return next, d.putDamage(pos, next-pos, why)
}

func (d *dumper) pause() error {
	select {
	case <-time.After(d.settle):
		return nil
	case <-d.ctx.Done():
		return d.ctx.Err()
	}
}

// baseOf is the lowest offset that the file's name allows.
func baseOf(path string) uint64 {
	digits, _, _ := strings.Cut(filepath.Base(path), ".")
	base, ok := format.ParseSegmentName(digits + format.LogSuffix)
	if !ok {
		return 0
	}
	return base
}

// check reads and tests the record at pos.
func (d *dumper) check(pos int64, lowest uint64) (format.Header, error) {
	left := d.w.size - pos
	if left < format.HeaderSize {
		return format.Header{}, format.ErrShort
	}
	b, err := d.w.bytes(pos, format.HeaderSize)
	if err != nil {
		return format.Header{}, err
	}
	h := format.ParseHeader(b)
	if err := h.Check(left, lowest); err != nil {
		return h, err
	}
	const crcEnd = 8
	crc, err := d.w.sum(0, pos+crcEnd, pos+h.Size())
	if err == nil && crc != h.CRC {
		err = format.ErrCRC
	}
	return h, err
}

func (d *dumper) putZeros(pos int64) error {
	size := d.w.size - pos
	return d.putItem(pos, size, place{"zeros", pos, size}, "zeros up to the end")
}

func (d *dumper) putRecord(pos int64, h format.Header) error {
	if d.structured {
		return d.putRecordJSON(pos, h)
	}
	at := time.UnixMilli(h.TimeMS)
	valueLen := h.Size() - format.HeaderSize - int64(h.KeyLen)
	d.buf = fmt.Appendf(d.buf, "%10d %8d  offset %d, ", pos, h.Size(), h.Offset)
	d.buf = d.times.append(d.buf, at)
	d.buf = fmt.Appendf(d.buf, ", schema %d, crc %08x, key %d B", h.Schema, h.CRC, h.KeyLen)
	keyPos := pos + format.HeaderSize
	if err := d.preview(keyPos, int64(h.KeyLen)); err != nil {
		return err
	}
	d.buf = fmt.Appendf(d.buf, ", value %d B", valueLen)
	if err := d.preview(keyPos+int64(h.KeyLen), valueLen); err != nil {
		return err
	}
	return d.put()
}

// preview appends the beginning of a key or value.
func (d *dumper) preview(pos, n int64) error {
	const most = 48
	if n == 0 {
		return nil
	}
	b, err := d.w.bytes(pos, int(min(n, most)))
	if err != nil {
		return err
	}
	d.buf = append(d.buf, ' ', '"')
	d.buf = appendPrintable(d.buf, b)
	d.buf = append(d.buf, '"')
	if n > most {
		d.buf = append(d.buf, "..."...)
	}
	return nil
}

// putRecordJSON prints the whole record: its length has been checked.
func (d *dumper) putRecordJSON(pos int64, h format.Header) error {
	rec, err := d.record(pos, h)
	if err != nil {
		return err
	}
	b := append(d.buf, `{"kind":"record","pos":`...)
	b = strconv.AppendInt(b, pos, 10)
	b = append(b, `,"size":`...)
	b = strconv.AppendInt(b, h.Size(), 10)
	b = append(b, `,"offset":`...)
	b = strconv.AppendUint(b, h.Offset, 10)
	b = append(b, `,"ts_ms":`...)
	b = strconv.AppendInt(b, h.TimeMS, 10)
	b = append(b, `,"schema":`...)
	b = strconv.AppendUint(b, uint64(h.Schema), 10)
	b = fmt.Appendf(b, `,"crc":"%08x"`, h.CRC)
	if h.KeyLen > 0 {
		b = jsonl.AppendField(b, "key", h.Key(rec))
	}
	b = jsonl.AppendField(b, "value", h.Value(rec))
	if h.KeyLen > 0 && len(h.Value(rec)) == 0 {
		b = append(b, `,"tombstone":true`...)
	}
	d.buf = append(b, '}')
	err = d.put()
	if cap(d.buf) > 4*windowBytes {
		d.buf = nil
	}
	return err
}

func (d *dumper) record(pos int64, h format.Header) ([]byte, error) {
	if h.Size() <= windowBytes {
		return d.w.bytes(pos, int(h.Size()))
	}
	b := make([]byte, h.Size())
	return b, readAll(d.w.r, b, pos)
}
