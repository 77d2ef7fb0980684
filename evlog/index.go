package evlog

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"sort"
	"sync"
	"syscall"

	"github.com/evlog-go/evlog/internal/format"
	"github.com/evlog-go/evlog/internal/vfs"
)

// errIndexStale: the index does not belong to the segment as it is now.
var errIndexStale = errors.New("index does not match its segment")

// spacing is the rule which records of a segment get an index entry: the first
// one, and then one whenever the records from the last entry's on take at least
// the interval.
type spacing struct {
	interval int64 // bytes
	since    int64 // bytes since the last entry's record began; -1: no entry yet
}

func newSpacing(interval int64) spacing { return spacing{interval: interval, since: -1} }

// next takes the segment's next record, which has size bytes, and reports
// whether it gets an entry.
func (s *spacing) next(size int64) bool {
	due := s.since < 0 || s.since >= s.interval
	if due {
		s.since = 0
	}
	s.since += size
	return due
}

// indexBuilder collects what the index of a segment needs while its records are
// read, written or copied from another one, in order. Memory: 24 bytes for each
// interval of the segment.
type indexBuilder struct {
	spacing
	header  format.IndexHeader
	entries []format.IndexEntry
}

func newIndexBuilder(base uint64, interval int64) *indexBuilder {
	return &indexBuilder{spacing: newSpacing(interval), header: format.IndexHeader{Base: base}}
}

// add takes the record that stands at pos, behind the one added before.
func (b *indexBuilder) add(pos int64, h format.Header) {
	x := &b.header
	if x.Records == 0 {
		x.FirstOffset, x.FirstPos, x.FirstCRC = h.Offset, pos, h.CRC
		x.MaxTimeMS, x.MinTimeMS = h.TimeMS, h.TimeMS
	}
	x.MaxTimeMS = max(x.MaxTimeMS, h.TimeMS)
	x.MinTimeMS = min(x.MinTimeMS, h.TimeMS)
	x.LastOffset, x.LastPos, x.LastCRC = h.Offset, pos, h.CRC
	if h.KeyLen > 0 && h.Size() == format.Size(int(h.KeyLen), 0) {
		x.Tombstones++
	}
	if b.next(h.Size()) {
		b.entries = append(b.entries, format.IndexEntry{Offset: h.Offset, Pos: pos, MaxTimeMS: x.MaxTimeMS})
	}
	x.Records++
	x.LogSize = pos + h.Size()
}

// writeIndex puts the index into place, without a key filter. It is derived data, and missed by nobody
// if this fails or a power failure takes the name (I7): so the directory is not
// synced. Doing so here could take an error away that a roll has to see, since
// each is told once.
func writeIndex(dir vfs.Dir, h format.IndexHeader, entries []format.IndexEntry) error {
	name := format.IndexName(h.Base)
	tmp := name + format.TempSuffix
	h.Filter, h.Keys = format.FilterShape{}, 0
	err := writeTemp(dir, tmp, func(f vfs.File) error {
		_, err := f.WriteAt(format.EncodeIndex(h, entries), 0)
		return err
	})
	if err != nil {
		return err
	}
	return renameTemp(dir, tmp, name)
}

// index is an open .idx that was found to match its segment. Safe for
// concurrent use.
type index struct {
	f      vfs.File
	header format.IndexHeader

	mu     sync.Mutex                  // guards what follows
	blocks map[int][]format.IndexEntry // decoded, at most maxIndexBlocks
	firsts map[int]format.IndexEntry   // the first of each block that was ever read, at most maxIndexFirsts
}

// maxIndexBlocks bounds the blocks that one open index keeps in memory: 512 KiB, the
// whole index of a segment of 85 MiB, so of one of the default size. A look-up in a
// larger one reads a block.
const maxIndexBlocks = 128

// maxIndexFirsts is enough for an index of 2.7 million entries, so of a segment of
// 10 GiB. Beyond, a look-up reads some blocks.
const maxIndexFirsts = 1 << 14

// openIndex opens the index of a segment and compares it with the segment's
// file. An error for which noIndex holds means: scan.
func openIndex(dir vfs.Dir, base uint64, log vfs.File) (*index, error) {
	f, err := dir.OpenFile(format.IndexName(base), os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	h, err := readIndexHeader(f)
	if err == nil {
		err = matchIndex(h, base, log)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return &index{f: f, header: h, blocks: map[int][]format.IndexEntry{}, firsts: map[int]format.IndexEntry{}}, nil
}

func readIndexHeader(f vfs.File) (format.IndexHeader, error) {
	var b [format.IndexHeaderSize]byte
	if err := readFull(f, b[:], 0); err != nil {
		if errors.Is(err, format.ErrShort) {
			return format.IndexHeader{}, format.ErrIndex
		}
		return format.IndexHeader{}, err
	}
	return format.ParseIndexHeader(b[:])
}

// matchIndex tests whether an index's header describes the segment's file: its
// size, and of its first and last record offset, position and crc.
func matchIndex(h format.IndexHeader, base uint64, log vfs.File) error {
	info, err := log.Stat()
	if err != nil {
		return err
	}
	if h.Base != base || h.LogSize != info.Size() || (h.Records == 0) != (h.LogSize == 0) {
		return errIndexStale
	}
	if h.Records == 0 {
		return nil
	}
	if err := matchRecord(log, h.FirstPos, h.LogSize, h.FirstOffset, h.FirstCRC, false); err != nil {
		return err
	}
	return matchRecord(log, h.LastPos, h.LogSize, h.LastOffset, h.LastCRC, true)
}

func matchRecord(log vfs.File, pos, size int64, offset uint64, crc uint32, last bool) error {
	var b [format.HeaderSize]byte
	if pos > size-format.HeaderSize {
		return errIndexStale
	}
	if err := readFull(log, b[:], pos); err != nil {
		if errors.Is(err, format.ErrShort) {
			return errIndexStale
		}
		return err
	}
	h := format.ParseHeader(b[:])
	if h.Offset != offset || h.CRC != crc || pos+h.Size() > size || last && pos+h.Size() != size {
		return errIndexStale
	}
	return nil
}

func (x *index) close() error { return x.f.Close() }

func (x *index) len() int { return int(x.header.Entries) }

// entry returns entry i, whose block is checked.
func (x *index) entry(i int) (format.IndexEntry, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	block, err := x.blockLocked(i / format.IndexBlockEntries)
	if err != nil {
		return format.IndexEntry{}, err
	}
	return block[i%format.IndexBlockEntries], nil
}

// last looks for the block first, by what is known of blocks that are not in memory
// any more; the entries of one are searched as they lie.
func (x *index) last(before func(format.IndexEntry) bool) (e format.IndexEntry, ok bool, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	i := sort.Search(x.header.IndexBlocks(), func(i int) bool {
		first, ok := x.firsts[i]
		if !ok && err == nil {
			var b []format.IndexEntry
			if b, err = x.blockLocked(i); err == nil {
				first = b[0]
			}
		}
		return err != nil || !before(first)
	})
	if err != nil || i == 0 {
		return e, false, err
	}
	b, err := x.blockLocked(i - 1)
	if err != nil {
		return e, false, err
	}
	return entrySlice(b).last(before)
}

func (x *index) blockLocked(i int) ([]format.IndexEntry, error) {
	if b, ok := x.blocks[i]; ok {
		return b, nil
	}
	pos, size := x.header.IndexBlockRange(i)
	buf := make([]byte, size)
	if err := readFull(x.f, buf, pos); err != nil {
		return nil, err
	}
	b, err := format.ParseIndexBlock(make([]format.IndexEntry, 0, format.IndexBlockEntries), buf)
	if err == nil && len(b) != min(format.IndexBlockEntries, x.len()-i*format.IndexBlockEntries) {
		err = format.ErrIndex
	}
	if err != nil {
		return nil, err
	}
	if len(x.blocks) >= maxIndexBlocks {
		for old := range x.blocks {
			delete(x.blocks, old)
			break
		}
	}
	x.blocks[i] = b
	if len(x.firsts) < maxIndexFirsts {
		x.firsts[i] = b[0]
	}
	return b, nil
}

// checkBlocks reads every block.
func (x *index) checkBlocks() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := range x.header.IndexBlocks() {
		if _, err := x.blockLocked(i); err != nil {
			return err
		}
	}
	return nil
}

// errNoFilter: the index has no key filter. It is complete without.
var errNoFilter = errors.New("index has no key filter")

// checkFilter reads every block of the filter.
func (x *index) checkFilter() error {
	if !x.header.Filter.There {
		return errNoFilter
	}
	buf := make([]byte, x.header.Filter.BlockBytes)
	for i := range x.header.Filter.Blocks {
		if _, err := x.filterBlock(i, buf); err != nil {
			return err
		}
	}
	return nil
}

// filterBlock reads block i of the filter into buf.
func (x *index) filterBlock(i uint32, buf []byte) (format.FilterBlock, error) {
	if err := readFull(x.f, buf, x.header.FilterBlockPos(i)); err != nil {
		return format.FilterBlock{}, err
	}
	return x.header.Filter.ParseFilterBlock(buf)
}

// entryList is a sparse index to look things up in.
type entryList interface {
	len() int
	entry(i int) (format.IndexEntry, error)
	// last returns the last entry for which before holds; before must hold for a
	// prefix of the list. ok is false where it holds for none.
	last(before func(format.IndexEntry) bool) (e format.IndexEntry, ok bool, err error)
}

// entrySlice is an entryList in memory.
type entrySlice []format.IndexEntry

func (s entrySlice) len() int                               { return len(s) }
func (s entrySlice) entry(i int) (format.IndexEntry, error) { return s[i], nil }

func (s entrySlice) last(before func(format.IndexEntry) bool) (e format.IndexEntry, ok bool, err error) {
	i := sort.Search(len(s), func(i int) bool { return !before(s[i]) })
	if i == 0 {
		return e, false, nil
	}
	return s[i-1], true, nil
}

// trustEntry tests that a valid record with exactly the entry's offset stands
// at its position; nothing else makes an entry credible.
func trustEntry(log vfs.File, e format.IndexEntry, size int64) bool {
	fr := newFrames(log, e.Pos, size, e.Offset)
	fr.ahead = format.IndexBlockSize
	defer fr.release()
	h, _, err := fr.next()
	return err == nil && h.Offset == e.Offset
}

// indexHeader is the header of a segment's index; ok is false where none matches.
func indexHeader(dir vfs.Dir, base uint64, log vfs.File) (h format.IndexHeader, ok bool, err error) {
	x, err := openIndex(dir, base, log)
	if err == nil {
		return x.header, true, x.close()
	}
	if noIndex(err) {
		err = nil
	}
	return h, false, err
}

// noIndex reports whether err, from opening or reading an index, means to go on
// without: whatever is wrong with it, an index is only a help (I7). What is
// wrong with this process is no statement about the index.
func noIndex(err error) bool {
	for _, own := range []error{
		syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM,
		fs.ErrClosed, context.Canceled, context.DeadlineExceeded,
	} {
		if errors.Is(err, own) {
			return false
		}
	}
	return err != nil
}
