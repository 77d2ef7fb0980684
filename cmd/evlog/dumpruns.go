package main

import (
	"slices"

	"github.com/evlog-go/evlog/internal/format"
)

// stretch is a run of valid records that follow each other without a gap, with
// ascending offsets.
type stretch struct {
	pos, end    int64
	first, last uint64 // offsets
	records     int
	stray       bool // not one of the segment's records, as far as can be told
}

// findRuns lists the runs from pos on. Offsets below lowest were in use before.
//
// Behind damage nothing says where the next record begins, and bytes that make a
// valid record may be part of a damaged record's value: applications store
// frames, or whole segments. So all of the file is looked at before anything is
// believed, and what is believed are the runs whose offsets ascend together and
// that hold the most records.
func (d *dumper) findRuns(pos int64, lowest uint64) ([]stretch, error) {
	search := format.NewFinder(d.w.r, d.w.size)
	runs := []stretch{}
	for {
		at, found, err := search.Find(d.ctx, pos, 0)
		if err != nil {
			return nil, err
		}
		if !found {
			markStrays(runs, lowest)
			return runs, nil
		}
		r, err := d.runAt(at, lowest)
		if err != nil {
			return nil, err
		}
		pos = max(r.end, at+1)
		if r.records > 0 {
			runs = append(runs, r)
		}
	}
}

// runAt follows the run that begins at pos. It ends where lowest is reached: what
// is below was in use, what is above was not.
func (d *dumper) runAt(pos int64, lowest uint64) (stretch, error) {
	r := stretch{pos: pos, end: pos}
	for next := uint64(0); ; {
		h, err := d.check(r.end, next)
		if r.records == 0 && format.Invalid(err) {
			// In memory are bytes from before a writer appended this.
			d.w.forget()
			h, err = d.check(r.end, next)
		}
		switch {
		case err != nil && !format.Invalid(err):
			return r, err
		case err != nil, r.records > 0 && r.last < lowest && h.Offset >= lowest:
			return r, nil
		}
		if r.records == 0 {
			r.first = h.Offset
		}
		r.records++
		r.last = h.Offset
		r.end += h.Size()
		next = h.Offset + 1
		if err := d.ctx.Err(); err != nil {
			return r, err
		}
	}
}

// markStrays marks the runs that do not belong to the ascending sequence with
// the most records. Of sequences with equally many, the one with the lower
// offsets is the segment's: offsets are dense.
func markStrays(runs []stretch, lowest uint64) {
	// The best sequences found so far, by the offset that each ends with; a
	// longer one is kept only if it holds more records.
	type sequence struct {
		last    uint64
		records int
		run     int // the last one in it
	}
	var best []sequence
	before := make([]int, len(runs)) // the run before, in the sequence that ends with a run
	for i := range runs {
		r := &runs[i]
		r.stray = true
		if r.first < lowest {
			continue
		}
		s := sequence{last: r.last, records: r.records, run: i}
		before[i] = -1
		byLast := func(s sequence, last uint64) int {
			if s.last < last {
				return -1
			}
			return 1
		}
		if at, _ := slices.BinarySearchFunc(best, r.first, byLast); at > 0 {
			s.records += best[at-1].records
			before[i] = best[at-1].run
		}
		at, _ := slices.BinarySearchFunc(best, r.last, byLast)
		if at > 0 && best[at-1].records >= s.records {
			continue
		}
		worse := at
		for worse < len(best) && best[worse].records <= s.records {
			worse++
		}
		best = slices.Replace(best, at, worse, s)
	}
	if len(best) == 0 {
		return
	}
	for i := best[len(best)-1].run; i >= 0; i = before[i] {
		runs[i].stray = false
	}
}
