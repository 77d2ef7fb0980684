package outbox

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/evlog-go/evlog/evlog"
)

// rowRef names a row, and the record that is made of it.
type rowRef struct {
	id  int64
	uid UID
	sum [sumBytes]byte // of the record
}

const sumBytes = 8

// sumOf is a checksum of a record without its offset, to tell it from others.
func sumOf(r evlog.Record) (sum [sumBytes]byte) {
	var head [14]byte
	binary.BigEndian.PutUint64(head[:], uint64(r.Time.UnixMilli()))
	binary.BigEndian.PutUint16(head[8:], r.Schema)
	binary.BigEndian.PutUint32(head[10:], uint32(len(r.Key)))
	h := sha256.New()
	for _, p := range [][]byte{head[:], r.Key, r.Value} {
		h.Write(p) // never fails
	}
	var all [sha256.Size]byte
	copy(sum[:], h.Sum(all[:0]))
	return sum
}

// intent is what is about to be appended: rows[i] at offset+i. Without rows it is
// closed.
type intent struct {
	offset int64
	rows   []rowRef
}

// in reports whether row i is in the log, of which next is the offset after the
// last record. Offsets inside gaps were left without records by repair. What the
// records look like does not matter: others can look the same.
func (in intent) in(i int, next uint64, gaps []evlog.OffsetRange) bool {
	off := uint64(in.offset) + uint64(i)
	for _, g := range gaps {
		if g.From <= off && off < g.To {
			return false
		}
	}
	return off < next
}

// runs are ranges of ids, as "17:1016,1018" in the table.
type run struct {
	first, last int64
	at          int // index of first
}

// runsOf are the runs of the rows for which take, nil for all, says so.
func runsOf(rows []rowRef, take func(i int) bool) (runs []run) {
	joined := false // to the row before
	for i, r := range rows {
		if take != nil && !take(i) {
			joined = false
			continue
		}
		if k := len(runs) - 1; joined && runs[k].last+1 == r.id {
			runs[k].last = r.id
		} else {
			runs = append(runs, run{first: r.id, last: r.id, at: i})
		}
		joined = true
	}
	return runs
}

// encodeRefs is how rows are written down in evlog_outbox_relay.
func encodeRefs(rows []rowRef) (ids string, uids, sums []byte) {
	var text []byte
	for _, r := range runsOf(rows, nil) {
		if len(text) > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendInt(text, r.first, 10)
		if r.last > r.first {
			text = strconv.AppendInt(append(text, ':'), r.last, 10)
		}
	}
	uids, sums = make([]byte, 0, 16*len(rows)), make([]byte, 0, sumBytes*len(rows))
	for i := range rows {
		uids = append(uids, rows[i].uid[:]...)
		sums = append(sums, rows[i].sum[:]...)
	}
	return string(text), uids, sums
}

// errDamaged: nobody can tell which rows the intent names.
var errDamaged = errors.New("the intent in evlog_outbox_relay is damaged")

// decodeRefs is the reverse. What a table says can be anything.
func decodeRefs(n int, ids string, uids, sums []byte) ([]rowRef, error) {
	if n == 0 {
		return nil, nil
	}
	bad := fmt.Errorf("%w: %d rows, ids %.100q, %d and %d bytes", errDamaged, n, ids, len(uids), len(sums))
	if n < 0 || n > len(uids) || len(uids) != len(UID{})*n || len(sums) != sumBytes*n {
		return nil, bad
	}
	rows := make([]rowRef, 0, n)
	for part := range strings.SplitSeq(ids, ",") {
		from, to, isRange := strings.Cut(part, ":")
		if !isRange {
			to = from
		}
		first, err1 := strconv.ParseInt(from, 10, 64)
		last, err2 := strconv.ParseInt(to, 10, 64)
		if err1 != nil || err2 != nil || first > last || uint64(last)-uint64(first) >= uint64(n-len(rows)) {
			return nil, bad
		}
		for i := range last - first + 1 {
			r := rowRef{id: first + i}
			copy(r.uid[:], uids[len(r.uid)*len(rows):])
			copy(r.sum[:], sums[sumBytes*len(rows):])
			rows = append(rows, r)
		}
	}
	if len(rows) != n {
		return nil, bad
	}
	return rows, nil
}

// fits refuses offsets that SQLite's integers cannot hold.
func fits(offset uint64, n int) error {
	if offset > math.MaxInt64-uint64(n) {
		return fmt.Errorf("offset %d: %w (at most %d)", offset, evlog.ErrTooLarge, int64(math.MaxInt64))
	}
	return nil
}
