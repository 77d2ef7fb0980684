package evlog_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/internal/vfs"
)

// Look-ups in the active segment read what was appended since the last one, in the
// writer's process and in another, and find what reading all of it finds: through
// appends, rolls, compactions and reopenings.
func TestLatest_ActiveSegmentIsReadOnce(t *testing.T) {
	m := vfs.NewMem()
	var read atomic.Int64
	p := onFS(t, vfs.Inject(m, func(op vfs.Op) error {
		if op.Kind == vfs.OpRead {
			read.Add(op.Len)
		}
		return nil
	}))
	l := p.open(t, &evlog.Options{NoPreallocate: true})
	readers := []*evlog.Reader{l.Reader(), p.reader(t, nil)}
	const records = 20_000
	for i := range records {
		_, err := l.Enqueue(p.ctx, rec(fmt.Sprint("key-", i), "value"))
		require.NoError(t, err)
	}
	require.NoError(t, l.Flush(p.ctx))
	for i, r := range readers {
		for range 2 { // the first one reads it, the second one remembers
			_, err := r.Latest(p.ctx, []byte("none"))
			require.ErrorIs(t, err, evlog.ErrNotFound)
		}
		before := read.Load()
		_, err := r.Latest(p.ctx, []byte("none"))
		require.ErrorIs(t, err, evlog.ErrNotFound)
		none, err := collect(r.ByKey(p.ctx, []byte("none"), 0))
		require.NoError(t, err)
		require.Empty(t, none)
		got, err := r.Latest(p.ctx, []byte("key-7"))
		require.NoError(t, err)
		require.EqualValues(t, 7, got.Offset)
		require.Less(t, read.Load()-before, int64(64<<10), "reader %d", i)
	}
	appendEach(t, p.ctx, l, rec("none", "now"), rec("key-7", "again"))
	for i, r := range readers {
		before := read.Load()
		for key, want := range map[string]uint64{"none": records, "key-7": records + 1} {
			got, err := r.Latest(p.ctx, []byte(key))
			require.NoError(t, err)
			require.Equal(t, want, got.Offset)
		}
		history, err := collect(r.ByKey(p.ctx, []byte("none"), 0))
		require.NoError(t, err)
		require.Len(t, history, 1)
		require.Less(t, read.Load()-before, int64(2<<20), "reader %d reads a history", i)
	}
}

// Whatever is appended, rolled, compacted and reopened: look-ups agree with a
// brute-force search, asked again and again of the same readers.
func TestLatest_AgreesWithSearch(t *testing.T) {
	evtest.Seeds(t, 1000, func(t *testing.T, seed uint64) {
		p, _ := inMem(t)
		g := evtest.NewGen(seed)
		g.Keys = 1 + g.Rng.IntN(30)
		o := &evlog.Options{SegmentBytes: 200 + g.Rng.Int64N(4000), IndexBytes: 1 + g.Rng.Int64N(300)}
		l := p.open(t, o)
		other := p.reader(t, nil)
		for range 40 {
			switch g.Rng.IntN(8) {
			case 0:
				require.NoError(t, l.Roll(p.ctx))
			case 1:
				other = p.lets(t, other)
				compact(t, p, l, purging())
			case 2:
				require.NoError(t, l.Close())
				l = p.open(t, o)
			default:
				batch := make([]evlog.Record, 1+g.Rng.IntN(5))
				for i := range batch {
					batch[i] = g.Record()
					batch[i].Offset = 0
				}
				_, err := l.Append(p.ctx, batch...)
				require.NoError(t, err)
			}
			for _, r := range []*evlog.Reader{l.Reader(), other} {
				all, err := readAll(p.ctx, r)
				require.NoError(t, err)
				if len(all) > 0 {
					checkKeys(t, p.ctx, r, all)
				}
				_, err = r.Latest(p.ctx, []byte("no such key"))
				require.ErrorIs(t, err, evlog.ErrNotFound)
			}
		}
		require.NoError(t, l.Close())
	})
}
