package sqldriver

import (
	"math"
	"strconv"
	"time"

	"modernc.org/sqlite/vtab"
)

// Bounds are taken from values of any SQL type and always wide enough: SQLite
// compares each row again, by its own rules for types and collations. What cannot
// be turned into a bound is none.

// span is a closed range of integers; lo > hi is an empty one.
type span struct{ lo, hi int64 }

var (
	everything = span{math.MinInt64, math.MaxInt64}
	nothing    = span{1, 0}
)

func (s span) empty() bool { return s.lo > s.hi }

func (s span) and(o span) span { return span{max(s.lo, o.lo), min(s.hi, o.hi)} }

// spanOf returns the integers i for which "i op v" can be true.
func spanOf(op string, v vtab.Value) span {
	switch v := v.(type) {
	case nil:
		return nothing // a comparison with NULL is not true
	case int64:
		return spanOfInt(op, v)
	case float64:
		return spanOfFloat(op, v)
	case string:
		// Beside a column of integers a text that is a number is that number. SQLite
		// finds more of them than this.
		if i, err := strconv.ParseInt(v, 10, 64); err == nil {
			return spanOfInt(op, i)
		}
	}
	return everything // a blob is above all numbers
}

func spanOfInt(op string, v int64) span {
	switch op {
	case "=":
		return span{v, v}
	case ">=":
		return span{v, math.MaxInt64}
	case "<=":
		return span{math.MinInt64, v}
	case ">":
		if v == math.MaxInt64 {
			return nothing
		}
		return span{v + 1, math.MaxInt64}
	case "<":
		if v == math.MinInt64 {
			return nothing
		}
		return span{math.MinInt64, v - 1}
	}
	return everything
}

func spanOfFloat(op string, v float64) span {
	up, down := math.Ceil(v), math.Floor(v)
	switch op {
	case "=":
		if up != down {
			return nothing
		}
		return atLeast(up).and(atMost(down))
	case ">", ">=":
		return atLeast(up)
	case "<", "<=":
		return atMost(down)
	}
	return everything
}

const twoTo63 = 1 << 63 // exact as a float64, and one more than an int64 holds

func atLeast(v float64) span {
	switch {
	case v >= twoTo63:
		return nothing
	case v < -twoTo63:
		return everything
	}
	return span{int64(v), math.MaxInt64}
}

func atMost(v float64) span {
	switch {
	case v >= twoTo63:
		return everything
	case v < -twoTo63:
		return nothing
	}
	return span{math.MinInt64, int64(v)}
}

// timeLayout is the form of the column time. Its texts sort as the times do.
const timeLayout = "2006-01-02T15:04:05.000Z"

// Years that the column time can show; other times are NULL there, as SQLite's
// own functions have it.
var (
	minTextMS = time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()
	maxTextMS = time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli() - 1
)

// textTime is the column time of a record with this time.
func textTime(ms int64) vtab.Value {
	if ms < minTextMS || ms > maxTextMS {
		return nil
	}
	var b [len(timeLayout)]byte
	return string(time.UnixMilli(ms).UTC().AppendFormat(b[:0], timeLayout))
}

// timeParts are the beginnings of a text of the column time that stand for a unit
// of time each. Texts are compared from the left, so the times whose text is
// below v are at most those up to the end of the unit that v begins with, and
// likewise above. No letter but T is in them, so they sort the same with NOCASE.
var timeParts = []struct {
	layout string
	unit   time.Duration
}{
	{"2006-01-02T15:04:05.000", time.Millisecond},
	{"2006-01-02T15:04:05", time.Second},
	{"2006-01-02", 24 * time.Hour},
}

// spanOfText returns the milliseconds of the times for which "time op v" can be
// true.
func spanOfText(op string, v vtab.Value) span {
	if v == nil {
		return nothing
	}
	text, ok := v.(string)
	if !ok {
		return everything
	}
	for _, p := range timeParts {
		if len(text) < len(p.layout) {
			continue
		}
		begin := text[:len(p.layout)]
		t, err := time.Parse(p.layout, begin)
		if err != nil || t.Format(p.layout) != begin {
			continue
		}
		unit := span{t.UnixMilli(), t.Add(p.unit).UnixMilli() - 1}
		switch op {
		case ">", ">=":
			unit.hi = math.MaxInt64
		case "<", "<=":
			unit.lo = math.MinInt64
		}
		return unit
	}
	return everything
}
