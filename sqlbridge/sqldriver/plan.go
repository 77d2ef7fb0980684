package sqldriver

import (
	"slices"
	"strings"

	"modernc.org/sqlite/vtab"
)

// Columns of the table log.
const (
	colRowid = iota - 1
	colOffset
	colTSMS
	colTime
	colSchema
	colKey
	colValue
	colTombstone
	colSegment
)

// logColumns declares them. BLOB is SQLite's word for a column that converts
// nothing. NOT NULL lets min(offset) read one record.
const logColumns = `"offset" INTEGER NOT NULL, ts_ms INTEGER NOT NULL, time TEXT, schema INTEGER NOT NULL,
	key BLOB, value BLOB, tombstone INTEGER NOT NULL, segment INTEGER NOT NULL`

// term is a comparison that narrows a scan: a column and what the value is
// compared by. EXPLAIN QUERY PLAN shows it.
type term struct{ column, op string }

// plan is how a scan goes. It travels from BestIndex to Filter as a text such as
// "offset>= key= desc".
type plan struct {
	terms []term // in the order of Filter's values
	desc  bool
}

func (p *plan) String() string {
	var b strings.Builder
	for _, t := range p.terms {
		b.WriteString(t.column)
		b.WriteString(t.op)
		b.WriteByte(' ')
	}
	if p.desc {
		b.WriteString("desc")
	}
	return strings.TrimSuffix(b.String(), " ")
}

func parsePlan(s string) (p plan) {
	for word := range strings.FieldsSeq(s) {
		if word == "desc" {
			p.desc = true
			continue
		}
		at := strings.IndexAny(word, "=<>")
		p.terms = append(p.terms, term{word[:at], word[at:]})
	}
	return p
}

func (p *plan) has(column, op string) bool {
	for _, t := range p.terms {
		if t.column == column && t.op == op {
			return true
		}
	}
	return false
}

var operators = map[vtab.ConstraintOp]string{
	vtab.OpEQ: "=", vtab.OpIS: "=", vtab.OpGT: ">", vtab.OpGE: ">=", vtab.OpLT: "<", vtab.OpLE: "<=",
}

// termOf is the term of a constraint; ok is false if it does not help.
func (s *session) termOf(c vtab.Constraint) (t term, ok bool) {
	op, known := operators[c.Op]
	if !c.Usable || !known {
		return t, false
	}
	switch c.Column {
	case colRowid, colOffset:
		return term{"offset", op}, true
	case colTSMS:
		return term{"ts_ms", op}, true
	case colTime:
		// "time IS NULL" is true of records, those of other years.
		return term{"time", op}, !s.loose && c.Op != vtab.OpIS
	case colSegment:
		return term{"segment", op}, op == "="
	case colKey:
		return term{"key", "="}, c.Op == vtab.OpEQ && s.exact
	}
	return t, false
}

// choose makes the plan for constraints and tells SQLite what it does and costs.
// LIMIT is left to SQLite, which stops stepping: a scan goes no further than it
// is stepped. No constraint is omitted, see spanOf.
func (s *session) choose(in *vtab.IndexInfo, records float64) {
	var p plan
	for i := range in.Constraints {
		t, ok := s.termOf(in.Constraints[i])
		if !ok || t.column == "key" && p.has(t.column, t.op) {
			continue // a second key is compared by SQLite alone
		}
		in.Constraints[i].ArgIndex = len(p.terms)
		p.terms = append(p.terms, t)
	}
	if len(in.OrderBy) > 0 && (in.OrderBy[0].Column == colOffset || in.OrderBy[0].Column == colRowid) {
		// No two records have the same offset: further terms do not matter.
		in.OrderByConsumed = true
		p.desc = in.OrderBy[0].Desc
	}
	in.IdxStr = p.String()
	p.estimate(in, records)
}

// leastRecords is how many a log is taken to have at least. A connection may have
// been opened when there were none, and what is good for many is good for few.
const leastRecords = 10_000

// estimate guesses how much of the log the plan visits and returns. Only how plans
// compare matters.
func (p *plan) estimate(in *vtab.IndexInfo, records float64) {
	if p.has("offset", "=") {
		in.IdxFlags |= vtab.IndexScanUnique
		in.EstimatedCost, in.EstimatedRows = 10, 1
		return
	}
	visited, returned := max(records, leastRecords), 1.0
	step := 1.0
	for i, t := range p.terms {
		switch {
		case slices.Contains(p.terms[:i], t): // one more of a kind is taken to change nothing
		case t.column == "key":
			step, returned = 0.2, returned/50 // what does not match costs little
		case t.op == "=":
			visited /= 20
		default:
			visited /= 4
		}
	}
	in.EstimatedCost = 20 + visited*step
	in.EstimatedRows = int64(max(1, visited*returned))
}

// window is what a scan reads: the offsets in lo..hi, where they can have times in
// times, and of these the records that match.
type window struct {
	offsets span
	times   span
	key     keyMatch
}

// window works out what the plan reads for these values. An empty span of offsets
// is nothing.
func (s *session) window(p *plan, values []vtab.Value) (w window, err error) {
	w = window{offsets: span{0, everything.hi}, times: everything}
	for i, t := range p.terms {
		v := values[i]
		switch t.column {
		case "offset":
			w.offsets = w.offsets.and(spanOf(t.op, v))
		case "ts_ms":
			w.times = w.times.and(spanOf(t.op, v))
		case "time":
			w.times = w.times.and(spanOfText(t.op, v))
		case "segment":
			in, err := s.segmentSpan(spanOf(t.op, v))
			if err != nil {
				return w, err
			}
			w.offsets = w.offsets.and(in)
		case "key":
			m, ok := matchOf(v)
			if !ok {
				w.offsets = nothing
			}
			w.key = m
		}
	}
	if w.times.empty() {
		w.offsets = nothing
	}
	return w, nil
}

// segmentSpan is the offsets of the segments with these bases.
func (s *session) segmentSpan(bases span) (span, error) {
	if bases.lo != bases.hi {
		if bases.empty() {
			return nothing, nil
		}
		return everything, nil
	}
	all, err := s.basesOf()
	if err != nil {
		return nothing, err
	}
	for i, base := range all {
		switch {
		case bases.lo < 0 || base != uint64(bases.lo):
		case i+1 < len(all):
			return span{bases.lo, int64(min(all[i+1]-1, maxOffset))}, nil
		default:
			return span{bases.lo, maxOffset}, nil
		}
	}
	if len(all) > 0 && bases.lo >= 0 {
		// It may be one that is gone.
		return nothing, s.goOn(uint64(bases.lo), all[0])
	}
	return nothing, nil
}
