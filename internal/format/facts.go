package format

import "encoding/binary"

// Values of IndexHeader.CleanedMS that are no time.
const (
	// NotCleaned: compaction has not cleaned the segment.
	NotCleaned = 0
	// NotVouched is NotCleaned in an index that was made from the .log alone. Its
	// maker cannot tell whether the segment was ever replaced, and so not whether
	// the name stands for this file on the disk too.
	NotVouched = -1
	// Refused is NotCleaned of a segment in which compaction met damage.
	Refused = -2
)

// SetIndexFacts puts ClosedMS, CleanedMS and End of h, which are in no .log, into
// the bytes of an index.
func SetIndexFacts(b []byte, h IndexHeader) error {
	if _, err := ParseIndexHeader(b); err != nil {
		return err
	}
	le := binary.LittleEndian
	le.PutUint64(b[88:], uint64(h.ClosedMS))
	le.PutUint64(b[96:], uint64(h.CleanedMS))
	le.PutUint64(b[104:], h.End)
	le.PutUint32(b[4:], Checksum(b[8:IndexHeaderSize]))
	return nil
}
