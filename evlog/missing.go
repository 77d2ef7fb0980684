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
// where the index says that no record has one, they are missing, unless a merge
// was under way and they stand in another segment. next is the offset after the
// last record that is there.
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
	if standsElsewhere(dir, h) {
		return lost, false
	}
	return OffsetRange{From: next, To: h.LastOffset + 1}, true
}

// standsElsewhere reports whether the last record that an index describes stands in
// another segment, after a merge of which not every step got to the disk: in the
// one below, with an empty file in the place of the one that was merged, or still
// in its own above, with the index of the file that was to hold both.
func standsElsewhere(dir vfs.Dir, h format.IndexHeader) bool {
	segments, err := allSegments(dir)
	if err != nil {
		return false
	}
	for _, offset := range []uint64{h.LastOffset, max(h.Base, 1) - 1} {
		base, ok := segments.covering(offset)
		if ok && base != h.Base && holdsRecord(dir, base, h.LastOffset, h.LastCRC) {
			return true
		}
	}
	return false
}

func holdsRecord(dir vfs.Dir, base, offset uint64, crc uint32) (found bool) {
	f, err := openSegment(dir, base)
	if err != nil {
		return false
	}
	defer f.Close()
	_, err = scanSegment(f, base, func(_ int64, h format.Header, _ []byte) error {
		found = found || h.Offset == offset && h.CRC == crc
		return nil
	})
	return err == nil && found
}
