package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/internal/format"
)

// logFile builds the bytes of a .log, and remembers what stands where.
type logFile struct {
	b     []byte
	items []place
}

func (f *logFile) add(kind string, b []byte) *logFile {
	f.items = append(f.items, place{kind, int64(len(f.b)), int64(len(b))})
	f.b = append(f.b, b...)
	return f
}

func (f *logFile) records(offsets ...uint64) *logFile {
	for _, o := range offsets {
		f.add("record", frame(o, "record"))
	}
	return f
}

// damagedAround is a record whose checksum is wrong, with others' bytes in its
// value.
func (f *logFile) damagedAround(offset uint64, before string, embedded [][]byte, after string) *logFile {
	value := append([]byte(before), bytes.Join(embedded, nil)...)
	b := format.Append(nil, offset, seedTime, 0, nil, append(value, after...))
	b[4] ^= 1
	f.add("damage", b[:format.HeaderSize+len(before)])
	for _, e := range embedded {
		f.add("stray", e)
	}
	if after != "" {
		f.add("damage", b[len(b)-len(after):])
	}
	return f
}

func frame(offset uint64, value string) []byte {
	return format.Append(nil, offset, seedTime, 0, nil, []byte(value))
}

func frames(offsets ...uint64) (all [][]byte) {
	for _, o := range offsets {
		all = append(all, frame(o, "embedded"))
	}
	return all
}

// A value may hold whole records, even whole segments. In a damaged record they
// are shown and not believed, and they hide nothing that is intact.
func TestDump_RecordsInsideADamagedValue(t *testing.T) {
	const high = 1 << 62
	for _, c := range []struct {
		name string
		f    *logFile
	}{
		{"a high offset", new(logFile).records(0).damagedAround(1, "about ", frames(high), " end").records(2, 3, 4)},
		{"at the end of the value", new(logFile).records(0).damagedAround(1, "about ", frames(high), "").records(2, 3, 4)},
		{"as many as follow", new(logFile).records(0).damagedAround(1, "about ", frames(high), " end").records(2)},
		{"more than follow at once", new(logFile).records(0).damagedAround(1, "x", frames(high, high+1, high+2), " end").
			records(2, 3).add("damage", []byte("garbage, forty bytes or so of it, or more")).records(5, 6)},
		{"two in one value", new(logFile).records(0).damagedAround(1, "x", frames(high), "y").
			add("stray", frame(high+1, "z")).add("damage", []byte("more of the value")).records(2, 3, 4)},
		{"lower offsets", new(logFile).records(4, 5).damagedAround(6, "x", frames(2, 3), "").records(7)},
		{"lower offsets that ascend to where the log was", new(logFile).records(4, 5).damagedAround(6, "x", frames(3, 4), "").records(6, 7)},
		{"every second record is damaged", new(logFile).records(0).
			damagedAround(1, "x", frames(high, high+1), "y").records(2).
			damagedAround(3, "x", frames(high, high+1), "y").records(4).
			damagedAround(5, "x", frames(high, high+1), "y").records(6, 7, 8)},
		{"an offset given twice", new(logFile).records(0, 1, 2).add("stray", frame(2, "again")).records(3)},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.f.items, dumpItems(t, "00000000000000000000.log", c.f.b, 0))
		})
	}
}

// Damage and the stray records in it are one place.
func TestDump_CountsPlaces(t *testing.T) {
	f := new(logFile).records(0).damagedAround(1, "about ", frames(1<<62), " end").records(2).
		damagedAround(3, "x", frames(1<<62), "").records(4)
	var out bytes.Buffer
	d := &dumper{a: newApp(nil, &out, &out), ctx: t.Context(), path: "00000000000000000000.log", w: newWindow(bytes.NewReader(f.b), int64(len(f.b)))}
	require.ErrorContains(t, d.run(d.log), "damaged in 2 places, first at byte 34: crc mismatch")
	require.NoError(t, d.a.out.Flush())
	require.Equal(t, 2, strings.Count(out.String(), "  stray: offset 4611686018427387904, "), out.String())
}

// Of all sequences of runs with ascending offsets, one with the most records is
// believed; of those, the one that ends lowest.
func TestMarkStrays_AgreesWithTryingEverySequence(t *testing.T) {
	evtest.Seeds(t, 20_000, func(t *testing.T, seed uint64) {
		rnd := evtest.Rand(seed)
		lowest := rnd.Uint64N(4)
		runs := make([]stretch, rnd.IntN(9))
		for i := range runs {
			n := 1 + rnd.IntN(3)
			first := rnd.Uint64N(12)
			runs[i] = stretch{first: first, last: first + uint64(n-1), records: n}
		}
		markStrays(runs, lowest)
		records, last, valid := sequence(runs, lowest, func(i int) bool { return !runs[i].stray })
		require.True(t, valid, "%+v", runs)
		for set := range 1 << len(runs) {
			r, l, ok := sequence(runs, lowest, func(i int) bool { return set>>i&1 == 1 })
			if ok && (r > records || r == records && l < last) {
				require.Fail(t, "a better one", "%b of %+v, lowest %d", set, runs, lowest)
			}
		}
	})
}

func sequence(runs []stretch, lowest uint64, in func(i int) bool) (records int, last uint64, valid bool) {
	next := lowest
	for i, r := range runs {
		if !in(i) {
			continue
		}
		if r.first < next {
			return 0, 0, false
		}
		records, last, next = records+r.records, r.last, r.last+1
	}
	return records, last, true
}

// growing is a file that a writer appends to: each time its size is taken, it is
// one step further.
type growing struct {
	*bytes.Reader
	steps [][]byte
	sizes int
}

type sizeInfo struct {
	fs.FileInfo
	size int64
}

func (s sizeInfo) Size() int64 { return s.size }

func (g *growing) Stat() (fs.FileInfo, error) {
	if g.sizes++; len(g.steps) > 0 {
		g.Reader, g.steps = bytes.NewReader(g.steps[0]), g.steps[1:]
	}
	return sizeInfo{size: g.Reader.Size()}, nil
}

func dumpGrowing(t *testing.T, states ...[]byte) (string, error) {
	t.Helper()
	var out bytes.Buffer
	f := &growing{Reader: bytes.NewReader(states[0]), steps: states[1:]}
	a := newApp(nil, &out, &out)
	d := &dumper{a: a, ctx: t.Context(), path: "00000000000000000000.log", w: newWindow(f, f.Size()), settle: time.Nanosecond}
	err := d.run(d.log)
	require.NoError(t, a.out.Flush())
	return out.String(), err
}

// What a writer is in the middle of is no damage: a record that the end
// of the file cuts, nor one that stands half written in the space prepared for
// it, nor a file that gets shorter as the writer closes it. What stays is.
func TestDump_BesideAWriter(t *testing.T) {
	file := new(logFile).records(0, 1, 2, 3, 4, 5).b
	size := len(frame(0, "record"))
	zeros := make([]byte, 3*size)
	zeroed := func(n int) []byte { return append(bytes.Clone(file[:n]), zeros...) }
	for _, c := range []struct {
		name    string
		states  [][]byte
		want    int // records
		damaged bool
	}{
		{"grows", [][]byte{file[:2*size+10], file[:4*size+3], file[:5*size+3], file}, 3, false},
		{"grows in steps inside a record", [][]byte{file[:2*size+10], file[:3*size]}, 3, false},
		{"stays torn", [][]byte{file[:2*size+10]}, 2, true},
		{"half written in prepared space", [][]byte{zeroed(2*size + 10), zeroed(3*size + 9), zeroed(4*size + 1), zeroed(5 * size), zeroed(5 * size)}, 5, false},
		{"stays half written in prepared space", [][]byte{zeroed(2*size + 10)}, 2, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, err := dumpGrowing(t, c.states...)
			require.Equal(t, c.want, strings.Count(out, `"record"`), out)
			require.Equal(t, c.damaged, err != nil, "%v\n%s", err, out)
			require.Equal(t, c.damaged, strings.Contains(out, "damage"), out)
		})
	}
}

// The file gets shorter while it is read.
func TestDump_OfAFileThatIsCut(t *testing.T) {
	name := t.TempDir() + "/00000000000000000000.log"
	file := new(logFile).records(0, 1).b
	require.NoError(t, os.WriteFile(name, append(bytes.Clone(file), make([]byte, 4*windowBytes)...), 0o600))
	f, err := os.Open(name)
	require.NoError(t, err)
	defer f.Close()
	info, err := f.Stat()
	require.NoError(t, err)
	var out bytes.Buffer
	a := newApp(nil, &out, &out)
	d := &dumper{a: a, ctx: t.Context(), path: name, w: newWindow(f, info.Size())}
	require.NoError(t, os.Truncate(name, int64(len(file))))
	require.NoError(t, d.run(d.log))
	require.NoError(t, a.out.Flush())
	require.Equal(t, 2, strings.Count(out.String(), "\n"), out.String())
}

// appending is a file that gets a few bytes more before each time that it is
// read, in place of zeros or at its end.
type appending struct {
	file     []byte
	n, step  int
	prepared bool // zeros stand where nothing was appended yet
}

func (a *appending) size() int64 {
	if a.prepared {
		return int64(len(a.file))
	}
	return int64(a.n)
}

func (a *appending) ReadAt(b []byte, pos int64) (int, error) {
	a.n = min(a.n+a.step, len(a.file))
	view := make([]byte, a.size())
	copy(view, a.file[:a.n])
	return bytes.NewReader(view).ReadAt(b, pos)
}

// Stat is called after a pause, in which a writer finishes a record.
func (a *appending) Stat() (fs.FileInfo, error) {
	a.n = min(a.n+len(frame(0, "record")), len(a.file))
	return sizeInfo{size: a.size()}, nil
}

// Whatever a writer appends between any two reads, nothing is taken for damage,
// and no record is missed.
func TestDump_WhileEachReadSeesMore(t *testing.T) {
	offsets := make([]uint64, 60)
	for i := range offsets {
		offsets[i] = uint64(i)
	}
	file := new(logFile).records(offsets...).b
	for step := range 120 {
		for _, prepared := range []bool{false, true} {
			f := &appending{file: file, n: 100, step: step, prepared: prepared}
			var out bytes.Buffer
			a := newApp(nil, &out, &out)
			d := &dumper{a: a, ctx: t.Context(), path: "00000000000000000000.log", w: newWindow(f, f.size()), settle: time.Nanosecond}
			require.NoError(t, d.run(d.log), "step %d, %v", step, prepared)
			require.NoError(t, a.out.Flush())
			require.NotContains(t, out.String(), "stray")
			for i := range strings.Count(out.String(), `"record"`) {
				require.Contains(t, out.String(), fmt.Sprintf("  offset %d, ", i), "step %d", step)
			}
		}
	}
}

// late is a file whose first reads see nothing of what was appended last.
type late struct {
	before, after []byte
	reads         int // that see before
}

func (l *late) ReadAt(b []byte, pos int64) (int, error) {
	view := l.before
	if l.reads--; l.reads < 0 {
		view = l.after
	}
	return bytes.NewReader(view).ReadAt(b, pos)
}

// What was read before the writer went on, at the beginning and again after the
// pause, is older than what is found behind it, and is read anew.
func TestDump_SeesARecordLate(t *testing.T) {
	file := new(logFile).records(0, 1, 2, 3, 4).b
	half := make([]byte, len(file))
	copy(half, file[:100])
	for reads := range 7 {
		f := &late{before: half, after: file, reads: reads}
		var out bytes.Buffer
		a := newApp(nil, &out, &out)
		d := &dumper{a: a, ctx: t.Context(), path: "00000000000000000000.log", w: newWindow(f, int64(len(file)))}
		err := d.run(d.log)
		require.NoError(t, a.out.Flush())
		if reads == 6 {
			// Half a record, and nothing behind it, before the pause and after it.
			require.Error(t, err)
			continue
		}
		require.NoError(t, err, "%d reads\n%s", reads, out.String())
		require.Equal(t, 5, strings.Count(out.String(), `"record"`))
	}
}

// A writer overwrites DURABLE in place: a checksum that is wrong once is no
// damage.
func TestDump_DurableWhileItIsWritten(t *testing.T) {
	var b [format.DurableSize]byte
	format.Durable{NextOffset: 7}.Encode(&b)
	torn := bytes.Clone(b[:])
	torn[8]++
	for reads := range 3 {
		f := &late{before: torn, after: b[:], reads: reads}
		var out bytes.Buffer
		a := newApp(nil, &out, &out)
		d := &dumper{a: a, ctx: t.Context(), path: "DURABLE", w: newWindow(f, format.DurableSize)}
		err := d.run(d.durable)
		require.NoError(t, a.out.Flush())
		require.Equal(t, reads == 2, err != nil, "%d reads: %v", reads, err)
	}
}
