package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/evlog-go/evlog/internal/format"
	"github.com/evlog-go/evlog/internal/jsonl"
)

// What a valid record in a .log is.
const (
	kindRecord = "record"
	kindStray  = "stray" // bytes that make a record, which is in nobody's place
)

func (d *dumper) putRecord(pos int64, h format.Header, kind string) error {
	if d.structured {
		return d.putRecordJSON(pos, h, kind)
	}
	at := time.UnixMilli(h.TimeMS)
	valueLen := h.Size() - format.HeaderSize - int64(h.KeyLen)
	d.buf = fmt.Appendf(d.buf, "%10d %8d  ", pos, h.Size())
	if kind == kindStray {
		d.buf = append(d.buf, "stray: "...)
	}
	d.buf = fmt.Appendf(d.buf, "offset %d, ", h.Offset)
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
func (d *dumper) putRecordJSON(pos int64, h format.Header, kind string) error {
	rec, err := d.record(pos, h)
	if err != nil {
		return err
	}
	b := fmt.Appendf(d.buf, `{"kind":"%s","pos":`, kind)
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
