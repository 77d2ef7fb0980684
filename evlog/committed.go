package evlog

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/evlog-go/evlog/internal/format"
	"github.com/evlog-go/evlog/internal/vfs"
)

// consumersVersion is the version of consumers.json that this package reads.
const consumersVersion = 1

// committedOffsets is what the log itself reads of consumers.json. Package
// cursor owns the file.
type committedOffsets struct {
	Version   int                                   `json:"version"`
	LogID     string                                `json:"log_id"`
	Consumers map[string]committedOffset            `json:"consumers"`
	Others    map[string]map[string]committedOffset `json:"other_logs"`
}

type committedOffset struct {
	Next uint64 `json:"next_offset"`
}

// readCommitted reads consumers.json. fs.ErrNotExist: there is none. A damaged
// file is a *CorruptError: what consumers have seen is not known.
func readCommitted(dir vfs.Dir) (c committedOffsets, err error) {
	b, err := readFile(dir, format.ConsumersName, maxMetaBytes)
	if err != nil {
		return c, err
	}
	if err := json.Unmarshal(b, &c); err != nil {
		bad := &CorruptError{Path: pathOf(dir, format.ConsumersName), Err: err}
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			bad.Pos = syntax.Offset // as package cursor tells it
		}
		return c, bad
	}
	if c.Version > consumersVersion {
		return c, fmt.Errorf("%s: version %d: %w", pathOf(dir, format.ConsumersName), c.Version, ErrVersion)
	}
	return c, nil
}

// of returns the cursors of the log with this id. foreign says that the file is
// bound to another log, whose consumers are in it.
func (c *committedOffsets) of(id string) (ours map[string]committedOffset, foreign bool) {
	if c.LogID == id {
		return c.Consumers, false
	}
	return c.Others[id], len(c.Consumers) > 0
}

// maxCommitted returns the highest next_offset that consumers of the log m have
// in consumers.json, 0 where there is none, or the error of reading it.
//
// Cursors that were made for another log tell nothing about this one. Where
// log.json is lost, m is nil, nothing tells them apart and all of them count: an
// offset too high leaves a hole, one too low would be given out twice (I3).
func maxCommitted(dir vfs.Dir, m *meta) (uint64, error) {
	c, err := readCommitted(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return c.highest(m), nil
}

func (c *committedOffsets) highest(m *meta) (highest uint64) {
	ours := func(id string) bool { return m == nil || id == "" || id == m.ID }
	take := func(id string, consumers map[string]committedOffset) {
		for _, at := range consumers {
			if ours(id) {
				highest = max(highest, at.Next)
			}
		}
	}
	take(c.LogID, c.Consumers)
	for id, consumers := range c.Others {
		take(id, consumers)
	}
	return highest
}
