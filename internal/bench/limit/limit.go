// Package limit is the least that the record format and the kernel allow,
// written by hand: what evlog does, with everything left out that the bytes on
// disk do not ask for. Benchmarks take it as their measure.
package limit

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/format"
)

// Log is one file that records are written to.
type Log struct {
	Dir  string
	F    *os.File
	Pos  int64  // where the next write goes
	Next uint64 // offset of the next record
	Buf  []byte // what has been added and not written

	b      testing.TB
	zeroed int64
}

// Zeroed is a usual size of the zeros in a new file.
const Zeroed = 64 << 20

// New makes a log in a directory that is empty. Each new file of it is filled with
// zeroed bytes and synced; with 0 it grows.
func New(b testing.TB, dir string, zeroed int64) *Log {
	l := &Log{Dir: dir, Buf: make([]byte, 0, 512<<10), b: b, zeroed: zeroed}
	l.NewFile()
	b.Cleanup(func() { l.F.Close() })
	return l
}

// NewFile starts another file.
func (l *Log) NewFile() {
	if l.F != nil {
		require.NoError(l.b, l.F.Close())
	}
	var err error
	l.F, err = os.Create(filepath.Join(l.Dir, format.SegmentName(l.Next)))
	require.NoError(l.b, err)
	zeros := make([]byte, 1<<20)
	for at := int64(0); at < l.zeroed; at += int64(len(zeros)) {
		_, err := l.F.WriteAt(zeros, at)
		require.NoError(l.b, err)
	}
	require.NoError(l.b, l.F.Sync())
	l.Pos = 0
}

// Room starts another file if the zeros do not suffice for n bytes.
func (l *Log) Room(n int64) {
	if l.zeroed > 0 && l.Pos+n > l.zeroed {
		l.NewFile()
	}
}

// Add encodes records that get the time of now.
func (l *Log) Add(records ...evlog.Record) {
	now := time.Now().UnixMilli()
	for i := range records {
		l.Buf = Encode(l.Buf, l.Next, now, &records[i])
		l.Next++
	}
}

// Write writes what has been added.
func (l *Log) Write() {
	if _, err := l.F.WriteAt(l.Buf, l.Pos); err != nil {
		l.b.Fatal(err)
	}
	l.Pos += int64(len(l.Buf))
	l.Buf = l.Buf[:0]
}

// Sync makes durable what has been written.
func (l *Log) Sync() {
	if err := fdatasync(l.F); err != nil {
		l.b.Fatal(err)
	}
}

// Roll does what a new segment cannot do without.
func (l *Log) Roll() {
	l.Write()
	if err := l.F.Sync(); err != nil {
		l.b.Fatal(err)
	}
	l.NewFile()
	dir, err := os.Open(l.Dir)
	require.NoError(l.b, err)
	require.NoError(l.b, dir.Sync())
	require.NoError(l.b, dir.Close())
}
