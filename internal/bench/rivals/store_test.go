package rivals

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/evlog-go/evlog/evlog"
)

var background = context.Background()

// store is one system, used as a log of records whose offsets begin at 0.
type store interface {
	// append is one write, durable when it returns if the store was opened so. It
	// may be called concurrently.
	append(records []evlog.Record) error
	// flush returns when everything that was appended can be read.
	flush() error
	// scan calls each for all records in order.
	scan(each func(key, value []byte)) error
	get(offset uint64) (key, value []byte, err error)
	// drop removes the records below offset, or as many of them as go without
	// rewriting others, and gives their space back where the system can.
	drop(below uint64) error
	close() error
}

// follower is a store that tells of records, or can be asked cheaply.
type follower interface {
	// follow calls seen for each record from next on, until stop is called.
	follow(next uint64, seen func()) (stop func(), err error)
}

// config is what a benchmark asks for.
type config struct {
	durable      bool
	segmentBytes int64 // 0 is the default of the system
}

// rival is how to open one.
type rival struct {
	name string
	open func(b testing.TB, dir string, c config) (store, error)
	// groups: concurrent appends share a sync already.
	groups bool
	// alwaysDurable: it has no way to do without a sync.
	alwaysDurable bool
	// checks tells what of a record is checked when it is read.
	checks string
}

// rivals are all that can be measured here; files that need more than Go add theirs.
var rivals = []rival{
	{name: "tidwall", open: openTidwall, checks: "nothing"},
	{name: "raft-wal", open: openRaftWAL, alwaysDurable: true, checks: "nothing"},
	{name: "pebble", open: openPebble, groups: true, checks: "blocks that are not in its cache"},
	{name: "bbolt", open: openBolt, checks: "nothing"},
	{name: "badger", open: openBadger, groups: true, checks: "blocks that are not in its cache"},
	{name: "nats", open: openNATS, groups: true, checks: "each message"},
}

// self is evlog as one of them.
var self = rival{name: "evlog", open: openEvlog, groups: true, checks: "each record"}

// mustOpen opens a store until the end of the benchmark.
func (r rival) mustOpen(b testing.TB, c config) store {
	s, err := r.open(b, b.TempDir(), c)
	must(b, err)
	b.Cleanup(func() { must(b, s.close()) })
	return s
}

func must(b testing.TB, err error) {
	if err != nil {
		b.Helper()
		b.Fatal(err)
	}
}

// fill appends n records, which are taken from records in turn.
func fill(b testing.TB, s store, records []evlog.Record, n int) {
	for n > 0 {
		batch := records[:min(n, len(records))]
		must(b, s.append(batch))
		n -= len(batch)
	}
	must(b, s.flush())
}

// Systems that hold nothing but bytes hold a record as its time, schema, length of
// the key, key and value. What comes with it in a log of evlog, a checksum and
// the offset, is left to them.
const frameHeader = 8 + 2 + 2

func frame(dst []byte, timeMS int64, r *evlog.Record) []byte {
	le := binary.LittleEndian
	dst = le.AppendUint64(dst, uint64(timeMS))
	dst = le.AppendUint16(dst, r.Schema)
	dst = le.AppendUint16(dst, uint16(len(r.Key)))
	dst = append(dst, r.Key...)
	return append(dst, r.Value...)
}

var errFrame = errors.New("not a record")

func unframe(b []byte) (key, value []byte, err error) {
	if len(b) < frameHeader {
		return nil, nil, errFrame
	}
	end := frameHeader + int(binary.LittleEndian.Uint16(b[10:]))
	if end > len(b) {
		return nil, nil, errFrame
	}
	return b[frameHeader:end], b[end:], nil
}
