package evlog_test

import (
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/internal/vfs"
)

// A segment that is looked into while it is being replaced is open and known to
// have been the right file. When the replacement has returned it is not.
func TestGet_WhileTheSegmentIsReplaced(t *testing.T) {
	var l *evlog.Log
	var p place
	met := false
	p = onFS(t, vfs.Inject(vfs.NewMem(), func(op vfs.Op) error {
		if op.Kind == vfs.OpRename && op.To == evtest.SegmentFile(0) && l != nil {
			met = true
			for range 2 { // the first one opens the file, the second one finds it open
				r, err := l.Reader().Get(p.ctx, 0)
				require.NoError(t, err)
				require.Equal(t, uint64(0), r.Offset)
			}
		}
		return nil
	}))
	// Two halves of a segment are too large to be merged.
	l = p.open(t, &evlog.Options{NoPreallocate: true, SegmentBytes: 1000})
	half := strings.Repeat("x", 600)
	appendEach(t, p.ctx, l, rec("a", "1"), rec("b", half))
	require.NoError(t, l.Roll(p.ctx))
	appendEach(t, p.ctx, l, rec("a", half))
	require.NoError(t, l.Roll(p.ctx))
	_, err := l.Reader().Get(p.ctx, 0) // so that its index is known
	require.NoError(t, err)

	rep := compact(t, p, l, fast())
	require.True(t, met)
	require.Equal(t, uint64(1), rep.Superseded)
	r, err := l.Reader().Get(p.ctx, 0)
	require.NoError(t, err)
	require.Equal(t, uint64(1), r.Offset, "what was compacted away is read again")
}

// Whoever has seen that a record is durable need not ask again, while its file is open:
// another file of that name may be another log's. What is new is asked for.
func TestGet_AsksNobodyForWhatIsKnown(t *testing.T) {
	p, m := inMem(t)
	l := p.open(t, tiny())
	want := appendEach(t, p.ctx, l, numbered(0, 20)...)
	quiet(t, p)
	var asked atomic.Int64
	q := p.on(vfs.Inject(m, func(op vfs.Op) error {
		if op.Name == "DURABLE" && op.Kind == vfs.OpRead {
			asked.Add(1)
		}
		return nil
	}))
	r := q.reader(t, nil)
	get := func(offset uint64) evtest.Rec {
		rec, err := r.Get(q.ctx, offset)
		require.NoError(t, err)
		return evtest.RecOf(rec)
	}
	require.True(t, get(19).Same(want[19]))
	require.EqualValues(t, 1, asked.Load())
	all := func() {
		for i := range want {
			require.True(t, get(uint64(i)).Same(want[i]))
		}
	}
	all() // opens each segment
	opened := asked.Load()
	require.Less(t, opened, int64(len(want)))
	all()
	require.Equal(t, opened, asked.Load())

	_, err := r.Get(q.ctx, 20)
	require.ErrorIs(t, err, evlog.ErrNotFound)
	more := appendEach(t, p.ctx, l, numbered(20, 1)...)
	require.True(t, get(20).Same(more[0]))
	require.Equal(t, opened+2, asked.Load())
}

// Behind a damaged record nobody knows what is a record: reading ends there, also for
// a look-up that begins before it, the first time and later.
func TestGet_BehindDamage(t *testing.T) {
	p := placeWith(t, build().segment(0, 0, 1, 2, 3, 5, 6).durable(7, 0).im)
	l := p.open(t, nil)
	require.NoError(t, l.Roll(p.ctx))
	quiet(t, p)
	require.NoError(t, l.Close())
	im := p.image(t)
	s := evtest.DecodeSegment(0, im[evtest.SegmentFile(0)])
	im[evtest.SegmentFile(0)][s.Pos[2]+s.Recs[2].Size()-1] ^= 1
	p.put(t, im)
	r := p.reader(t, nil)
	for range 3 {
		for _, offset := range []uint64{0, 1} {
			rec, err := r.Get(p.ctx, offset)
			require.NoError(t, err)
			require.Equal(t, offset, rec.Offset)
		}
		for _, offset := range []uint64{2, 3, 4, 5, 6} {
			_, err := r.Get(p.ctx, offset)
			var damage *evlog.CorruptError
			require.ErrorAs(t, err, &damage)
			require.Equal(t, s.Pos[2], damage.Pos)
		}
	}
}

// A log of records that were read from another one holds whole records, with valid
// checksums and with the offsets that they have here, or others that fit. One bit that
// is wrong may lead from one record into the value of a later one. Whichever bit that
// is, nothing is taken for a record that is none.
func TestGet_ValuesThatHoldRecords(t *testing.T) {
	for name, inner := range map[string]func(offset uint64) []byte{
		"the same offset": func(offset uint64) []byte {
			return evtest.EncodeRec(evtest.RecOf(evlog.Record{Offset: offset, Value: []byte("not appended here")}))
		},
		"those that follow": func(offset uint64) (b []byte) {
			for next := offset; next < offset+3; next++ {
				b = append(b, evtest.EncodeRec(evtest.RecOf(evlog.Record{Offset: next, Value: []byte("nor here")}))...)
			}
			return b
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, m := inMem(t)
			l := p.open(t, nil)
			var wrote []evlog.Record
			for offset := range uint64(8) {
				wrote = append(wrote, rec("abcd", string(inner(offset)))) // 32 bytes in front of the value
			}
			want := appendEach(t, p.ctx, l, wrote...)
			require.NoError(t, l.Close())
			d, err := m.OpenDir(p.dir)
			require.NoError(t, err)
			defer d.Close()
			f, err := d.OpenFile(evtest.SegmentFile(0), os.O_RDWR, 0)
			require.NoError(t, err)
			defer f.Close()
			whole := p.image(t)[evtest.SegmentFile(0)]
			var bits []int
			for _, pos := range evtest.DecodeSegment(0, whole).Pos {
				for bit := range 32 { // of the length, which leads to the next record
					bits = append(bits, 8*int(pos)+bit)
				}
			}
			rng := evtest.Rand(evtest.Seed(t))
			for range evtest.Count(10_000) {
				bits = append(bits, rng.IntN(8*len(whole)))
			}
			damaged := 0
			for _, bit := range bits {
				_, err := f.WriteAt([]byte{whole[bit/8] ^ 1<<(bit%8)}, int64(bit/8))
				require.NoError(t, err)
				r := p.reader(t, nil)
				for _, w := range want {
					got, err := r.Get(p.ctx, w.Offset)
					if err == nil {
						require.True(t, w.Same(evtest.RecOf(got)), "bit %d: want %v, got %v", bit, w, evtest.RecOf(got))
						continue
					}
					require.ErrorIs(t, err, evlog.ErrCorrupt)
					damaged++
				}
				require.NoError(t, r.Close())
				_, err = f.WriteAt(whole[bit/8:bit/8+1], int64(bit/8))
				require.NoError(t, err)
			}
			require.Positive(t, damaged)
		})
	}
}

// A look-up in a segment with as many index entries as one of the default size has
// reads the index once and then never again, whatever is looked up; in a larger one it
// reads at most one block of it.
func TestGet_ReadsTheIndexOnce(t *testing.T) {
	const whole = evlog.DefaultSegmentBytes / evlog.DefaultIndexBytes
	for name, c := range map[string]struct{ records, step, most int }{
		"default": {whole, 1, 0},
		"larger":  {2 * whole, 97, 1},
	} {
		t.Run(name, func(t *testing.T) {
			p, m := inMem(t)
			l := p.open(t, &evlog.Options{IndexBytes: 1}) // an entry for each record
			_, err := l.Append(p.ctx, numbered(0, c.records)...)
			require.NoError(t, err)
			require.NoError(t, l.Roll(p.ctx))
			quiet(t, p)
			reads := 0
			q := p.on(vfs.Inject(m, func(op vfs.Op) error {
				if op.Kind == vfs.OpRead && strings.HasSuffix(op.Name, ".idx") {
					reads++
				}
				return nil
			}))
			r := q.reader(t, nil)
			get := func(offset int) {
				rec, err := r.Get(q.ctx, uint64(offset))
				require.NoError(t, err)
				require.EqualValues(t, offset, rec.Offset)
			}
			for i := 0; i < c.records; i += 7 {
				get(i)
			}
			require.NotZero(t, reads)
			for i := 0; i < c.records; i += c.step {
				before := reads
				get(i * 31 % c.records)
				require.LessOrEqual(t, reads-before, c.most, "offset %d", i*31%c.records)
			}
		})
	}
}
