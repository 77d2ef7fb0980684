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

// While the log removes segments by itself, power fails, the process is killed,
// or a sync fails, at any operation: what is left are the newest records without
// a hole, as many as were to stay, and no offset comes back. (I1, I3)
func TestRetainer_Crash(t *testing.T) {
	evtest.Seeds(t, 3000, func(t *testing.T, seed uint64) {
		rng := evtest.Rand(seed)
		const keep = 12
		m := vfs.NewMem()
		p := onFS(t, m)
		opts := &evlog.Options{SegmentBytes: 1 + rng.Int64N(300), MaxRecords: keep, NoPreallocate: true}
		l, err := evlog.Open(p.ctx, p.dir, opts)
		require.NoError(t, err)
		var removed atomic.Uint64
		var acked uint64
		syncs := rng.IntN(3) == 0
		if syncs {
			m.FailSync(vfs.OpDirSync, notAbove, 1+rng.IntN(20), errDying)
		} else {
			m.SetTornCut(m.Ops()+rng.Int64N(300), rng.IntN(50))
		}
		for range 60 {
			off, err := l.Append(p.ctx, numbered(int(acked), 1)...)
			if err != nil {
				break
			}
			require.Equal(t, acked, off)
			acked++
			if rng.IntN(10) == 0 {
				if rep, err := l.Retain(p.ctx, nil); err == nil {
					removed.Store(rep.First)
				}
			}
		}
		_ = l.Close()
		images := []*vfs.Mem{m.KillImage(), m.SyncedImage()}
		for i := range uint64(4) {
			images = append(images, m.Crash(seed+i))
		}
		for i, image := range images {
			what := fmt.Sprintf("seed %d, image %d, %d acknowledged", seed, i, acked)
			im := onFS(t, image).image(t)
			out := im.Writer()
			require.NoError(t, out.Err, what)
			require.GreaterOrEqual(t, out.Next, acked, what)
			require.GreaterOrEqual(t, im.Bases()[0], removed.Load(), "%s: what was removed is back", what)
			require.GreaterOrEqual(t, len(out.Recs), int(min(acked, keep)), what)
			for j, r := range out.Recs {
				require.Equal(t, out.Next-uint64(len(out.Recs)-j), r.Offset, "%s: a hole\n%s", what, im.Describe())
			}
			q := onFS(t, image)
			if _, err := im.Durable(); err == nil { // a reader would wait
				r := q.reader(t, nil)
				require.NoError(t, answers(q, r, everyRecord(im), evtest.Rand(seed+uint64(i))), what)
				require.NoError(t, r.Close())
			}
			// Once more, and to the end.
			again := q.open(t, nil)
			appendEach(t, q.ctx, again, numbered(int(out.Next), 3)...)
			rep := retain(t, q, again, evlog.RetainOptions{})
			require.NoError(t, again.Close())
			recs := q.all(t)
			require.GreaterOrEqual(t, len(recs), int(min(out.Next+3, keep)), what)
			require.Equal(t, rep.First, q.image(t).Bases()[0])
			q.verified(t)
			eachIndex(q.image(t), func(name string) {
				require.GreaterOrEqual(t, name, evtest.IndexFile(rep.First), "%s: an index without its segment", what)
			})
		}
	})
}
