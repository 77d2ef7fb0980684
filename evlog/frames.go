package evlog

import (
	"errors"
	"io"
	"runtime"
	"sync"

	"github.com/evlog-go/evlog/internal/format"
	"github.com/evlog-go/evlog/internal/vfs"
)

const (
	// scanBytes is how much a sequential reader takes from the file at once.
	scanBytes = 256 << 10
	// checkBytes is how much of that is checked at once: it is still in the
	// processor's nearest cache when the records are used.
	checkBytes = 16 << 10
	// largeRecord is the size from which a record's checksum is tested piece by
	// piece before memory is taken for the whole: a length field on a damaged
	// disk must not decide how much memory a reader uses (I10).
	largeRecord = 1 << 20
)

// frames reads the records of one segment one after the other and checks each.
// It belongs to one goroutine.
type frames struct {
	f      vfs.File
	pos    int64  // of the next record
	limit  int64  // size of the file; a record must end at or before it
	lowest uint64 // lowest offset that may come next
	ahead  int64  // bytes worth reading from pos on; 0 is no opinion
	seen   uint64 // records returned
	brief  bool   // of a large record, return the header and the key alone

	buf        []byte // scratch; unread bytes of the file from pos on are buf[start:end]
	start, end int
	pooled     *[]byte // what buf came from, to be given back
	fills      int     // reads of the file since it was last set to 0

	still  int64      // up to here bytes do not change any more; 0: not known, do not read ahead
	streak int64      // bytes that run has read one after the other
	tried  int64      // where reading ahead was begun last, plus 1
	second *readAhead // nil: there is none
}

// newFrames reads f from pos on, where no offset below lowest may stand.
func newFrames(f vfs.File, pos, limit int64, lowest uint64) frames {
	return frames{f: f, pos: pos, limit: limit, lowest: lowest}
}

// next returns the next record; both results are valid until the call after.
// At the end of the file the error is io.EOF, for bytes that are no valid
// record one of package format's, and otherwise the file system's. After an
// error the position is unchanged.
func (s *frames) next() (format.Header, []byte, error) {
	left := s.limit - s.pos
	if left <= 0 {
		return format.Header{}, nil, io.EOF
	}
	if left < format.HeaderSize {
		return format.Header{}, nil, format.ErrShort
	}
	if s.end-s.start < format.HeaderSize {
		if err := s.fill(format.HeaderSize); err != nil {
			return format.Header{}, nil, err
		}
	}
	h := format.ParseHeader(s.buf[s.start:s.end])
	if err := h.Check(left, s.lowest); err != nil {
		return h, nil, err
	}
	size := h.Size()
	if int64(s.end-s.start) < size {
		if size > largeRecord {
			return s.nextLarge(h)
		}
		if err := s.fill(int(size)); err != nil {
			return h, nil, err
		}
	}
	rec := s.buf[s.start : s.start+int(size) : s.start+int(size)]
	if err := h.CheckBody(rec); err != nil {
		return h, nil, err
	}
	s.start += int(size)
	s.pos += size
	s.lowest = h.Offset + 1
	s.seen++
	return h, rec, nil
}

// run returns the next few records, back to back and each of them checked, valid
// until the next call. There is at least one, or an error as from next. A large
// one comes alone, and if brief is set, without its value. seen does not count
// them: that is for who looks at them.
func (s *frames) run() ([]byte, error) {
	if s.second != nil {
		if p, ok := s.second.next(); ok {
			s.pos += int64(p.size)
			s.lowest = p.lowest
			return (*p.buf)[:p.size:p.size], nil
		}
		s.endAhead()
	}
	from := s.start
	if !s.more() {
		if s.beginAhead() {
			return s.run()
		}
		_, rec, err := s.next()
		if err != nil {
			return nil, err
		}
		s.seen--
		if s.end == 0 {
			return rec, nil // a large one, which was never in the buffer
		}
		from = s.start - len(rec)
		s.more()
	}
	s.streak += int64(s.start - from)
	return s.buf[from:s.start:s.start], nil
}

// beginAhead begins to read ahead, in a scan that is long and not near its end.
func (s *frames) beginAhead() bool {
	left := s.still - s.pos
	if s.streak < aheadAfter || left <= aheadAfter/4 || s.tried == s.pos+1 || runtime.GOMAXPROCS(0) == 1 {
		return false
	}
	s.release() // what it holds is read again
	s.tried = s.pos + 1
	s.second = newReadAhead(s.f, s.pos, s.still, s.lowest)
	return true
}

// endAhead ends reading ahead. Where it did not get to the end, something is
// there that it cannot do, and it is not tried again soon.
func (s *frames) endAhead() {
	if s.second == nil {
		return
	}
	used := s.second.stop()
	s.second = nil
	if used != nil { // what it holds was handed out
		s.release()
		s.buf, s.pooled = *used, used
	}
	if s.pos < s.still {
		s.streak = 0
	}
}

// cutRecord cuts the first record off a run. A large one may come without its
// value.
func cutRecord(run []byte) (h format.Header, rec, rest []byte) {
	h = format.ParseHeader(run)
	n := min(h.Size(), int64(len(run)))
	return h, run[:n:n], run[n:]
}

// more goes over valid records that are whole in the buffer, and reports whether
// there are any.
func (s *frames) more() bool {
	n, lowest := format.Run(s.buf[s.start:min(s.end, s.start+checkBytes)], s.lowest)
	s.start += n
	s.pos += int64(n)
	s.lowest = lowest
	return n > 0
}

// nextLarge reads a record that is too large for the buffer.
func (s *frames) nextLarge(h format.Header) (format.Header, []byte, error) {
	if err := s.checkLarge(h); err != nil {
		return h, nil, err
	}
	s.fills += 2 // what the buffer held is lost
	size := h.Size()
	if s.brief {
		size = format.HeaderSize + int64(h.KeyLen)
	}
	rec := make([]byte, size)
	if err := readFull(s.f, rec, s.pos); err != nil {
		return h, nil, err
	}
	if !s.brief {
		if err := h.CheckBody(rec); err != nil {
			return h, nil, err
		}
	}
	s.drop()
	s.pos += h.Size()
	s.lowest = h.Offset + 1
	s.seen++
	return h, rec, nil
}

func (s *frames) checkLarge(h format.Header) error {
	s.grow(scanBytes)
	s.drop()
	const crcEnd = 8
	var crc uint32
	for pos, end := s.pos+crcEnd, s.pos+h.Size(); pos < end; {
		b := s.buf[:min(int64(len(s.buf)), end-pos)]
		if err := readFull(s.f, b, pos); err != nil {
			return err
		}
		crc = format.UpdateChecksum(crc, b)
		pos += int64(len(b))
	}
	if crc != h.CRC {
		return format.ErrCRC
	}
	return nil
}

// fill brings at least need bytes into the buffer; they lie inside the limit.
func (s *frames) fill(need int) error {
	want := scanBytes
	if s.ahead > 0 && s.ahead < scanBytes {
		want = int(s.ahead)
	}
	want = max(want, need)
	if left := s.limit - s.pos; int64(want) > left {
		want = int(left)
	}
	if len(s.buf)-s.start < want {
		s.makeRoom(want)
	}
	s.fills++
	err := readFull(s.f, s.buf[s.end:s.start+want], s.pos+int64(s.end-s.start))
	if err != nil {
		return err
	}
	s.end = s.start + want
	return nil
}

// makeRoom moves the unread bytes to the front of a buffer of at least n bytes.
func (s *frames) makeRoom(n int) {
	if n <= len(s.buf) {
		s.end = copy(s.buf, s.buf[s.start:s.end])
		s.start = 0
		return
	}
	old := *s
	s.buf, s.pooled = nil, nil
	s.grow(n)
	s.end = copy(s.buf, old.buf[old.start:old.end])
	s.start = 0
	old.release()
}

// grow makes the buffer at least n bytes long; what it held is lost.
func (s *frames) grow(n int) {
	switch {
	case n <= len(s.buf):
	case n <= smallScan:
		s.replaceBuffer(smallBuffers.Get().(*[]byte))
	case n <= scanBytes:
		s.replaceBuffer(scanBuffers.Get().(*[]byte))
	default:
		s.release()
		s.buf = make([]byte, n)
	}
}

func (s *frames) replaceBuffer(b *[]byte) {
	s.release()
	s.buf, s.pooled = *b, b
}

// drop forgets what was read ahead, so that it is read from the file again.
func (s *frames) drop() {
	s.endAhead()
	s.start, s.end = 0, 0
}

// seek continues at another position.
func (s *frames) seek(pos int64, lowest uint64) {
	s.drop()
	s.pos, s.lowest, s.tried = pos, lowest, 0
}

// release gives the buffer back. Records handed out before are invalid now.
func (s *frames) release() {
	s.endAhead()
	switch {
	case s.pooled == nil:
	case len(*s.pooled) == scanBytes:
		scanBuffers.Put(s.pooled)
	default:
		smallBuffers.Put(s.pooled)
	}
	s.buf, s.pooled, s.start, s.end = nil, nil, 0, 0
}

// smallScan is the buffer of a reader that needs little, such as a look-up of
// one record.
const smallScan = 16 << 10

var (
	scanBuffers  = bufferPool(scanBytes)
	smallBuffers = bufferPool(smallScan)
)

func bufferPool(size int) *sync.Pool {
	return &sync.Pool{New: func() any {
		b := make([]byte, size)
		return &b
	}}
}

// readFull reads exactly len(b) bytes. A file that ends before is
// format.ErrShort: it was cut since its size was taken.
func readFull(f vfs.File, b []byte, pos int64) error {
	n, err := f.ReadAt(b, pos)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return format.ErrShort
	}
	return err
}

// invalidRecord reports whether err says that bytes are no valid record, or that
// there are none, as opposed to an error of reading them.
func invalidRecord(err error) bool { return format.Invalid(err) || errors.Is(err, errFileEnds) }

// scanResult is what a pass over a segment's valid prefix found.
type scanResult struct {
	end  int64  // first byte behind the last valid record
	next uint64 // offset after it, or the base
	size int64  // of the file
	err  error  // why it ended: io.EOF at the end of the file, else the reason
}

// scanSegment reads the valid prefix of a segment and calls each for every
// record in it. The error is one of reading, or one that each returned.
func scanSegment(f vfs.File, base uint64, each func(pos int64, h format.Header, rec []byte) error) (scanResult, error) {
	info, err := f.Stat()
	if err != nil {
		return scanResult{}, err
	}
	return scanFrames(newFrames(f, 0, info.Size(), base), each)
}

// scanFrames is scanSegment for a file that is read from its beginning.
func scanFrames(fr frames, each func(pos int64, h format.Header, rec []byte) error) (scanResult, error) {
	defer fr.release()
	for {
		pos := fr.pos
		run, err := fr.run()
		if err != nil {
			res := scanResult{end: fr.pos, next: fr.lowest, size: fr.limit, err: err}
			if err == io.EOF || invalidRecord(err) {
				return res, nil
			}
			return res, err
		}
		for len(run) > 0 {
			var h format.Header
			var rec []byte
			h, rec, run = cutRecord(run)
			if err := each(pos, h, rec); err != nil {
				return scanResult{end: pos + h.Size(), next: h.Offset + 1, size: fr.limit, err: err}, err
			}
			pos += h.Size()
		}
	}
}
