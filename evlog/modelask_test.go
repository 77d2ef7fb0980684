package evlog_test

import (
	"errors"
	"fmt"
	"math"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
)

// everyOne asks each question about every offset, time and key.
const everyOne = 0

// questions asks for records in every way there is, from n random places each, and
// compares the answers with the model: what is settled comes, unless it may be
// gone, and what comes was appended.
func (r *random) questions(reader *evlog.Reader, n int) {
	rng := r.gen.Rng
	settled := r.w.model.Settled()
	end := r.w.model.Next() + 3
	if n == everyOne {
		from := uint64(0)
		if len(settled) > 0 {
			from = settled[0].Offset
		}
		for off := from - min(from, 2); off < end; off++ {
			if len(settled) > 0 && off > from+2 && off+2 < end && rng.IntN(1+int((end-from)/300)) > 0 {
				continue // many offsets are in holes
			}
			r.questionsAt(reader, off)
		}
		for _, rec := range settled {
			r.offsetAt(reader, rec.TimeMS)
			r.offsetAt(reader, rec.TimeMS+1)
		}
		for _, key := range r.gen.AllKeys() {
			r.latest(reader, key)
			r.historyOf(reader, key)
		}
		return
	}
	for range n {
		r.questionsAt(reader, rng.Uint64N(end))
		ms := r.clock.Now().UnixMilli()
		if len(settled) > 0 {
			r.questionsAt(reader, settled[rng.IntN(len(settled))].Offset)
			ms = settled[rng.IntN(len(settled))].TimeMS
		}
		r.offsetAt(reader, ms+int64(rng.IntN(3))-1)
		r.latest(reader, r.gen.Key())
		r.historyOf(reader, r.gen.Key())
		r.last(reader, 1+rng.IntN(20))
	}
}

// questionsAt asks about one offset.
func (r *random) questionsAt(reader *evlog.Reader, off uint64) {
	ctx := r.w.p.ctx
	what := func(how string, err error) {
		if err != nil {
			r.fatal(fmt.Errorf("%s %d: %w\n%s", how, off, err, onFS(r.t, r.w.m).image(r.t).Describe()))
		}
	}
	got, err := collect(reader.Records(ctx, off))
	if _, behind := r.behind(err, off); !behind {
		if beyond(err, off) {
			err = nil
		}
		what("from", err)
		what("from", r.span(got, off, math.MaxUint64))
	}
	got, err = collect(reader.Backward(ctx, off))
	if _, behind := r.behind(err, 0); !behind {
		what("backward from", err)
		what("backward from", r.span(reversed(got), 0, off))
	}
	one, err := reader.Get(ctx, off)
	if _, behind := r.behind(err, off); behind {
		return
	}
	if errors.Is(err, evlog.ErrNotFound) || beyond(err, off) {
		what("get", r.span(nil, off, math.MaxUint64))
		return
	}
	what("get", err)
	what("get", r.span([]evtest.Rec{evtest.RecOf(one)}, off, one.Offset+1))
}

// behind reports whether an error says that retention has removed what stands at
// next, which it may have, and the first offset that is left.
func (r *random) behind(err error, next uint64) (first uint64, is bool) {
	var o *evlog.OffsetError
	if errors.As(err, &o) && o.First > next && r.w.model.IsDue(o.First) {
		return o.First, true
	}
	return 0, false
}

// beyond reports whether an error says that off is beyond the end.
func beyond(err error, off uint64) bool {
	var o *evlog.OffsetError
	return errors.As(err, &o) && o.Asked == off && o.Next < off
}

// span checks an answer that is to hold all records from one offset up to another.
func (r *random) span(got []evtest.Rec, from, to uint64) error {
	there := map[uint64]bool{}
	for i, rec := range got {
		if rec.Offset < from || rec.Offset >= to || i > 0 && rec.Offset <= got[i-1].Offset {
			return fmt.Errorf("%v comes after %v", rec, got[:i])
		}
		if err := r.w.model.Saw(rec); err != nil {
			return err
		}
		there[rec.Offset] = true
	}
	for _, s := range r.w.model.Settled() {
		if s.Offset >= from && s.Offset < to && !there[s.Offset] && !r.mayLack(s) {
			return fmt.Errorf("%v does not come", s)
		}
	}
	return nil
}

// mayLack reports whether a settled record may be gone.
func (r *random) mayLack(s evtest.Rec) bool {
	if r.exact() {
		return r.w.model.IsDue(s.Offset + 1)
	}
	return r.w.model.MayLack(s)
}

// offsetAt asks for the first record of a time.
func (r *random) offsetAt(reader *evlog.Reader, ms int64) {
	at, err := reader.OffsetAt(r.w.p.ctx, evtest.Time(ms))
	if errors.Is(err, evlog.ErrNotFound) {
		at, err = math.MaxUint64, nil
	}
	r.fatal(err)
	for _, s := range r.w.model.Settled() {
		switch {
		case s.Offset == at && s.TimeMS < ms:
			r.fatal(fmt.Errorf("at %d ms: %v is older", ms, s))
		case s.Offset < at && s.TimeMS >= ms && !r.mayLack(s):
			r.fatal(fmt.Errorf("at %d ms: %d, though %v comes first", ms, at, s))
		}
	}
}

// last asks for where the newest n records begin.
func (r *random) last(reader *evlog.Reader, n int) {
	at, err := reader.OffsetOfLast(r.w.p.ctx, n)
	if errors.Is(err, evlog.ErrNotFound) {
		at, err = math.MaxUint64, nil
	}
	r.fatal(err)
	if !r.exact() {
		return
	}
	settled := r.w.model.Settled()
	if r.w.model.Pending() > 0 {
		return // of these nobody knows whether they count yet
	}
	if n <= len(settled) && settled[len(settled)-n].Offset != at {
		r.fatal(fmt.Errorf("the last %d records begin at %d, not at %v", n, at, settled[len(settled)-n]))
	}
}

// latest asks for the newest record of a key.
func (r *random) latest(reader *evlog.Reader, key []byte) {
	got, err := reader.Latest(r.w.p.ctx, key)
	if err != nil && !errors.Is(err, evlog.ErrNotFound) {
		r.fatal(fmt.Errorf("latest of %q: %w", key, err))
	}
	if err := r.w.model.CheckLatest(string(key), evtest.RecOf(got), err == nil); err != nil {
		again, againErr := reader.Latest(r.w.p.ctx, key)
		r.fatal(fmt.Errorf("%w; asked again: %d, %v\n%s", err, again.Offset, againErr, onFS(r.t, r.w.m).image(r.t).Describe()))
	}
}

// historyOf reads the records of one key.
func (r *random) historyOf(reader *evlog.Reader, key []byte) {
	w := r.w
	first, _, err := reader.Bounds(w.p.ctx)
	r.fatal(err)
	var last evtest.Rec
	there := map[uint64]bool{}
	for rec, err := range reader.ByKey(w.p.ctx, key, first) {
		if _, behind := r.behind(err, first); behind { // while it was at work
			return
		}
		r.fatal(err)
		got := evtest.RecOf(rec)
		if len(there) > 0 && got.Offset <= last.Offset || string(got.Key) != string(key) {
			r.fatal(fmt.Errorf("by key %q: %v after %v", key, got, last))
		}
		r.fatal(w.model.Saw(got))
		last, there[got.Offset] = got, true
	}
	for _, s := range w.model.Settled() {
		if string(s.Key) == string(key) && !there[s.Offset] && !r.mayLack(s) {
			r.fatal(fmt.Errorf("by key %q: %v does not come", key, s))
		}
	}
	switch some := len(there) > 0; {
	case r.slow(): // too slow for a deletion, as a table may be
		r.fatal(w.model.CheckTable(string(key), last, some, true))
	case some || r.exact():
		r.fatal(w.model.CheckLatest(string(key), last, some))
	}
	// None at all: a segment with a newer one was closed, and the old one has gone
	// for its sake; it is beyond the end as it was when reading began.
}
