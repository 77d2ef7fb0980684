package rivals

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/evlog-go/evlog/internal/bench/limit"
	"github.com/evlog-go/evlog/internal/bench/turns"
)

// BenchmarkOpen opens a log of a million records after a clean close, and gets the
// last of them, so that a system that puts off its work has done it.
func BenchmarkOpen(b *testing.B) {
	const n = 1_000_000
	records := limit.Records(1000, 100)
	var sides []*turns.Side
	for _, r := range all() {
		dir := b.TempDir()
		st, err := r.open(b, dir, config{})
		must(b, err)
		fill(b, st, records, n)
		must(b, st.close())
		s := &turns.Side{Name: r.name, Ops: 1}
		s.Run = func(int) {
			st, err = r.open(b, dir, config{})
			must(b, err)
			if l, ok := st.(*limitStore); ok { // its index would be a scan
				must(b, l.last(limit.RecordSize(100)))
				return
			}
			_, value, err := st.get(n - 1)
			must(b, err)
			sink += len(value)
		}
		s.After = func() { must(b, st.close()) }
		s.Run(1) // warm
		s.After()
		sides = append(sides, s)
	}
	row(b, fmt.Sprintf("open after a clean close, %d records of 100 B", n), "all", sides...)
}

// BenchmarkDrop drops the older half, and gives its space back where the system can.
func BenchmarkDrop(b *testing.B) {
	const n, valueBytes = 100_000, 1000
	records := limit.Records(1000, valueBytes)
	var sides []*turns.Side
	for _, r := range all() {
		var st store
		s := &turns.Side{Name: r.name, Ops: 1}
		var dir string
		s.Before = func() {
			dir = b.TempDir()
			var err error
			st, err = r.open(b, dir, config{segmentBytes: 8 << 20})
			must(b, err)
			fill(b, st, records, n)
		}
		s.Run = func(int) { must(b, st.drop(n/2)) }
		s.After = func() {
			must(b, st.close())
			must(b, os.RemoveAll(dir))
		}
		sides = append(sides, s)
	}
	row(b, fmt.Sprintf("drop the older half of %d records of %d B", n, valueBytes), "all", sides...)
}

// BenchmarkDisk is the disk space of a log that is closed, with what was allocated
// ahead, and not a time.
func BenchmarkDisk(b *testing.B) {
	const n = 200_000
	records := limit.Records(1000, 100)
	b.ReportMetric(0, "ns/op")
	space := map[string]float64{}
	for b.Loop() {
		for _, r := range all() {
			dir := b.TempDir()
			st, err := r.open(b, dir, config{})
			must(b, err)
			fill(b, st, records, n)
			must(b, st.close())
			space[r.name] = float64(allocated(b, dir)) / n
		}
	}
	rowOfSizes("disk space of a record of 100 B and a key of 16 B", "bytes", space)
	b.ReportMetric(space["limit"]/space["evlog"], "ratio")
}

// allocated is the disk space of all files below dir.
func allocated(b testing.TB, dir string) (size int64) {
	must(b, filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			size += info.Sys().(*syscall.Stat_t).Blocks * 512
		}
		return err
	}))
	return size
}
