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

// maxTransactionBytes is the size of the records that a transaction may insert, which
// are kept in memory. A batch of a log may be twice as large.
const maxTransactionBytes = 1 << 30

// config is what a data source name says.
type config struct {
	dir      string
	write    bool      // mode=rw or rwc
	create   bool      // mode=rwc
	since    time.Time // zero: from the first record on
	consumer string    // empty: from the first record on
	hold     time.Duration
	most     int64 // bytes of a transaction
}

// parseDSN takes a data source name apart. The last question mark ends the
// directory, so that one in its name can be written by adding one more.
func parseDSN(dsn string, now time.Time) (config, error) {
	c := config{dir: dsn, hold: DefaultHold, most: maxTransactionBytes}
	query := ""
	if i := strings.LastIndexByte(dsn, '?'); i >= 0 {
		c.dir, query = dsn[:i], dsn[i+1:]
	}
	if err := c.checkDir(dsn); err != nil {
		return c, err
	}
	options, err := url.ParseQuery(query)
	if err != nil {
		return c, badDSN("options %q: %v", query, err)
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

// checkDir refuses what SQLite's drivers take for something else than a directory:
// it would be created, under an odd name. A path has no scheme, nothing in it is
// escaped, and a drive of Windows has one letter.
func (c *config) checkDir(dsn string) error {
	scheme, _, isURI := strings.Cut(c.dir, ":")
	switch {
	case c.dir == "":
		return badDSN("%q names no directory", dsn)
	case strings.ContainsRune(c.dir, 0):
		return badDSN("%q has a NUL in it", dsn)
	case c.dir == ":memory:":
		return badDSN("%q is no directory; evlogtest.OpenMem makes a log in memory, for NewLogConnector", dsn)
	case isURI && len(scheme) > 1 && !strings.ContainsFunc(scheme, notInScheme):
		return badDSN("%q is a URI; give the path of the directory as it is, %q if its name begins so", dsn, "./"+c.dir)
	}
	return nil
}

func notInScheme(c rune) bool {
	return (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && !strings.ContainsRune("+-.", c)
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
		return badDSN("%q is no option (mode, since, consumer and hold are); "+
			"where the directory's name has a question mark, another one ends it", name)
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
