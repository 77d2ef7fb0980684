package outbox

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"math"
	"time"

	"github.com/evlog-go/evlog/evlog"
)

// UID is the random identity of a row. It stays the same wherever the row goes:
// through a crash, a restored database, or parking.
type UID [16]byte

// String is the UID in hexadecimal.
func (u UID) String() string { return hex.EncodeToString(u[:]) }

// Row is a row of the outbox.
type Row struct {
	// ID orders the rows. It may be given out again after a row is gone: what
	// names an event for ever is UID.
	ID     int64
	UID    UID
	Record evlog.Record // as it was put, without an offset
	// DedupeKey is that of PutOnce; empty for none.
	DedupeKey string
	// Attempts is how often the row was tried and parked.
	Attempts int
	// Parked is why it cannot be appended; empty if it is not parked.
	Parked string
}

// readRow is a row as it was read.
type readRow struct {
	Row
	large *blobSizes // one is above the limit, and was not read; nil: neither
}

type blobSizes struct{ key, value int64 }

// noLimit is for those who want whatever is there. Without one, who inserts in
// another language can have the relay read a gigabyte, which no log takes.
var noLimit = blobSizes{math.MaxInt64, math.MaxInt64}

// rowsQuery has ?1 and ?2 for the limit. SQLite knows the length of a blob without
// reading it, and reads it only where the CASE comes to it.
const rowsQuery = `SELECT id, uid, schema, ts_ms, attempts, parked, dedupe,
	CASE WHEN length(key) > ?1 THEN NULL ELSE key END, CASE WHEN length(value) > ?2 THEN NULL ELSE value END,
	CASE WHEN length(key) > ?1 OR length(value) > ?2 THEN coalesce(length(key), 0) || ' ' || coalesce(length(value), 0) END
	FROM main.evlog_outbox `

// scanner reads the columns of rowsQuery. The bytes of many rows lie in common
// blocks, which are not used again.
type scanner struct {
	uid, key, value, sizes sql.RawBytes
	parked, dedupe         sql.NullString
	block                  []byte
}

func (s *scanner) scan(rows *sql.Rows) (r readRow, err error) {
	var schema, ms, attempts int64
	err = rows.Scan(&r.ID, &s.uid, &schema, &ms, &attempts, &s.parked, &s.dedupe, &s.key, &s.value, &s.sizes)
	if err != nil {
		return r, err
	}
	if len(s.uid) != len(r.UID) {
		return r, fmt.Errorf("row %d: a uid of %d bytes", r.ID, len(s.uid))
	}
	copy(r.UID[:], s.uid)
	r.Record = evlog.Record{Schema: uint16(schema), Time: timeOf(ms)}
	if len(s.sizes) == 0 {
		r.Record.Key, r.Record.Value = s.keep(s.key), s.keep(s.value)
	} else {
		r.large = new(blobSizes)
		if _, err := fmt.Sscan(string(s.sizes), &r.large.key, &r.large.value); err != nil {
			return r, fmt.Errorf("row %d: sizes %q: %w", r.ID, s.sizes, err)
		}
	}
	r.Attempts, r.Parked, r.DedupeKey = int(attempts), s.parked.String, s.dedupe.String
	return r, nil
}

// Blocks begin small, since most reads find a row or two, and grow for those that
// find many.
const (
	firstBlockBytes = 1 << 10
	blockBytes      = 64 << 10
)

// keep copies what is valid until the next row only. Nothing is nil.
func (s *scanner) keep(p []byte) []byte {
	if len(p) == 0 {
		return nil
	}
	if len(p) > cap(s.block)-len(s.block) {
		if len(p) > blockBytes/4 {
			return bytes.Clone(p)
		}
		s.block = make([]byte, 0, max(2*len(p), min(blockBytes, max(firstBlockBytes, 4*cap(s.block)))))
	}
	at := len(s.block)
	s.block = append(s.block, p...)
	return s.block[at:len(s.block):len(s.block)]
}

// timeOf keeps the one millisecond that would come out as the zero Time from
// being taken for "stamp it".
func timeOf(ms int64) time.Time {
	t := time.UnixMilli(ms).UTC()
	if t.IsZero() {
		t = t.Add(1)
	}
	return t
}

// queryRows reads rows until there are no more or full says so. where goes on the
// query, from ?3 on. Each statement is read to its end or closed, so that no read
// transaction stays open.
func queryRows(ctx context.Context, q DBTX, full func(readRow) bool, limit blobSizes, where string, args ...any) error {
	rows, err := q.QueryContext(ctx, rowsQuery+where, append([]any{limit.key, limit.value}, args...)...)
	if err != nil {
		return tables.Error(err)
	}
	defer func() { _ = rows.Close() }()
	var s scanner
	for rows.Next() {
		r, err := s.scan(rows)
		if err != nil {
			return err
		}
		if full(r) {
			return rows.Close()
		}
	}
	return tables.Error(rows.Err())
}
