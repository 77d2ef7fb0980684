package evlog

import (
	"errors"
	"os"

	"github.com/evlog-go/evlog/internal/format"
	"github.com/evlog-go/evlog/internal/vfs"
)

// errCutAtRecord: a closed segment ends with a valid record and was longer.
var errCutAtRecord = errors.New("the segment was cut at the end of a record")

// missingAtEnd returns the offsets that a closed segment has lost at its end,
// though all that is left of it is valid: its index describes a longer file. So it
// does where compaction has replaced the file and died before it replaced the
// index, and a segment that has lost its last records by compaction may be the
// beginning of what it was. But compaction removes only records that have a key:
// where the index says that no record has one, they are missing. next is the
// offset after the last record that is there.
func missingAtEnd(dir vfs.Dir, base uint64, log vfs.File, next uint64) (lost OffsetRange, ok bool) {
	x, err := dir.OpenFile(format.IndexName(base), os.O_RDONLY, 0)
	if err != nil {
		return lost, false
	}
	defer x.Close()
	h, err := readIndexHeader(x)
	if err != nil || h.Base != base || !h.Filter.There || h.Filter.Blocks > 0 {
		return lost, false
	}
	info, err := log.Stat()
	if err != nil || info.Size() >= h.LogSize || h.LastOffset < next {
		return lost, false
	}
	if info.Size() > 0 && matchRecord(log, h.FirstPos, info.Size(), h.FirstOffset, h.FirstCRC, false) != nil {
		return lost, false // another file's
	}
	return OffsetRange{From: next, To: h.LastOffset + 1}, true
}
