package sqldriver

import (
	"fmt"
	"math"
	"time"
	"unsafe"

	"modernc.org/sqlite/vtab"

	"github.com/evlog-go/evlog/evlog"
)

// arena keeps the bytes of rows until their transaction ends, and its memory for
// the next one.
type arena struct{ chunk []byte }

// arenaChunk is what is taken at once. Rows that were collected point into the
// chunks before, so a chunk never moves.
const arenaChunk = 64 << 10

func (a *arena) keep(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	if len(b) > arenaChunk/4 {
		return append([]byte(nil), b...)
	}
	if len(b) > cap(a.chunk)-len(a.chunk) {
		a.chunk = make([]byte, 0, arenaChunk)
	}
	at := len(a.chunk)
	a.chunk = append(a.chunk, b...)
	return a.chunk[at:len(a.chunk):len(a.chunk)]
}

func (a *arena) reset() { a.chunk = a.chunk[:0] }

// record makes a record of a row. Its texts and blobs are SQLite's, and are
// copied.
func (a *arena) record(values []vtab.Value) (r evlog.Record, err error) {
	for _, c := range []struct {
		at   int
		name string
	}{{colOffset, "offset"}, {colTombstone, "tombstone"}, {colSegment, "segment"}} {
		if values[c.at] != nil {
			return r, notAllowed("INSERT with a value for %s: it follows from the log", c.name)
		}
	}
	if r.Time, err = timeOfRow(values[colTSMS], values[colTime]); err != nil {
		return r, err
	}
	if r.Schema, err = schemaOfRow(values[colSchema]); err != nil {
		return r, err
	}
	if r.Key, err = a.bytes("key", values[colKey]); err != nil {
		return r, err
	}
	r.Value, err = a.bytes("value", values[colValue])
	return r, err
}

func (a *arena) bytes(column string, v vtab.Value) ([]byte, error) {
	switch v := v.(type) {
	case nil:
		return nil, nil
	case string:
		return a.keep(unsafe.Slice(unsafe.StringData(v), len(v))), nil
	case []byte:
		return a.keep(v), nil
	}
	return nil, fmt.Errorf("sqldriver: INSERT: %s is a number; give it as text or blob", column)
}

func schemaOfRow(v vtab.Value) (uint16, error) {
	switch v := v.(type) {
	case nil:
		return 0, nil
	case int64:
		if v >= 0 && v <= math.MaxUint16 {
			return uint16(v), nil
		}
		return 0, fmt.Errorf("sqldriver: INSERT: schema is %d, not in 0 to %d", v, math.MaxUint16)
	}
	return 0, fmt.Errorf("sqldriver: INSERT: schema is no integer")
}

// timeOfRow is the time of a row: that of one of two columns, or the zero Time,
// which the log stamps.
func timeOfRow(ms, text vtab.Value) (t time.Time, err error) {
	if ms != nil && text != nil {
		return t, fmt.Errorf("sqldriver: INSERT: give ts_ms or time, not both")
	}
	switch v := ms.(type) {
	case nil:
	case int64:
		return exactly(v), nil
	case float64:
		if v == math.Trunc(v) && v >= -twoTo63 && v < twoTo63 {
			return exactly(int64(v)), nil
		}
		return t, fmt.Errorf("sqldriver: INSERT: ts_ms is %v, not a whole number of milliseconds", v)
	default:
		return t, fmt.Errorf("sqldriver: INSERT: ts_ms is no integer")
	}
	switch v := text.(type) {
	case nil:
		return t, nil
	case string:
		for _, layout := range rowLayouts {
			if t, err := time.Parse(layout, v); err == nil {
				return exactly(t.UnixMilli()), nil
			}
		}
		return t, fmt.Errorf("sqldriver: INSERT: time is %q, not RFC 3339", v)
	}
	return t, fmt.Errorf("sqldriver: INSERT: time is no text")
}

// rowLayouts are RFC 3339 and what SQLite's datetime functions print, in UTC.
var rowLayouts = []string{time.RFC3339Nano, time.DateTime, time.DateOnly}

// exactly is a time of this millisecond that is not taken for "stamp it".
func exactly(ms int64) time.Time {
	t := time.UnixMilli(ms)
	if t.IsZero() {
		t = t.Add(1)
	}
	return t
}
