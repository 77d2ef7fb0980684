package sqldriver

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/evlog-go/evlog/cursor"
	"github.com/evlog-go/evlog/evlog"
)

// DefaultHold is how long a transaction that inserts may keep the append gate.
const DefaultHold = 5 * time.Second

// config is what a data source name says.
type config struct {
	dir      string
	write    bool      // mode=rw or rwc
	create   bool      // mode=rwc
	since    time.Time // zero: from the first record on
	consumer string    // empty: from the first record on
	hold     time.Duration
}

// parseDSN takes a data source name apart. The last question mark ends the
// directory, so that one in its name can be written by adding one more.
func parseDSN(dsn string, now time.Time) (config, error) {
	c := config{dir: dsn, hold: DefaultHold}
	query := ""
	if i := strings.LastIndexByte(dsn, '?'); i >= 0 {
		c.dir, query = dsn[:i], dsn[i+1:]
	}
	if c.dir == "" {
		return c, badDSN("%q names no directory", dsn)
	}
	options, err := url.ParseQuery(query)
	if err != nil {
		return c, badDSN("%q: %v", dsn, err)
	}
	for name, values := range options {
		if len(values) > 1 {
			return c, badDSN("%s is given %d times", name, len(values))
		}
		if err := c.set(name, values[0], now); err != nil {
			return c, err
		}
	}
	return c, nil
}

func (c *config) set(name, value string, now time.Time) (err error) {
	switch name {
	case "mode":
		switch value {
		case "ro":
		case "rw":
			c.write = true
		case "rwc":
			c.write, c.create = true, true
		default:
			return badDSN("mode is %q, not ro, rw or rwc", value)
		}
	case "since":
		if c.since, err = parseSince(value, now); err != nil {
			return err
		}
	case "consumer":
		if err := cursor.CheckName(value); err != nil {
			return badDSN("consumer: %v", err)
		}
		c.consumer = value
	case "hold":
		if c.hold, err = time.ParseDuration(value); err != nil || c.hold <= 0 {
			return badDSN("hold is %q, not a duration above 0", value)
		}
	default:
		return badDSN("%q is no option (mode, since, consumer and hold are)", name)
	}
	return nil
}

func parseSince(value string, now time.Time) (time.Time, error) {
	if ago, ok := strings.CutPrefix(value, "-"); ok {
		if d, err := time.ParseDuration(ago); err == nil && d >= 0 {
			return now.Add(-d), nil
		}
	}
	// The plus sign of a zone is a space where it was not escaped.
	written := strings.ReplaceAll(value, " ", "+")
	for _, layout := range []string{time.RFC3339Nano, time.DateOnly} {
		if t, err := time.Parse(layout, written); err == nil {
			return t, nil
		}
	}
	return time.Time{}, badDSN("since is %q, not a time (RFC 3339, 2026-09-20, or -2h for two hours ago)", value)
}

func badDSN(format string, args ...any) error {
	return fmt.Errorf("sqldriver: data source name: "+format+": %w", append(args, evlog.ErrBadOptions)...)
}
