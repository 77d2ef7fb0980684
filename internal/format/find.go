package format

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/bits"
)

// findWindow is how much a Finder has in memory at once.
const findWindow = 256 << 10

// Finder finds the next valid record behind damage.
//
// A record may start at any byte, and its length field may point anywhere, so
// that testing each candidate's checksum directly would take time proportional
// to the square of the file's size on bytes made for that, and on plain noise
// too. A CRC is linear: that of [a, b) follows from those of the bytes before a
// and before b. With these at hand for every block, a candidate of any length
// costs the same.
type Finder struct {
	r     io.ReaderAt
	size  int64
	buf   []byte
	sums  *blockSums           // nil until a candidate is worth it
	small [smallCandidate]byte // scratch
}

// smallCandidate is the size up to which a checksum is taken directly.
const smallCandidate = 4 << 10

// NewFinder searches the first size bytes of r.
func NewFinder(r io.ReaderAt, size int64) *Finder {
	return &Finder{r: r, size: size, buf: make([]byte, min(findWindow, max(0, size)))}
}

// Find returns the position of the first valid record at or after from whose
// offset is lowest or more; found is false, and the position the size, where
// there is none.
func (s *Finder) Find(ctx context.Context, from int64, lowest uint64) (pos int64, found bool, err error) {
	for at := from; s.size-at >= HeaderSize; {
		if err := ctx.Err(); err != nil {
			return 0, false, err
		}
		b := s.buf[:min(s.size-at, int64(len(s.buf)))]
		if err := readFull(s.r, b, at); err != nil {
			return 0, false, err
		}
		for i := 0; i+HeaderSize <= len(b); i++ {
			if i = skipZeros(b, i); i+HeaderSize > len(b) {
				break
			}
			pos := at + int64(i)
			h := ParseHeader(b[i:])
			if h.Check(s.size-pos, lowest) != nil {
				continue
			}
			valid, err := s.valid(pos, h)
			if err != nil || valid {
				return pos, valid, err
			}
		}
		at += int64(len(b)) - HeaderSize + 1
	}
	return s.size, false, nil
}

// skipZeros returns the first place from i on where a length field can begin: a
// run of zeros holds none but in its last three bytes.
func skipZeros(b []byte, i int) int {
	for i+8 <= len(b) && binary.LittleEndian.Uint64(b[i:]) == 0 {
		i += 5
	}
	return i
}

// valid tests the checksum of the record at pos.
func (s *Finder) valid(pos int64, h Header) (bool, error) {
	from, to := pos+crcEnd, pos+h.Size()
	if to-from <= smallCandidate {
		b := s.small[:to-from]
		if err := readFull(s.r, b, from); err != nil {
			return false, err
		}
		return Checksum(b) == h.CRC, nil
	}
	if s.sums == nil {
		sums, err := newBlockSums(s.r, s.size, pos)
		if err != nil {
			return false, err
		}
		s.sums = sums
	}
	crc, err := s.sums.checksum(from, to)
	return crc == h.CRC, err
}

// blockSums knows the CRC-32C of the bytes from start up to each block's end,
// in its raw form: no inversion before or after, initially 0. Raw CRCs are
// linear, which the usual form is not.
type blockSums struct {
	r     io.ReaderAt
	size  int64
	start int64
	block int64
	raw   []uint32 // raw[i] is of [start, start+i*block)

	// The blocks in which the last candidate began and ended: the next one is
	// likely to need them again.
	begin, end cachedBlock
}

type cachedBlock struct {
	i    int64 // of what is in data, if that is not empty
	data []byte
}

const (
	minBlock  = 1 << 10
	maxBlock  = findWindow
	maxBlocks = 1 << 20 // 4 MiB of sums is enough, while blocks may grow
)

func newBlockSums(r io.ReaderAt, size, start int64) (*blockSums, error) {
	s := &blockSums{r: r, size: size, start: start, block: minBlock}
	for (size-start)/s.block > maxBlocks && s.block < maxBlock {
		s.block *= 2
	}
	sum := uint32(0)
	for i := int64(0); ; i++ {
		s.raw = append(s.raw, sum)
		if start+(i+1)*s.block > size {
			return s, nil
		}
		if err := s.load(&s.begin, i); err != nil {
			return nil, err
		}
		sum = rawSum(sum, s.begin.data)
	}
}

// rawSum continues a raw CRC.
func rawSum(raw uint32, b []byte) uint32 { return ^UpdateChecksum(^raw, b) }

// load brings block i into c; the last one may be short.
func (s *blockSums) load(c *cachedBlock, i int64) error {
	pos := s.start + i*s.block
	n := min(s.block, s.size-pos)
	if c.i == i && int64(len(c.data)) == n {
		return nil
	}
	if c.data == nil {
		c.data = make([]byte, s.block)
	}
	c.i, c.data = i, c.data[:n]
	if err := readFull(s.r, c.data, pos); err != nil {
		c.data = nil
		return err
	}
	return nil
}

// before is the raw CRC of [start, pos).
func (s *blockSums) before(c *cachedBlock, pos int64) (uint32, error) {
	i := (pos - s.start) / s.block
	if err := s.load(c, i); err != nil {
		return 0, err
	}
	return rawSum(s.raw[i], c.data[:(pos-s.start)%s.block]), nil
}

// checksum is the usual CRC of [from, to).
func (s *blockSums) checksum(from, to int64) (uint32, error) {
	a, err := s.before(&s.begin, from)
	if err != nil {
		return 0, err
	}
	b, err := s.before(&s.end, to)
	if err != nil {
		return 0, err
	}
	// The bytes before from act on the CRC of [start, to) as if zeros had
	// followed them; taking that out leaves [from, to). So does the inversion
	// that the usual form starts with.
	return ^(b ^ appendZeros(^a, to-from)), nil
}

// appendZeros is the raw CRC after n zero bytes, as polynomials:
// crc * x^(8n) modulo the CRC's.
func appendZeros(crc uint32, n int64) uint32 {
	for k := 0; n > 0; k++ {
		if n&1 != 0 {
			crc = multiply(zeroPowers[k], crc)
		}
		n >>= 1
	}
	return crc
}

// zeroPowers[k] is x^(8 * 2^k), which stands for 2^k zero bytes.
var zeroPowers = func() (p [63]uint32) {
	p[0] = 1 << (31 - 8)
	for k := 1; k < len(p); k++ {
		p[k] = multiply(p[k-1], p[k-1])
	}
	return p
}()

// multiply multiplies two polynomials over GF(2) modulo the CRC-32C polynomial.
// The highest bit is the coefficient of x^0.
func multiply(a, b uint32) (product uint32) {
	const castagnoli = 0x82f63b78
	for ; a != 0; a <<= 1 {
		skip := bits.LeadingZeros32(a)
		a <<= skip
		for range skip {
			b = b>>1 ^ castagnoli&-(b&1)
		}
		product ^= b
		b = b>>1 ^ castagnoli&-(b&1)
	}
	return product
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
