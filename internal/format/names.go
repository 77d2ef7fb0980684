package format

import (
	"fmt"
	"strconv"
	"strings"
)

// Names of the files of a log.
const (
	DurableName   = "DURABLE"
	MetaName      = "log.json"
	LockName      = "LOCK"
	ConsumersName = "consumers.json"
	ConsumersLock = "consumers.lock"
	LogSuffix     = ".log"
	IndexSuffix   = ".idx"
	TempSuffix    = ".tmp"
	TornSuffix    = ".torn"
	baseDigits    = 20
)

// SegmentName is the name of the segment with this base offset.
func SegmentName(base uint64) string { return baseName(base, LogSuffix) }

// IndexName is the name of that segment's index.
func IndexName(base uint64) string { return baseName(base, IndexSuffix) }

// baseName is the offset in 20 digits and the suffix. A look-up makes a name or two
// for each segment.
func baseName(base uint64, suffix string) string {
	var b [baseDigits + 8]byte
	for i := baseDigits - 1; i >= 0; i-- {
		b[i] = byte('0' + base%10)
		base /= 10
	}
	return string(append(b[:baseDigits], suffix...))
}

// TornName is the name that the n-th piece cut off at pos is kept under.
func TornName(base uint64, pos int64, n int) string {
	return fmt.Sprintf("%020d.%d.%d%s", base, pos, n, TornSuffix)
}

// ParseSegmentName returns the base offset in a segment's name.
func ParseSegmentName(name string) (base uint64, ok bool) { return parseBase(name, LogSuffix) }

// ParseIndexName returns the base offset in an index's name.
func ParseIndexName(name string) (base uint64, ok bool) { return parseBase(name, IndexSuffix) }

func parseBase(name, suffix string) (uint64, bool) {
	digits, ok := strings.CutSuffix(name, suffix)
	if !ok || len(digits) != baseDigits {
		return 0, false
	}
	for i := range len(digits) {
		if digits[i] < '0' || digits[i] > '9' {
			return 0, false
		}
	}
	base, err := strconv.ParseUint(digits, 10, 64)
	return base, err == nil
}
