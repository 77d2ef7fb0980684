package bench

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/bench/limit"
	"github.com/evlog-go/evlog/internal/bench/turns"
	"github.com/evlog-go/evlog/internal/format"
)

func BenchmarkEnqueue(b *testing.B) {
	for _, segment := range []int64{1 << 30, 64 << 20} {
		for _, batch := range []int{1, 100, 1000} {
			if segment < 1<<30 && batch > 1 {
				continue
			}
			b.Run(fmt.Sprintf("value=100B/batch=%d/segment=%s", batch, sizeName(segment)), func(b *testing.B) {
				e := &enqueuer{b: b, records: limit.Records(1000, 100), batch: batch, segment: segment}
				// One segment a turn, and so one roll, or as much as the page cache
				// takes without writing back.
				e.ops = 200_000
				if segment < 1<<30 {
					e.ops = int(segment/limit.RecordSize(100)) / batch * batch
				}
				turns.Take(b, limit.RecordSize(100), e.evlog(), e.limit(), e.sqlite())
			})
		}
	}
}

// enqueuer is what the sides of BenchmarkEnqueue are made from.
type enqueuer struct {
	b       *testing.B
	records []evlog.Record
	batch   int
	segment int64
	ops     int
}

// evlog starts with an empty log in each turn.
func (e *enqueuer) evlog() *turns.Side {
	var l *evlog.Log
	var dir string
	s := &turns.Side{Name: "evlog", Ops: e.ops}
	s.Before = func() {
		var err error
		dir, err = os.MkdirTemp(e.b.TempDir(), "log")
		require.NoError(e.b, err)
		l, err = evlog.Open(background, dir, &evlog.Options{Sync: evlog.SyncFlush, SegmentBytes: e.segment})
		require.NoError(e.b, err)
		fillLog(e.b, l, e.records, 10_000) // warm
	}
	s.After = func() {
		require.NoError(e.b, l.Close())
		require.NoError(e.b, os.RemoveAll(dir))
	}
	s.Run = func(ops int) {
		if e.batch == 1 {
			e.oneByOne(l, ops)
			return
		}
		for i := 0; i < ops; i += e.batch {
			at := i % len(e.records)
			if _, err := l.Enqueue(background, e.records[at:at+e.batch]...); err != nil {
				e.b.Fatal(err)
			}
		}
	}
	return s
}

func (e *enqueuer) oneByOne(l *evlog.Log, ops int) {
	for i := range ops {
		if _, err := l.Enqueue(background, e.records[i%len(e.records)]); err != nil {
			e.b.Fatal(err)
		}
	}
}

// limit takes the time once for each call, as evlog has to.
func (e *enqueuer) limit() *turns.Side {
	l := limit.New(e.b, e.b.TempDir(), 0)
	s := &turns.Side{Name: "limit", Ops: e.ops}
	s.Before = l.NewFile
	s.After = func() {
		require.NoError(e.b, os.RemoveAll(l.Dir))
		require.NoError(e.b, os.Mkdir(l.Dir, 0o700))
	}
	s.Run = func(ops int) {
		size := int64(0)
		for i := 0; i < ops; i += e.batch {
			at := i % len(e.records)
			l.Add(e.records[at : at+e.batch]...)
			if len(l.Buf) < limit.Buffer {
				continue
			}
			size += int64(len(l.Buf))
			l.Write()
		}
		if size > e.segment-limit.Buffer {
			l.Roll()
		}
	}
	return s
}

// sqlite commits each call, and is given fewer of them in a turn.
func (e *enqueuer) sqlite() *turns.Side {
	db := newSQLiteNoSync(e.b).grown(e.records)
	s := &turns.Side{Name: "sqlite-nosync", Ops: min(5000*e.batch, 20_000)}
	s.Run = func(ops int) {
		for i := 0; i < ops; i += e.batch {
			at, now := i%len(e.records), time.Now().UnixMilli()
			if e.batch == 1 {
				db.append(e.records[at], now)
				continue
			}
			db.fill(e.records[at:at+e.batch], e.batch, now)
		}
	}
	return s
}

func BenchmarkEncode(b *testing.B) {
	records := limit.Records(1000, 100)
	const ops = 200_000
	product := &turns.Side{Name: "evlog", Ops: ops}
	product.Run = func(ops int) {
		var buf []byte
		for i := range ops {
			r := &records[i%len(records)]
			buf = format.Append(buf[:0], uint64(i), 1, r.Schema, r.Key, r.Value)
		}
	}
	byHand := &turns.Side{Name: "limit", Ops: ops}
	byHand.Run = func(ops int) {
		var buf []byte
		for i := range ops {
			buf = limit.Encode(buf[:0], uint64(i), 1, &records[i%len(records)])
		}
	}
	turns.Take(b, limit.RecordSize(100), product, byHand)
}
