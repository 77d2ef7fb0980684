package evlog

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"slices"

	"github.com/evlog-go/evlog/internal/format"
	"github.com/evlog-go/evlog/internal/vfs"
)

// maxKeyHashes bounds the memory for making a filter: 8 MiB of hashes. A segment
// with more keys is read several times.
const maxKeyHashes = 1 << 20

// keyHashes collects the different hashes of a segment's keys from low on, as
// many as fit: when there are too many, high comes down.
type keyHashes struct {
	low, high uint64 // of the hashes wanted; both included
	max       int
	list      []uint64
}

func (k *keyHashes) add(key []byte) {
	if len(key) == 0 {
		return
	}
	h := format.KeyHash(key)
	if h < k.low || h > k.high {
		return
	}
	if len(k.list) == k.max {
		k.thin()
		if h > k.high {
			return
		}
	}
	k.list = append(k.list, h)
}

// thin makes room: it drops what is there twice, and if that was little, the
// upper half of the range.
func (k *keyHashes) thin() {
	k.sort()
	if half := k.max / 2; len(k.list) > half {
		k.high = k.list[half] - 1
		k.list = k.list[:half]
	}
}

func (k *keyHashes) sort() {
	sortHashes(k.list, 64)
	k.list = slices.Compact(k.list)
}

// sortHashes sorts numbers that differ in their lowest bits bits, by eight of them
// at a time and in place: four times as fast for a million hashes as comparing
// them.
func sortHashes(a []uint64, bits int) {
	const few = 64
	if len(a) <= few || bits == 0 {
		slices.Sort(a)
		return
	}
	shift := bits - 8
	var end, at [256]int
	for _, h := range a {
		end[h>>shift&0xff]++
	}
	sum := 0
	for b, n := range end {
		at[b] = sum
		sum += n
		end[b] = sum
	}
	from := 0
	for b := range end {
		for at[b] < end[b] {
			h := a[at[b]]
			if to := int(h >> shift & 0xff); to != b {
				a[at[b]], a[at[to]] = a[at[to]], h
				at[to]++
			} else {
				at[b]++
			}
		}
		sortHashes(a[from:end[b]], shift)
		from = end[b]
	}
}

// estimate is how many different keys there are, whatever their hashes. It is
// exact where all of them fit.
func (k *keyHashes) estimate() uint64 {
	if k.low == 0 && k.high == math.MaxUint64 {
		return uint64(len(k.list))
	}
	return uint64(float64(len(k.list)) / (float64(k.high-k.low) + 1) * (1 << 64))
}

// indexFacts is what an index is made from, collected record by record.
type indexFacts struct {
	b    *indexBuilder
	keys keyHashes
}

// newIndexFacts collects for the segment with this base, and keeps at most
// maxHashes hashes of keys.
func newIndexFacts(base uint64, interval int64, maxHashes int) *indexFacts {
	return &indexFacts{newIndexBuilder(base, interval), keyHashes{high: math.MaxUint64, max: maxHashes}}
}

// add takes the record that stands at pos, behind the one added before. rec has
// the key at least.
func (x *indexFacts) add(pos int64, h format.Header, rec []byte) {
	x.b.add(pos, h)
	x.keys.add(h.Key(rec))
}

// indexBuild is an index in the making, in a file of its own: only the name that it
// gets in the end makes it one. What it has for a header until then lacks facts.
type indexBuild struct {
	*indexFacts
	dir  vfs.Dir
	tmp  string
	f    vfs.File
	log  vfs.File
	pace *pacer
}

// buildIndex reads the closed segment log and writes everything of its index but
// the header. A damaged segment gets none. The caller ends it with finish or
// drop. pace spreads the reading over time; nil does not.
func buildIndex(ctx context.Context, dir vfs.Dir, log vfs.File, base uint64, interval int64, maxHashes int, pace *pacer) (*indexBuild, error) {
	facts := newIndexFacts(base, interval, maxHashes)
	if err := readRecords(ctx, dir, log, base, pace, facts.add); err != nil {
		return nil, err
	}
	return writeFacts(ctx, dir, log, facts, "build", pace)
}

// writeFacts is buildIndex of a segment that was read, or written, already. who
// goes into the temporary file's name: another one may be at the same segment.
func writeFacts(ctx context.Context, dir vfs.Dir, log vfs.File, facts *indexFacts, who string, pace *pacer) (*indexBuild, error) {
	x := &indexBuild{
		indexFacts: facts, dir: dir, log: log, pace: pace,
		// Others write BASE.idx.tmp.
		tmp: format.IndexName(facts.b.header.Base) + "." + who + format.TempSuffix,
	}
	f, err := dir.OpenFile(x.tmp, os.O_RDWR|os.O_CREATE|os.O_TRUNC, filePerm)
	if err != nil {
		return nil, err
	}
	x.f = f
	if err := x.fill(ctx); err != nil {
		x.drop()
		return nil, err
	}
	return x, nil
}

func (x *indexBuild) fill(ctx context.Context) error {
	x.keys.sort()
	x.b.header.SetFilter(format.ShapeFor(x.keys.estimate()))
	if _, err := x.f.WriteAt(format.EncodeIndex(x.b.header, x.b.entries), 0); err != nil {
		return err
	}
	x.b.header.Entries = uint32(len(x.b.entries))
	var maker format.FilterMaker
	for next := uint32(0); next < x.b.header.Filter.Blocks; {
		if next > 0 {
			if err := x.collect(ctx, next); err != nil {
				return err
			}
		}
		var err error
		if next, err = x.blocks(&maker, next); err != nil {
			return err
		}
	}
	return nil
}

// collect reads the segment once more, for the hashes from block next on.
func (x *indexBuild) collect(ctx context.Context, next uint32) error {
	k := &x.keys
	k.low, k.high, k.list = x.b.header.Filter.FirstHash(next), math.MaxUint64, k.list[:0]
	err := readRecords(ctx, x.dir, x.log, x.b.header.Base, x.pace, func(_ int64, h format.Header, rec []byte) { k.add(h.Key(rec)) })
	k.sort()
	return err
}

// blocks writes the blocks from next on of which all hashes are collected, and
// returns the number of the first one that is not among them.
func (x *indexBuild) blocks(maker *format.FilterMaker, next uint32) (uint32, error) {
	s := x.b.header.Filter
	all := x.keys.list
	var block []byte
	for ; next < s.Blocks; next++ {
		n := len(all)
		if next+1 < s.Blocks {
			end := s.FirstHash(next + 1)
			if x.keys.high < end-1 {
				break
			}
			n, _ = slices.BinarySearch(all, end)
		} else if x.keys.high < math.MaxUint64 {
			break
		}
		block = maker.AppendBlock(block[:0], s, all[:n])
		if _, err := x.f.WriteAt(block, x.b.header.FilterBlockPos(next)); err != nil {
			return next, err
		}
		x.b.header.Keys += uint64(n)
		all = all[n:]
	}
	return next, nil
}

// readRecords goes over the whole of a closed segment.
func readRecords(ctx context.Context, dir vfs.Dir, log vfs.File, base uint64, pace *pacer, each func(pos int64, h format.Header, rec []byte)) error {
	read := int64(0) // and not counted yet
	res, err := scanSegment(log, base, func(pos int64, h format.Header, rec []byte) error {
		each(pos, h, rec)
		if read += h.Size(); read < pacerStep {
			return nil
		}
		n := read
		read = 0
		if err := ctx.Err(); err != nil {
			return err
		}
		return pace.spend(ctx, n)
	})
	if err != nil {
		return err
	}
	if res.err != io.EOF {
		return corrupt(dir, base, res.end, res.next, res.err)
	}
	return nil
}

// finish puts the index into place, with the facts that are not in the log.
// Nobody may replace or remove segments meanwhile.
func (x *indexBuild) finish() error {
	header, err := x.facts()
	if err != nil {
		x.drop()
		return err
	}
	return x.finishAs(header)
}

// finishAs is finish with a header in which the facts are complete.
func (x *indexBuild) finishAs(header format.IndexHeader) error {
	_, err := x.f.WriteAt(format.EncodeIndexHeader(header), 0)
	if err == nil {
		err = x.f.Sync()
	}
	if err = errors.Join(err, x.f.Close()); err != nil {
		_ = x.dir.Remove(x.tmp) // if not now, then by the next writer
		return err
	}
	return renameTemp(x.dir, x.tmp, format.IndexName(header.Base))
}

func (x *indexBuild) drop() {
	_ = x.f.Close()
	_ = x.dir.Remove(x.tmp) // if not now, then by the next writer
}

// facts completes the header with what the index that is there knows. Without
// one, the segment ends where the next one begins, and was closed when its file
// was changed last.
func (x *indexBuild) facts() (format.IndexHeader, error) {
	h := x.b.header
	h.CleanedMS = format.NotVouched
	if old, err := oldFacts(x.dir, h.Base, x.log); err == nil {
		h.ClosedMS, h.CleanedMS, h.End = old.ClosedMS, old.CleanedMS, old.End
	}
	if h.ClosedMS == 0 {
		info, err := x.log.Stat()
		if err != nil {
			return h, err
		}
		h.ClosedMS = info.ModTime().UnixMilli()
	}
	if h.End == 0 {
		segments, err := allSegments(x.dir)
		if err != nil {
			return h, err
		}
		h.End, _ = segments.above(h.Base)
		if h.Records > 0 && h.LastOffset >= h.End {
			h.End = 0 // a merge was interrupted; the next segment will go
		}
	}
	return h, nil
}

// oldFacts returns the header of the index that is there, if it belongs to the
// segment; its entries may be damaged.
func oldFacts(dir vfs.Dir, base uint64, log vfs.File) (format.IndexHeader, error) {
	x, err := openIndex(dir, base, log)
	if err != nil {
		return format.IndexHeader{}, err
	}
	if x.header.ClosedMS == 0 {
		err = fs.ErrNotExist // the index of a clean close; it was active then
	}
	return x.header, errors.Join(err, x.close())
}
