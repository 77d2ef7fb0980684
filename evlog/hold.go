package evlog

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/evlog-go/evlog/internal/format"
	"github.com/evlog-go/evlog/internal/vfs"
)

// HoldForAll in Options.HoldFor stands for every consumer in consumers.json.
const HoldForAll = "*"

// Hold is a consumer that retention waits for: a segment stays until Next has
// passed its end.
type Hold struct {
	// Name is the consumer's. Empty: it is not known whose cursors there are, and
	// Err says why.
	Name string
	// Next is the first offset that it has not finished; 0 holds everything.
	Next uint64
	// Err is why everything is held: the consumer has never committed
	// (ErrNotFound), or consumers.json cannot be used. Nil otherwise.
	Err error
	// Segments and Bytes are what is due for removal and stays for it.
	Segments int
	Bytes    int64
}

// errForeignConsumers: consumers.json was made for another log. It may have been
// put there by mistake in place of this log's.
var errForeignConsumers = errors.New("consumers.json belongs to another log")

// holdsOf returns where the consumers stand that retention waits for, by name.
// What is not known holds everything: a file that is damaged, cannot be read or
// belongs to another log, and a consumer that never committed. Cursors that were
// made for other logs count for nothing.
func holdsOf(dir vfs.Dir, id string, names []string) (holds []Hold) {
	if len(names) == 0 {
		return nil
	}
	c, err := readCommitted(dir)
	if err == nil && (c.Version < 1 || c.LogID == "") {
		err = &CorruptError{Path: pathOf(dir, format.ConsumersName), Err: errors.New("no version or no log id")}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return []Hold{{Err: err}}
	}
	ours, foreign := c.of(id)
	all := slices.Contains(names, HoldForAll)
	if all && foreign {
		holds = append(holds, Hold{Err: errForeignConsumers})
	}
	for name, at := range ours {
		if all || slices.Contains(names, name) {
			holds = append(holds, Hold{Name: name, Next: at.Next})
		}
	}
	for _, name := range names {
		if _, ok := ours[name]; !ok && name != HoldForAll {
			holds = append(holds, Hold{Name: name, Err: fmt.Errorf("it has never committed: %w", ErrNotFound)})
		}
	}
	slices.SortFunc(holds, func(a, b Hold) int { return strings.Compare(a.Name, b.Name) })
	return holds
}

// holding are those who have not finished a segment that ends at end.
func holding(holds []Hold, end uint64) (by []Hold) {
	for _, h := range holds {
		if h.Next < end {
			by = append(by, h)
		}
	}
	return by
}

// blocking are those for whom something stays, with how much.
func blocking(holds []Hold, held []DueSegment) (by []Hold) {
	for _, h := range holds {
		for _, s := range held {
			if h.Next < s.End {
				h.Segments++
				h.Bytes += s.Bytes
			}
		}
		if h.Segments > 0 {
			by = append(by, h)
		}
	}
	return by
}

func namesOf(holds []Hold) (names []string) {
	for _, h := range holds {
		if h.Name != "" {
			names = append(names, h.Name)
		} else {
			names = append(names, h.Err.Error())
		}
	}
	return names
}
