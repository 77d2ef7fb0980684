package format

import (
	"encoding/binary"
	"errors"
	"io"
)

// findWindow is how much FindRecord has in memory at once.
const findWindow = 256 << 10

// FindRecord looks for the first valid record with an offset of lowest or more
// that begins in [from, size), at any byte. It is the search behind damage, and
// must end in reasonable time on bytes made to delay it: it takes checksums of
// at most 64 MiB and eight times the bytes searched. When that is used up it
// returns the candidate that it could not check as found: to keep bytes for
// nothing is better than to lose a record.
func FindRecord(r io.ReaderAt, from, size int64, lowest uint64) (pos int64, found bool, err error) {
	budget := 64<<20 + 8*(size-from)
	buf := make([]byte, findWindow)
	body := make([]byte, findWindow)
	for start := from; size-start >= HeaderSize; {
		b := buf[:min(int64(len(buf)), size-start)]
		if err := readFull(r, b, start); err != nil {
			return 0, false, err
		}
		i := 0
		for ; i+HeaderSize <= len(b); i++ {
			if binary.LittleEndian.Uint32(b[i:]) == 0 {
				continue
			}
			h := ParseHeader(b[i:])
			at := start + int64(i)
			if h.Check(size-at, lowest) != nil {
				continue
			}
			if budget -= h.Size(); budget < 0 {
				return at, true, nil
			}
			ok, err := checkBody(r, h, at, body)
			if err != nil {
				return 0, false, err
			}
			if ok {
				return at, true, nil
			}
		}
		start += int64(i)
	}
	return 0, false, nil
}

// checkBody tests a record's checksum, piece by piece.
func checkBody(r io.ReaderAt, h Header, pos int64, buf []byte) (bool, error) {
	var crc uint32
	for at, end := pos+crcEnd, pos+h.Size(); at < end; {
		b := buf[:min(int64(len(buf)), end-at)]
		if err := readFull(r, b, at); err != nil {
			return false, err
		}
		crc = UpdateChecksum(crc, b)
		at += int64(len(b))
	}
	return crc == h.CRC, nil
}

func readFull(r io.ReaderAt, b []byte, pos int64) error {
	n, err := r.ReadAt(b, pos)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
