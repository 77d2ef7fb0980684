package evlog

import (
	"bytes"
	"fmt"
	"time"

	"github.com/evlog-go/evlog/internal/format"
)

// Limits of the format.
const (
	// MaxKeyBytes is the longest key.
	MaxKeyBytes = format.MaxKey
	// MaxRecordBytes is the highest value of Options.MaxRecordBytes.
	MaxRecordBytes = format.MaxLength
	// RecordOverhead is what a record takes on disk beside its key and value.
	RecordOverhead = format.HeaderSize
)

// Record is one event.
//
// A record that was read points into the reader's buffer: Key and Value are
// valid until the iterator's next step, and must not be changed. Use Clone to
// keep it.
type Record struct {
	// Offset is the record's own number, given by the log when it is appended
	// (except by AppendExact, which takes it from here).
	Offset uint64
	// Time is kept to the millisecond, rounded down. The zero Time means
	// "stamped by the writer". Times may go backwards. Read back in UTC.
	Time time.Time
	// Schema is the application's number for the form of Value; 0 is none.
	Schema uint16
	// Key groups records, for look-ups and compaction: at most 65,535 bytes. An
	// empty key and no key are the same, and read back as nil.
	Key []byte
	// Value is the payload. An empty one is read back as nil; with a key it is
	// a tombstone.
	Value []byte
}

// Tombstone reports whether the record says that its key was deleted: it has a
// key and an empty value.
func (r Record) Tombstone() bool { return len(r.Key) > 0 && len(r.Value) == 0 }

// Clone returns a copy that stays valid.
func (r Record) Clone() Record {
	both := make([]byte, len(r.Key)+len(r.Value))
	n := copy(both, r.Key)
	copy(both[n:], r.Value)
	r.Key = nilIfEmpty(both[:n:n])
	r.Value = nilIfEmpty(both[n:])
	return r
}

// Size is the number of bytes the record takes in the log.
func (r Record) Size() int64 { return format.Size(len(r.Key), len(r.Value)) }

// Equal reports whether two records are the same in every field, times to the
// millisecond.
func (r Record) Equal(o Record) bool {
	return r.Offset == o.Offset && r.Time.UnixMilli() == o.Time.UnixMilli() && r.Schema == o.Schema &&
		bytes.Equal(r.Key, o.Key) && bytes.Equal(r.Value, o.Value)
}

// String shows the record for messages and tests: offset, time, key and size.
func (r Record) String() string {
	return fmt.Sprintf("%d %s key=%q value=%d B", r.Offset, r.Time.Format(time.RFC3339), r.Key, len(r.Value))
}

// check tests what can be wrong with a record before anything is written.
func (r *Record) check(maxRecordBytes int64) error {
	if len(r.Key) > MaxKeyBytes {
		return fmt.Errorf("evlog: key of %d bytes: %w (at most %d)", len(r.Key), ErrTooLarge, MaxKeyBytes)
	}
	if size := r.Size(); size > maxRecordBytes {
		return fmt.Errorf("evlog: record of %d bytes: %w (at most %d)", size, ErrTooLarge, maxRecordBytes)
	}
	// Beyond 64 bits the milliseconds wrap around.
	if time.UnixMilli(r.Time.UnixMilli()).Unix() != r.Time.Unix() {
		return fmt.Errorf("evlog: time %v: %w (milliseconds since 1970 do not fit 64 bits)", r.Time, ErrTooLarge)
	}
	return nil
}

// zeroTimeMS is the millisecond that the zero Time falls into.
var zeroTimeMS = time.Time{}.UnixMilli()

// timeOf turns stored milliseconds into a Time. The one millisecond that would
// come out as the zero Time gets a nanosecond more: appended again it must not
// be taken for "stamp it".
func timeOf(ms int64) time.Time {
	t := time.UnixMilli(ms).UTC()
	if ms == zeroTimeMS {
		t = t.Add(1)
	}
	return t
}

func nilIfEmpty(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b
}

// recordOf reads a whole checked record; Key and Value point into b.
func recordOf(b []byte) (r Record) {
	var last lastTime
	r.set(b, &last)
	return r
}

// lastTime is the time of the record before: the next one's is most often the
// same, and making it anew takes longer than the rest of a small record.
type lastTime struct {
	ms   int64
	time time.Time // zero: of none
}

// set is recordOf into what is there: one copy less.
func (r *Record) set(b []byte, last *lastTime) {
	h := format.ParseHeader(b)
	if h.TimeMS != last.ms || last.time.IsZero() {
		last.ms, last.time = h.TimeMS, timeOf(h.TimeMS)
	}
	r.Offset = h.Offset
	r.Time = last.time
	r.Schema = h.Schema
	r.Key = nilIfEmpty(h.Key(b))
	r.Value = nilIfEmpty(h.Value(b))
}
