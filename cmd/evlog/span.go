package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/evlog-go/evlog/evlog"
)

// rangeFlags choose records by where they stand.
type rangeFlags struct {
	beyond       bool
	from, to     offsetValue
	origin       originValue
	since, until timeValue
	last, most   countValue
	reverse      bool
}

func (f *rangeFlags) register(cmd *cobra.Command, now func() time.Time) {
	f.since.now, f.until.now = now, now
	flags := cmd.Flags()
	flags.Var(&f.from, "from", "first offset")
	flags.Var(&f.to, "to", "offset to stop before")
	flags.VarP(&f.origin, "offset", "o", "start at beginning, end, an offset, or -N for the last N")
	flags.Var(&f.since, "since", "start at the first record of this time or later: "+timeHelp)
	flags.Var(&f.until, "until", "stop before the first record of this time or later")
	flags.VarP(&f.last, "last", "n", "only the last N")
	flags.VarP(&f.most, "count", "c", "at most N")
	flags.BoolVarP(&f.reverse, "reverse", "r", false, "newest first")
	flags.BoolVar(&f.beyond, "beyond-durable", false, "salvage: read on beyond the durable mark")
}

func (f *rangeFlags) check(cmd *cobra.Command) error {
	switch {
	case f.from.set && f.origin.set:
		return usagef(cmd, "--from and -o both say where to start")
	case f.from.set && f.to.set && f.from.n > f.to.n:
		return usagef(cmd, "--from %d is above --to %d", f.from.n, f.to.n)
	}
	return nil
}

// span is a half-open range of offsets, fixed when it is resolved: what is
// appended later is outside.
type span struct {
	from, to uint64
	implicit bool // nobody asked for from: it is the start of the log
}

func (s span) empty() bool { return s.from >= s.to }

// narrow moves the start up.
func (s *span) narrow(from uint64) {
	if from > s.from {
		s.from, s.implicit = from, false
	}
}

// resolve turns the flags, all but -n, into offsets.
func (f *rangeFlags) resolve(ctx context.Context, r *evlog.Reader) (span, error) {
	first, next, err := r.Bounds(ctx)
	if err != nil {
		return span{}, err
	}
	s := span{from: first, to: next, implicit: true}
	switch {
	case f.from.set:
		err = s.startAt(f.from.n, first, next)
	case f.origin.hasStart:
		err = s.startAt(f.origin.offset, first, next)
	case f.origin.end:
		s.narrow(next)
	case f.origin.last > 0:
		err = s.startAtLast(ctx, r, f.origin.last, nil)
	}
	if err != nil {
		return s, err
	}
	if f.since.set {
		since, err := offsetAt(ctx, r, f.since.t)
		if err != nil {
			return s, err
		}
		s.narrow(since)
	}
	if f.until.set {
		until, err := offsetAt(ctx, r, f.until.t)
		if err != nil {
			return s, err
		}
		s.to = min(s.to, until)
	}
	if f.to.set {
		s.to = min(s.to, f.to.n)
	}
	return s, nil
}

// startAt is an explicit start: outside the log it is an error, not corrected.
func (s *span) startAt(offset, first, next uint64) error {
	if offset < first || offset > next {
		return &evlog.OffsetError{Asked: offset, First: first, Next: next}
	}
	s.from, s.implicit = offset, false
	return nil
}

// startAtLast moves the start up to the n-th last record of the span that
// passes the filter, if there are more.
func (s *span) startAtLast(ctx context.Context, r *evlog.Reader, n uint64, filter *filterFlags) error {
	if n == 0 {
		s.narrow(s.to)
	}
	if s.empty() {
		return nil
	}
	for rec, err := range r.Backward(ctx, s.to) {
		switch {
		case err != nil:
			return err
		case rec.Offset < s.from:
			return nil
		case filter != nil && !filter.match(rec):
			continue
		}
		if n--; n == 0 {
			s.narrow(rec.Offset)
			return nil
		}
	}
	return nil
}

// offsetAt is the first record at t or later, the end of the log if there is
// none.
func offsetAt(ctx context.Context, r *evlog.Reader, t time.Time) (uint64, error) {
	offset, err := r.OffsetAt(ctx, t)
	if errors.Is(err, evlog.ErrNotFound) {
		err = nil
	}
	return offset, err
}
