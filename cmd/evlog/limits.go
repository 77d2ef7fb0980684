package main

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/evlog-go/evlog/evlog"
)

// limitOff turns a stored limit off.
const limitOff = "none"

// spanLimit, sizeLimit and countLimit are flags for limits that a log may have
// stored: 0 keeps the stored one, -1 is none.
type spanLimit struct {
	d    time.Duration
	text string
}

func (v *spanLimit) Type() string   { return "DURATION" }
func (v *spanLimit) String() string { return v.text }

func (v *spanLimit) Set(s string) (err error) {
	v.text = s
	if s == limitOff {
		v.d = -time.Millisecond
		return nil
	}
	if v.d, err = parseDuration(s); err != nil {
		return err
	}
	if v.d <= 0 || v.d%time.Millisecond != 0 {
		return fmt.Errorf("not whole milliseconds above 0")
	}
	return nil
}

type sizeLimit struct{ sizeValue }

func (v *sizeLimit) Set(s string) error {
	if s == limitOff {
		v.n, v.text = -1, s
		return nil
	}
	return v.sizeValue.Set(s)
}

type countLimit struct {
	n    int64
	text string
}

func (v *countLimit) Type() string   { return "N" }
func (v *countLimit) String() string { return v.text }

func (v *countLimit) Set(s string) error {
	v.n, v.text = -1, s
	if s == limitOff {
		return nil
	}
	var c countValue
	if err := c.Set(s); err != nil || c.n == 0 || c.n > math.MaxInt64 {
		return fmt.Errorf("not a number from 1 up")
	}
	v.n = int64(c.n)
	return nil
}

// retentionFlags are what append stores about retention.
type retentionFlags struct {
	maxAge, holdAge     spanLimit
	maxBytes, holdBytes sizeLimit
	maxRecords          countLimit
	holdFor             []string
}

func (f *retentionFlags) register(flags *pflag.FlagSet) {
	flags.Var(&f.maxAge, "max-age", "remove segments that are older, such as 30d")
	flags.Var(&f.maxBytes, "max-bytes", "remove segments while all files take more, such as 10GiB")
	flags.Var(&f.maxRecords, "max-records", "keep this many of the newest records")
	flags.StringArrayVar(&f.holdFor, "hold-for", nil, "remove nothing that this consumer (`NAME`, \"*\" for all) has not finished; may be repeated")
	flags.Var(&f.holdBytes, "hold-bytes", "hold while all files take no more")
	flags.Var(&f.holdAge, "hold-age", "hold what is not older")
}

// options puts the flags into o.
func (f *retentionFlags) options(o *evlog.Options) {
	o.MaxAge, o.MaxBytes, o.MaxRecords = f.maxAge.d, f.maxBytes.n, f.maxRecords.n
	o.HoldFor, o.HoldBytes, o.HoldAge = f.holdFor, f.holdBytes.n, f.holdAge.d
	if len(f.holdFor) == 1 && f.holdFor[0] == limitOff {
		o.HoldFor = []string{}
	}
}

// retentionText is the stored limits in words.
func retentionText(c evlog.StoredConfig) string {
	var limits []string
	if c.MaxAge > 0 {
		limits = append(limits, "age "+c.MaxAge.String())
	}
	if c.MaxBytes > 0 {
		limits = append(limits, plural(c.MaxBytes, "byte"))
	}
	if c.MaxRecords > 0 {
		limits = append(limits, plural(c.MaxRecords, "record"))
	}
	if len(limits) == 0 {
		return "keeps everything"
	}
	return strings.Join(limits, ", ")
}

// holdForText is for whom retention waits, and how long.
func holdForText(c evlog.StoredConfig) string {
	names := make([]string, len(c.HoldFor))
	for i, name := range c.HoldFor {
		names[i] = printable(name)
		if name == evlog.HoldForAll {
			names[i] = "every consumer"
		}
	}
	var bounds []string
	if c.HoldBytes > 0 {
		bounds = append(bounds, plural(c.HoldBytes, "byte"))
	}
	if c.HoldAge > 0 {
		bounds = append(bounds, "age "+c.HoldAge.String())
	}
	return fmt.Sprintf("%s, within %s", strings.Join(names, ", "), strings.Join(bounds, ", "))
}

// flagsError is a wrong option in the words of the command line.
type flagsError struct{ error }

func (e flagsError) Unwrap() error { return e.error }

func (e flagsError) Error() string { return optionFlags.Replace(e.error.Error()) }

// optionFlags has the flags that options are set by.
var optionFlags = strings.NewReplacer(
	"evlog: options: ", "",
	"SegmentBytes", "--segment-bytes", "SyncInterval", "--sync",
	"MaxAge", "--max-age", "MaxBytes", "--max-bytes", "MaxRecords", "--max-records",
	"HoldFor", "--hold-for", "HoldBytes", "--hold-bytes", "HoldAge", "--hold-age",
	": "+evlog.ErrBadOptions.Error(), "",
)
