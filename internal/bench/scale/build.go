//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/bench/limit"
	"github.com/evlog-go/evlog/internal/format"
)

// builder writes a log by hand: by appending it would take hours. Record n has the key of n and was appended n milliseconds after firstMS.
type builder struct {
	dir  string
	next uint64
	size int64 // of all segments
	buf  []byte
	last format.Durable

	// Of the segment that is being written.
	index   format.IndexHeader
	entries []format.IndexEntry
	hashes  []uint64
	maker   format.FilterMaker
}

const firstMS = 1_700_000_000_000

func key(offset uint64) []byte { return fmt.Appendf(nil, "key-%012d", offset) }

func timeOf(offset uint64) time.Time { return time.UnixMilli(firstMS + int64(offset)) }

func newBuilder(dir string) *builder {
	l, err := evlog.Open(background, dir, nil)
	check(err)
	check(l.Close()) // for log.json
	return &builder{dir: dir}
}

// segment writes a segment of n records. Of values that are longer than a page the
// zeros are left out: they are holes in the file.
func (b *builder) segment(n int, value []byte) {
	f, err := os.Create(filepath.Join(b.dir, format.SegmentName(b.next)))
	check(err)
	base, pos := b.next, int64(0)
	b.entries, b.hashes = b.entries[:0], b.hashes[:0]
	hole := len(value) > 1<<16
	for range n {
		at := len(b.buf)
		b.buf = limit.Encode(b.buf, b.next, timeOf(b.next).UnixMilli(), &evlog.Record{Key: key(b.next), Value: value})
		b.indexed(pos+int64(at), format.ParseHeader(b.buf[at:]))
		b.next++
		size := int64(len(b.buf))
		if hole {
			b.buf = b.buf[:len(b.buf)-len(value)]
		}
		if hole || size >= limit.Buffer {
			_, err := f.WriteAt(b.buf, pos)
			check(err)
			pos += size
			b.buf = b.buf[:0]
		}
	}
	_, err = f.WriteAt(b.buf, pos)
	check(err)
	pos += int64(len(b.buf))
	b.buf = b.buf[:0]
	check(f.Truncate(pos))
	check(f.Close())
	b.size += pos
	b.last = format.Durable{NextOffset: b.next, Base: base, Position: pos}
}

// indexed takes a record into the index of its segment.
func (b *builder) indexed(pos int64, h format.Header) {
	x := &b.index
	if pos == 0 {
		*x = format.IndexHeader{Base: h.Offset, FirstOffset: h.Offset, FirstCRC: h.CRC, MinTimeMS: h.TimeMS}
	}
	if n := len(b.entries); n == 0 || pos >= b.entries[n-1].Pos+evlog.DefaultIndexBytes {
		b.entries = append(b.entries, format.IndexEntry{Offset: h.Offset, Pos: pos, MaxTimeMS: h.TimeMS})
	}
	x.Records++
	x.LastOffset, x.LastPos, x.LastCRC, x.MaxTimeMS = h.Offset, pos, h.CRC, h.TimeMS
	b.hashes = append(b.hashes, format.KeyHash(key(h.Offset)))
}

// close writes the index of the segment that was written last, with a key filter.
func (b *builder) close() {
	x := b.index
	x.LogSize, x.ClosedMS, x.End, x.Keys = b.last.Position, x.MaxTimeMS, b.next, uint64(len(b.hashes))
	x.SetFilter(format.ShapeFor(x.Keys))
	out := format.EncodeIndex(x, b.entries)
	slices.Sort(b.hashes)
	rest := b.hashes
	for block := range x.Filter.Blocks {
		n := len(rest)
		if block+1 < x.Filter.Blocks {
			n, _ = slices.BinarySearch(rest, x.Filter.FirstHash(block+1))
		}
		out = b.maker.AppendBlock(out, x.Filter, rest[:n])
		rest = rest[n:]
	}
	check(os.WriteFile(filepath.Join(b.dir, format.IndexName(x.Base)), out, 0o600))
}

// end publishes the last segment as the active one.
func (b *builder) end() {
	var d [format.DurableSize]byte
	b.last.Encode(&d)
	check(os.WriteFile(filepath.Join(b.dir, format.DurableName), d[:], 0o600))
	unix.Sync()
	var st unix.Stat_t
	blocks := int64(0)
	names, err := filepath.Glob(filepath.Join(b.dir, "*"+format.LogSuffix))
	check(err)
	for _, name := range names {
		check(unix.Stat(name, &st))
		blocks += st.Blocks * 512
	}
	fmt.Printf("%d records in %d segments, %.2f GB, of which %.2f GB are on disk; active segment %.1f MB\n",
		b.next, len(names), float64(b.size)/1e9, float64(blocks)/1e9, float64(b.last.Position)/1e6)
}

func buildLarge(dir string, share float64) {
	const segment, total, dense = evlog.DefaultSegmentBytes, 50e9, 64
	b := newBuilder(dir)
	start := time.Now()
	zeros, small := make([]byte, 1<<20), make([]byte, 100)
	denseRecords := int(segment / limit.RecordSize(len(small)))
	rest := int64(total*share) - int64(float64(dense*segment)*share)
	for b.size < rest {
		b.segment(int(segment/limit.RecordSize(len(zeros))), zeros)
		b.close()
	}
	for range int(dense * share) {
		b.segment(denseRecords, small)
		b.close()
	}
	b.segment(denseRecords/2, small)
	fmt.Printf("built in %s: ", rounded(time.Since(start)))
	b.end()
}

func buildSegments(dir string, share float64) {
	b := newBuilder(dir)
	start := time.Now()
	small := make([]byte, 100)
	for range int(100_000*share) - 1 {
		b.segment(8, small)
		b.close()
	}
	b.segment(8<<20/int(limit.RecordSize(len(small))), small)
	fmt.Printf("built in %s: ", rounded(time.Since(start)))
	b.end()
}
