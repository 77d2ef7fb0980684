package bench

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"sort"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
)

func BenchmarkGet(b *testing.B) {
	// The last ones are more than a reader keeps open.
	for _, c := range []struct{ segments, segmentBytes int64 }{{4, 4 << 20}, {32, 4 << 20}, {200, 256 << 10}} {
		for _, reader := range []string{"own", "other"} {
			b.Run(fmt.Sprintf("value=100B/segments=%d/reader=%s", c.segments, reader), func(b *testing.B) {
				dir := b.TempDir()
				records := makeRecords(1000, 100)
				l := openLog(b, dir, &evlog.Options{Sync: evlog.SyncFlush, SegmentBytes: c.segmentBytes})
				// Half a segment less, so that the active one has something in it.
				n := int((c.segments*c.segmentBytes - c.segmentBytes/2) / recordSize(100))
				fillLog(b, l, records, n)
				takeTurns(b, 0,
					getEvlog(b, readerOf(b, l, dir, reader), n),
					getLimit(b, dir, n),
					getSQLite(b, records, n))
			})
		}
	}
}

const getsInTurn = 2000

// getSide looks up random offsets below n.
func getSide(name string, n int, get func(offset int)) *side {
	rng := rand.New(rand.NewPCG(1, 2))
	s := &side{name: name, ops: getsInTurn}
	s.run = func(ops int) {
		for range ops {
			offset := rng.IntN(n)
			start := time.Now()
			get(offset)
			s.lat = append(s.lat, time.Since(start))
		}
	}
	s.run(s.ops) // warm
	s.lat = nil
	return s
}

func getEvlog(b *testing.B, r *evlog.Reader, n int) *side {
	return getSide("evlog", n, func(offset int) {
		rec, err := r.Get(background, uint64(offset))
		if err != nil || rec.Offset != uint64(offset) {
			b.Fatal(rec.Offset, err)
		}
	})
}

func getSQLite(b *testing.B, records []evlog.Record, n int) *side {
	db := newSQLite(b)
	db.fill(records, n, 1)
	return getSide("sqlite", n, func(offset int) {
		var ts, schema int64
		var key, value []byte
		if err := db.get.QueryRow(offset+1).Scan(&ts, &schema, &key, &value); err != nil {
			b.Fatal(err)
		}
	})
}

// getLimit keeps every segment open and an index entry for every 4 KiB in
// memory. It copies the record, as evlog does.
func getLimit(b *testing.B, dir string, n int) *side {
	var index []indexEntry
	for _, f := range openSegments(b, dir) {
		index = append(index, indexFile(b, f)...)
	}
	buf := make([]byte, indexInterval+1<<10)
	return getSide("limit", n, func(offset int) {
		i := sort.Search(len(index), func(i int) bool { return index[i].offset > uint64(offset) })
		sink += len(index[i-1].get(b, buf, uint64(offset)))
	})
}

const indexInterval = 4 << 10

type indexEntry struct {
	f      *os.File
	offset uint64
	pos    int64
}

func indexFile(b *testing.B, f *os.File) (index []indexEntry) {
	due := int64(0)
	scanFile(b, f, make([]byte, limitBuffer), func(offset uint64, pos int64, _, _ []byte) {
		if pos >= due {
			index = append(index, indexEntry{f, offset, pos})
			due = pos + indexInterval
		}
	})
	return index
}

// get reads once, goes over the records before the one wanted by their lengths,
// and checks that one.
func (e indexEntry) get(b *testing.B, buf []byte, offset uint64) []byte {
	n, err := e.f.ReadAt(buf, e.pos)
	if n == 0 {
		require.NoError(b, err)
	}
	buf = buf[:n]
	for binary.LittleEndian.Uint64(buf[8:]) < offset {
		buf = buf[8+binary.LittleEndian.Uint32(buf):]
	}
	rec, _ := parse(b, buf, offset)
	return append([]byte(nil), rec...)
}
