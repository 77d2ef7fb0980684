package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// timeLayout is RFC 3339 with milliseconds.
const timeLayout = "2006-01-02T15:04:05.000Z07:00"

// timePrinter prints times in UTC, or with --local in the local zone.
type timePrinter struct{ local bool }

func (p timePrinter) append(dst []byte, t time.Time) []byte {
	return p.in(t).AppendFormat(dst, timeLayout)
}

func (p timePrinter) in(t time.Time) time.Time {
	if p.local {
		return t.Local()
	}
	return t.UTC()
}

// cell is the time in a table, "-" where there is none.
func (p timePrinter) cell(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return p.in(t).Format(timeLayout)
}

// json is the time in a document, null where there is none.
func (p timePrinter) json(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	s := p.in(t).Format(timeLayout)
	return &s
}

// Forms of a local time that is written out, with a date and without.
var (
	dateForms  = []string{"2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02"}
	clockForms = []string{"15:04:05", "15:04"}
)

// timeHelp is the part of a flag's help that lists them.
const timeHelp = `RFC 3339, "2026-09-20 03:00", 03:00, today, yesterday, now, -2h, @epoch or @epochms`

// parseTime reads a time as people write it; now says what it is relative to,
// and its location what local means. The result is rounded up to a
// millisecond, the first that is not before it.
func parseTime(s string, now time.Time) (time.Time, error) {
	t, err := parseExactTime(s, now)
	if err != nil {
		return t, err
	}
	if short := t.Nanosecond() % int(time.Millisecond); short > 0 {
		t = t.Add(time.Millisecond - time.Duration(short))
	}
	return t, nil
}

func parseExactTime(s string, now time.Time) (time.Time, error) {
	year, month, day := now.Date()
	loc := now.Location()
	switch {
	case s == "now":
		return now, nil
	case s == "today":
		return time.Date(year, month, day, 0, 0, 0, 0, loc), nil
	case s == "yesterday":
		return time.Date(year, month, day-1, 0, 0, 0, 0, loc), nil
	case strings.HasPrefix(s, "@"):
		return parseEpoch(s[1:])
	case strings.HasPrefix(s, "-"):
		d, err := parseDuration(s[1:])
		if err != nil {
			return time.Time{}, badTime()
		}
		return now.Add(-d), nil
	}
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return t, nil
	}
	for _, form := range dateForms {
		if t, err := time.ParseInLocation(form, s, loc); err == nil {
			return t, nil
		}
	}
	for _, form := range clockForms {
		if t, err := time.Parse(form, s); err == nil {
			return time.Date(year, month, day, t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), loc), nil
		}
	}
	return time.Time{}, badTime()
}

func badTime() error { return fmt.Errorf("not a time (%s)", timeHelp) }

// parseEpoch reads seconds since 1970, or milliseconds where "ms" follows.
// A number of seconds beyond the year 5000 is taken for milliseconds too.
func parseEpoch(s string) (time.Time, error) {
	const mostSeconds = 100_000_000_000
	digits, isMS := strings.CutSuffix(s, "ms")
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return time.Time{}, badTime()
	}
	if isMS || n >= mostSeconds || n <= -mostSeconds {
		return time.UnixMilli(n), nil
	}
	return time.Unix(n, 0), nil
}

// parseDuration reads Go's durations, with days and weeks before the other
// units: 30d, 1w2d, 1d12h. It is never negative.
func parseDuration(s string) (time.Duration, error) {
	bad := errors.New("not a duration (such as 90s, 2h30m, 30d, 2w)")
	var sum time.Duration
	rest := s
	for _, unit := range []struct {
		name string
		span time.Duration
	}{{"w", 7 * 24 * time.Hour}, {"d", 24 * time.Hour}} {
		number, after, found := strings.Cut(rest, unit.name)
		if !found {
			continue
		}
		n, err := strconv.ParseUint(number, 10, 32)
		if err != nil || time.Duration(n) > (math.MaxInt64-sum)/unit.span {
			return 0, bad
		}
		sum += time.Duration(n) * unit.span
		rest = after
	}
	if rest == "" && s != "" {
		return sum, nil
	}
	d, err := time.ParseDuration(rest)
	if err != nil || strings.HasPrefix(rest, "-") || strings.HasPrefix(rest, "+") || d > math.MaxInt64-sum {
		return 0, bad
	}
	return sum + d, nil
}

// wholeSeconds rounds up: after that long it is over.
func wholeSeconds(d time.Duration) time.Duration {
	return (d + time.Second - 1).Truncate(time.Second)
}
