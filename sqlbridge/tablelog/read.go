package tablelog

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"math"
	"time"

	"github.com/evlog-go/evlog/evlog"
)

// A page is what one query reads. No connection is held, and no transaction is
// open, while records are yielded: the consumer may need the only connection of
// the pool, and a reader that stays open keeps the WAL growing.
const (
	pageRecords = 1000
	pageBytes   = 1 << 20 // of keys and values; a page ends behind the record that passes it
)

// Bounds returns the first offset left and the next one to be given out.
func (l *Log) Bounds(ctx context.Context) (first, next uint64, err error) {
	var f, n int64
	if err := l.db.QueryRowContext(ctx, l.q.bounds, l.table).Scan(&f, &n); err != nil {
		return 0, 0, readError(ctx, err)
	}
	return uint64(f), uint64(n), nil
}

// Records yields the records from offset from on up to the end as it is when the
// loop begins, in ascending order, holes included. Outside of the bounds it is an
// *evlog.OffsetError, also when what would come next is removed meanwhile. What
// is yielded is valid until the next step.
func (l *Log) Records(ctx context.Context, from uint64) iter.Seq2[evlog.Record, error] {
	return func(yield func(evlog.Record, error) bool) { l.read(ctx, from, false, yield) }
}

// Follow is Records that goes on with what is appended later, until ctx ends.
func (l *Log) Follow(ctx context.Context, from uint64) iter.Seq2[evlog.Record, error] {
	return func(yield func(evlog.Record, error) bool) { l.read(ctx, from, true, yield) }
}

func (l *Log) read(ctx context.Context, from uint64, follow bool, yield func(evlog.Record, error) bool) {
	fail := func(err error) { yield(evlog.Record{}, err) }
	first, next, err := l.Bounds(ctx)
	switch {
	case err != nil:
		fail(err)
		return
	case from > next:
		fail(&evlog.OffsetError{Asked: from, First: first, Next: next})
		return
	}
	end := next
	if follow {
		end = math.MaxInt64
	}
	p := page{l: l, next: from, end: end}
	wait := waiter{l: l}
	for {
		changed := l.whenChanged()
		if err := p.load(ctx); err != nil {
			fail(err)
			return
		}
		for _, r := range p.records {
			if err := ctx.Err(); err != nil {
				fail(err)
				return
			}
			if !yield(r, nil) {
				return
			}
		}
		if len(p.records) > 0 {
			wait.idle = 0
		}
		if p.more {
			continue
		}
		if !follow {
			return
		}
		if err := wait.wait(ctx, changed); err != nil {
			fail(err)
			return
		}
	}
}

// page is a part of the records in [next, end).
type page struct {
	l         *Log
	next, end uint64
	records   []evlog.Record
	more      bool   // a limit ended it, not the end
	bytes     []byte // what the records point into
}

// load reads the page that begins at next, and moves next behind it.
func (p *page) load(ctx context.Context) (err error) {
	p.records, p.bytes, p.more = p.records[:0], p.bytes[:0], false
	rows, err := p.l.db.QueryContext(ctx, p.l.q.page, p.l.table, int64(p.next), int64(p.end), pageRecords)
	if err != nil {
		return readError(ctx, err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() && !p.more {
		if err := p.add(rows); err != nil {
			return err
		}
		p.more = len(p.bytes) >= pageBytes || len(p.records) == pageRecords
	}
	if err := rows.Err(); err != nil {
		return readError(ctx, err)
	}
	if n := len(p.records); n > 0 {
		p.next = p.records[n-1].Offset + 1
	}
	return nil
}

func (p *page) add(rows *sql.Rows) error {
	var first, next int64
	var offset, ms, schema sql.NullInt64
	var key, value sql.RawBytes
	if err := rows.Scan(&first, &next, &offset, &ms, &schema, &key, &value); err != nil {
		return fmt.Errorf("tablelog: read: %w", err)
	}
	if p.next < uint64(first) && len(p.records) == 0 {
		return &evlog.OffsetError{Asked: p.next, First: uint64(first), Next: uint64(next)}
	}
	if offset.Valid {
		p.records = append(p.records, evlog.Record{
			Offset: uint64(offset.Int64),
			Time:   timeOf(ms.Int64),
			Schema: uint16(schema.Int64),
			Key:    p.keep(key),
			Value:  p.keep(value),
		})
	}
	return nil
}

// keep copies b into the page. Records that are there already keep pointing to
// the bytes they have when there is no more room and p.bytes moves.
func (p *page) keep(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	at := len(p.bytes)
	p.bytes = append(p.bytes, b...)
	return p.bytes[at:len(p.bytes):len(p.bytes)]
}

// waiter waits for something new at the end of the log.
type waiter struct {
	l    *Log
	idle time.Duration
}

const (
	firstPoll = time.Millisecond
	lastPoll  = 100 * time.Millisecond
)

func (w *waiter) wait(ctx context.Context, changed <-chan struct{}) error {
	d := w.l.opts.PollInterval
	if d == 0 {
		w.idle = min(max(2*w.idle, firstPoll), lastPoll)
		d = w.idle
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-changed:
		w.idle = 0
	case <-timer.C:
	}
	return nil
}

// readError adds the context's error: some drivers only pass on SQLite's
// "interrupted".
func readError(ctx context.Context, err error) error {
	if ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
		err = errors.Join(ctx.Err(), err)
	}
	return fmt.Errorf("tablelog: read: %w", err)
}

// timeOf is the stored time. The one millisecond of the zero Time, which means
// "stamp it", gets a nanosecond more, as in package evlog.
func timeOf(ms int64) time.Time {
	t := time.UnixMilli(ms).UTC()
	if t.IsZero() {
		t = t.Add(1)
	}
	return t
}
