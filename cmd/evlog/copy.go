package main

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/evlog-go/evlog/cursor"
	"github.com/evlog-go/evlog/evlog"
)

// copier copies a log, record by record, into one that does not exist yet, or
// goes on with a copy that was interrupted. The copy has the same id, so that
// cursors fit it, and offsets, times and bytes as they are.
type copier struct {
	a        *app
	from, to string // for people
	source   copySource
	target   copyTarget
}

// copySource is the log that is copied.
type copySource interface {
	// load returns clones of the next records at or above from and below end, as
	// many as are good for one batch; none if there are none.
	load(ctx context.Context, from, end uint64) ([]evlog.Record, error)
}

// copyTarget is the copy.
type copyTarget interface {
	Bounds(ctx context.Context) (first, next uint64, err error)
	Records(ctx context.Context, from uint64) iter.Seq2[evlog.Record, error]
	// append returns when the records are durable.
	append(ctx context.Context, records []evlog.Record) error
	// skipTo leaves a hole up to next.
	skipTo(ctx context.Context, next uint64) error
}

// identity is what of a log is not in its records.
type identity struct {
	id          string
	first, next uint64
}

func identityOf(ctx context.Context, l cursor.Log) (d identity, err error) {
	d.id = l.ID()
	d.first, d.next, err = l.Bounds(ctx)
	return d, err
}

// run copies what there is below source.next.
func (c *copier) run(ctx context.Context, source identity) (err error) {
	first, next, err := c.target.Bounds(ctx)
	if err != nil {
		return err
	}
	if next > source.next {
		return c.noCopy("ends at %d, and the other at %d", next, source.next)
	}
	if err := c.compare(ctx, max(first, source.first), next); err != nil {
		return err
	}
	if source.first > next {
		c.a.notice("offsets %d to %d were removed before they could be copied: a hole", next, source.first-1)
	}
	n, err := c.copy(ctx, max(next, source.first), source.next)
	if err != nil {
		if ctx.Err() != nil {
			c.a.notice("copied %s; the same command goes on", plural(n, "record"))
		}
		return err
	}
	c.a.notice("copied %s from %s to %s, which ends at offset %d", plural(n, "record"), c.from, c.to, source.next)
	return nil
}

// noCopy refuses a target, in which nothing was changed.
func (c *copier) noCopy(why string, args ...any) error {
	err := fmt.Errorf("%s is no copy of %s: it %s", c.to, c.from, fmt.Sprintf(why, args...))
	return &hinted{err, "nothing was changed; copy to where nothing is yet"}
}

// compare tests that the records in [from, end) are the same in both.
func (c *copier) compare(ctx context.Context, from, end uint64) (err error) {
	if from >= end {
		return nil
	}
	bar := c.a.newProgress("compare", false)
	defer bar.end()
	next, stop := iter.Pull2(c.target.Records(ctx, from))
	defer stop()
	differs := func(offset uint64) error { return c.noCopy("differs at offset %d", offset) }
	pos := from
	for {
		records, err := c.source.load(ctx, pos, end)
		if err != nil {
			return err
		}
		for i := range records {
			switch got, err, ok := next(); {
			case err != nil:
				return err
			case !ok:
				return differs(records[i].Offset)
			case !got.Equal(records[i]):
				return differs(min(got.Offset, records[i].Offset))
			}
		}
		if len(records) == 0 {
			break
		}
		pos = records[len(records)-1].Offset + 1
		bar.set(int64(pos-from), int64(end-from))
	}
	if got, err, ok := next(); err != nil {
		return err
	} else if ok {
		return differs(got.Offset)
	}
	return nil
}

// copy appends the records in [from, end), and the hole behind the last one.
func (c *copier) copy(ctx context.Context, from, end uint64) (n uint64, err error) {
	bar := c.a.newProgress("copy", false)
	defer bar.end()
	for pos := from; ; {
		records, err := c.source.load(ctx, pos, end)
		if err != nil {
			return n, err
		}
		if len(records) == 0 {
			return n, c.target.skipTo(ctx, end)
		}
		if err := c.target.append(ctx, records); err != nil {
			return n, err
		}
		n += uint64(len(records))
		pos = records[len(records)-1].Offset + 1
		bar.set(int64(pos-from), int64(end-from))
	}
}

// A batch: what is lost is copied again, and what is read at once is in memory.
const (
	copyRecords = 10_000
	copyBytes   = 4 << 20
)

// loadFrom is load for a log that is open.
func loadFrom(ctx context.Context, l cursor.Log, from, end uint64) (records []evlog.Record, err error) {
	if from >= end {
		return nil, nil
	}
	size := int64(0)
	for r, err := range l.Records(ctx, from) {
		if err != nil {
			return nil, err
		}
		if r.Offset >= end {
			break
		}
		records = append(records, r.Clone())
		if size += r.Size(); size >= copyBytes || len(records) == copyRecords {
			break
		}
	}
	return records, nil
}

// logSource reads a log of files.
type logSource struct{ *evlog.Reader }

func (s logSource) load(ctx context.Context, from, end uint64) ([]evlog.Record, error) {
	return loadFrom(ctx, s.Reader, from, end)
}

// logTarget writes one.
type logTarget struct {
	*evlog.Reader
	l        *evlog.Log
	maxBatch int64
}

func (t logTarget) append(ctx context.Context, records []evlog.Record) error {
	size, from := int64(0), 0
	for i := range records {
		if size += records[i].Size(); size >= t.maxBatch || i == len(records)-1 {
			if err := t.l.EnqueueExact(ctx, records[from:i+1]...); err != nil {
				return err
			}
			size, from = 0, i+1
		}
	}
	return t.l.Flush(ctx)
}

func (t logTarget) skipTo(ctx context.Context, next uint64) error { return t.l.RollTo(ctx, next) }

// anotherLog refuses a target by its id.
func (c *copier) anotherLog(ours, theirs string) error {
	if ours == theirs {
		return nil
	}
	return c.noCopy("has the id %s, and the other %s", ours, theirs)
}

// isMissing: there is no log yet.
func isMissing(err error) bool { return errors.Is(err, evlog.ErrNoLog) }
