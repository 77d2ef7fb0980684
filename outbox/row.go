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
	key, value int64 // bytes
	large      bool  // one is above the limit, and the record has neither
}

type blobSizes struct{ key, value int64 }

// noLimit is for those who want whatever is there. Without one, who inserts in
// another language can have the relay read a gigabyte, which no log takes.
var noLimit = blobSizes{math.MaxInt64, math.MaxInt64}

// rowsQuery has ?1 and ?2 for the limit: what is above has its length in its
// place, which SQLite knows without reading it. What only Encode and people want
// of a row comes last: without all, it is not asked for.
func rowsQuery(all bool, where string) string {
	query := `SELECT id, uid, schema, ts_ms, CASE WHEN length(key) > ?1 THEN length(key) ELSE key END,
		CASE WHEN length(value) > ?2 THEN length(value) ELSE value END`
	if all {
		query += `, attempts, parked, dedupe`
	}
	return query + ` FROM main.evlog_outbox ` + where
}

// scanner reads the columns of rowsQuery. The bytes of many rows lie in common
// blocks, which are not used again.
type scanner struct {
	id, schema, ms, attempts int64
	uid, key, value          blob
	parked, dedupe           sql.NullString
	block                    []byte
}

func (s *scanner) columns(all bool) []any {
	c := []any{&s.id, &s.uid, &s.schema, &s.ms, &s.key, &s.value, &s.attempts, &s.parked, &s.dedupe}
	if all {
		return c
	}
	return c[:6]
}

// row is the row that was scanned.
func (s *scanner) row() (r readRow, err error) {
	if len(s.uid.bytes) != len(r.UID) {
		return r, fmt.Errorf("row %d: a uid of %d bytes", s.id, len(s.uid.bytes))
	}
	copy(r.UID[:], s.uid.bytes)
	r.ID, r.Record.Schema, r.Record.Time = s.id, uint16(s.schema), timeOf(s.ms)
	r.key, r.value, r.large = s.key.size, s.value.size, s.key.large || s.value.large
	if !r.large { // half a record is of no use
		r.Record.Key, r.Record.Value = s.keep(s.key.bytes), s.keep(s.value.bytes)
	}
	r.Attempts, r.Parked, r.DedupeKey = int(s.attempts), s.parked.String, s.dedupe.String
	return r, nil
}

// blob is a column with bytes, which are valid until the next row, or with their
// number in their place.
type blob struct {
	bytes []byte
	size  int64
	large bool
}

// Scan implements sql.Scanner.
func (b *blob) Scan(column any) error {
	switch v := column.(type) {
	case nil:
		*b = blob{}
	case []byte:
		*b = blob{bytes: v, size: int64(len(v))}
	case int64:
		*b = blob{size: v, large: true}
	default:
		return fmt.Errorf("a %T where bytes should be", column)
	}
	return nil
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
func queryRows(ctx context.Context, q DBTX, all bool, full func(readRow) bool, limit blobSizes, where string, args ...any) error {
	rows, err := q.QueryContext(ctx, rowsQuery(all, where), append([]any{limit.key, limit.value}, args...)...)
	if err != nil {
		return tables.Error(err)
	}
	defer func() { _ = rows.Close() }()
	var s scanner
	columns := s.columns(all)
	for rows.Next() {
		if err := rows.Scan(columns...); err != nil {
			return err
		}
		r, err := s.row()
		if err != nil {
			return err
		}
		if full(r) {
			return rows.Close()
		}
	}
	return tables.Error(rows.Err())
}
