package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// stamp says when a change was made and by whom: the time of a hybrid logical
// clock and the peer's name, so that no two changes have the same one. Stamps
// are ordered, and a change that was made in knowledge of another one has the
// higher stamp, whatever the wall clocks of the two peers say.
type stamp struct {
	ms   int64  // wall clock, milliseconds since 1970
	n    uint16 // counts what the wall clock does not tell apart
	peer string
}

// maxMS is the highest time that a stamp's text has room for, in the year 2286.
const maxMS = 9_999_999_999_999

// String is a text that sorts as the stamp does, so that SQL can compare it.
func (s stamp) String() string { return fmt.Sprintf("%013d.%04x.%s", s.ms, s.n, s.peer) }

// MarshalText implements encoding.TextMarshaler.
func (s stamp) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

var errStamp = errors.New("not a stamp")

// UnmarshalText reads what String wrote, and nothing else.
func (s *stamp) UnmarshalText(text []byte) error {
	part := strings.SplitN(string(text), ".", 3)
	if len(part) != 3 {
		return fmt.Errorf("%w: %q", errStamp, text)
	}
	ms, err1 := strconv.ParseInt(part[0], 10, 64)
	n, err2 := strconv.ParseUint(part[1], 16, 16)
	read := stamp{ms, uint16(n), part[2]}
	if err1 != nil || err2 != nil || ms < 0 || read.peer == "" || read.String() != string(text) {
		return fmt.Errorf("%w: %q", errStamp, text)
	}
	*s = read
	return nil
}

// compare is -1, 0 or 1: by time, and between equal times by name.
func (s stamp) compare(o stamp) int {
	return cmp.Or(cmp.Compare(s.ms, o.ms), cmp.Compare(s.n, o.n), cmp.Compare(s.peer, o.peer))
}

// maxAhead is how far ahead of this peer's wall clock a stamp may be. Without a
// bound one peer whose clock is wrong by a century would win every conflict
// until then, and pull the clocks of all others along.
const maxAhead = 10 * time.Minute

// errAhead: a stamp lies too far in the future. Nothing was changed; it will be
// taken when the time has come, or the clock that is wrong was set right.
var errAhead = errors.New("its clock is too far ahead")

// clock is a hybrid logical clock. It holds the highest time that it has given
// out or seen, and follows the wall clock whenever that is higher. It belongs to
// one transaction: notes stores it with what it was used for.
type clock struct {
	ms int64
	n  uint16
}

// tick gives the time of a new change, above every one before.
func (c *clock) tick(now time.Time) (ms int64, n uint16) {
	switch wall := min(max(now.UnixMilli(), 0), maxMS); {
	case wall > c.ms:
		c.ms, c.n = wall, 0
	case c.n < math.MaxUint16:
		c.n++
	default: // 65,536 changes while the wall clock stood still or went back
		c.ms, c.n = c.ms+1, 0
	}
	return c.ms, c.n
}

// see takes note of a foreign stamp: what this peer does next is above it.
func (c *clock) see(s stamp, now time.Time) error {
	if ahead := time.UnixMilli(s.ms).Sub(now); ahead > maxAhead {
		return fmt.Errorf("%w: %s, by %s", errAhead, s, ahead.Round(time.Second))
	}
	if cmp.Or(cmp.Compare(s.ms, c.ms), cmp.Compare(s.n, c.n)) > 0 {
		c.ms, c.n = s.ms, s.n
	}
	return nil
}
