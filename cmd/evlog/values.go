package main

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/evlog-go/evlog/evlog"
)

// The types here are flag values (pflag.Value). Each knows whether it was set:
// the zero value of most is a meaning of its own.

// countValue is a number of records.
type countValue struct {
	n   uint64
	set bool
}

func (v *countValue) Type() string { return "N" }

func (v *countValue) String() string {
	if !v.set {
		return ""
	}
	return strconv.FormatUint(v.n, 10)
}

func (v *countValue) Set(s string) (err error) {
	if v.n, err = strconv.ParseUint(s, 10, 64); err != nil {
		return fmt.Errorf("not a number from 0 up")
	}
	v.set = true
	return nil
}

// offsetValue is an offset; it differs from a count only in its name.
type offsetValue struct{ countValue }

func (v *offsetValue) Type() string { return "OFFSET" }

// parseOffset reads an offset given as an argument.
func parseOffset(s string) (uint64, error) {
	var v offsetValue
	if err := v.Set(s); err != nil {
		return 0, fmt.Errorf("%q is no offset", s)
	}
	return v.n, nil
}

// originValue is kcat's -o: beginning, end, an offset, or so many from the end.
type originValue struct {
	set      bool
	end      bool
	offset   uint64
	hasStart bool   // offset counts
	last     uint64 // with neither end nor hasStart, and not 0
	text     string
}

func (v *originValue) Type() string   { return "WHERE" }
func (v *originValue) String() string { return v.text }

func (v *originValue) Set(s string) (err error) {
	*v = originValue{set: true, text: s}
	switch {
	case s == "beginning":
	case s == "end":
		v.end = true
	case strings.HasPrefix(s, "-"):
		v.last, err = strconv.ParseUint(s[1:], 10, 64)
		v.end = v.last == 0
	default:
		v.hasStart = true
		v.offset, err = strconv.ParseUint(s, 10, 64)
	}
	if err != nil {
		return fmt.Errorf("not beginning, end, N or -N")
	}
	return nil
}

// timeValue is a time as people write it.
type timeValue struct {
	now  func() time.Time
	t    time.Time
	set  bool
	text string
}

func (v *timeValue) Type() string   { return "TIME" }
func (v *timeValue) String() string { return v.text }

func (v *timeValue) Set(s string) (err error) {
	v.t, err = parseTime(s, v.now())
	v.set, v.text = err == nil, s
	return err
}

// schemaValue is a schema id.
type schemaValue struct {
	id  uint16
	set bool
}

func (v *schemaValue) Type() string { return "N" }

func (v *schemaValue) String() string {
	if !v.set {
		return ""
	}
	return strconv.Itoa(int(v.id))
}

func (v *schemaValue) Set(s string) error {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil {
		return fmt.Errorf("not a number from 0 to 65535")
	}
	v.id, v.set = uint16(n), true
	return nil
}

// regexpValue is a regular expression.
type regexpValue struct{ re *regexp.Regexp }

func (v *regexpValue) Type() string { return "REGEXP" }

func (v *regexpValue) String() string {
	if v.re == nil {
		return ""
	}
	return v.re.String()
}

func (v *regexpValue) Set(s string) (err error) {
	v.re, err = regexp.Compile(s)
	return err
}

// bytesValue is text taken as bytes. An empty one counts too.
type bytesValue struct {
	b    []byte
	set  bool
	name string
}

func (v *bytesValue) Type() string   { return v.name }
func (v *bytesValue) String() string { return string(v.b) }

func (v *bytesValue) Set(s string) error {
	v.b, v.set = []byte(s), true
	return nil
}

// sizeValue is a number of bytes, such as 64M.
type sizeValue struct {
	n    int64
	text string
}

func (v *sizeValue) Type() string   { return "SIZE" }
func (v *sizeValue) String() string { return v.text }

func (v *sizeValue) Set(s string) error {
	n, err := parseSize(s)
	if err == nil && n == 0 {
		err = fmt.Errorf("size is 0")
	}
	v.n, v.text = n, s
	return err
}

// parseSize reads bytes: a number, alone or with a unit. K, KiB, M, MiB and so
// on are powers of 1024, KB and MB are powers of 1000.
func parseSize(s string) (int64, error) {
	digits := strings.TrimRight(s, "kKmMgGtTiIbB")
	n, err := strconv.ParseInt(digits, 10, 64)
	unit, known := sizeUnits[strings.ToLower(s[len(digits):])]
	if err != nil || !known || n < 0 || n > math.MaxInt64/unit {
		return 0, errors.New("not a size (such as 4096, 64M, 1GiB)")
	}
	return n * unit, nil
}

var sizeUnits = map[string]int64{
	"": 1, "b": 1,
	"k": 1 << 10, "kib": 1 << 10, "kb": 1e3,
	"m": 1 << 20, "mib": 1 << 20, "mb": 1e6,
	"g": 1 << 30, "gib": 1 << 30, "gb": 1e9,
	"t": 1 << 40, "tib": 1 << 40, "tb": 1e12,
}

// syncValue is a sync policy: always, interval=DURATION, flush.
type syncValue struct {
	policy   evlog.SyncPolicy
	interval time.Duration
	text     string
}

func (v *syncValue) Type() string   { return "POLICY" }
func (v *syncValue) String() string { return v.text }

func (v *syncValue) Set(s string) error {
	name, span, hasSpan := strings.Cut(s, "=")
	*v = syncValue{text: s}
	switch {
	case name == "always" && !hasSpan:
		v.policy = evlog.SyncAlways
	case name == "flush" && !hasSpan:
		v.policy = evlog.SyncFlush
	case name == "interval" && hasSpan:
		v.policy = evlog.SyncInterval
		d, err := parseDuration(span)
		if err != nil {
			return err
		}
		if d <= 0 || d%time.Millisecond != 0 {
			return fmt.Errorf("the interval is not whole milliseconds above 0")
		}
		v.interval = d
	default:
		return fmt.Errorf("not always, interval=DURATION or flush")
	}
	return nil
}

// limit is the count as an upper limit, no limit where it was not set.
func (v *countValue) limit() uint64 {
	if !v.set {
		return math.MaxUint64
	}
	return v.n
}
