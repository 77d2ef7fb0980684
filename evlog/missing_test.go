package evlog_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
)

// cutAtRecord makes a log with a closed segment of 6 records, of which the last
// ones are gone, so that what is left is valid.
func cutAtRecord(t *testing.T, left int, key func(i int) string) place {
	p, _ := inMem(t)
	l := p.open(t, &evlog.Options{NoPreallocate: true})
	for i := range 6 {
		_, err := l.Append(p.ctx, rec(key(i), fmt.Sprint("value ", i)))
		require.NoError(t, err)
	}
	require.NoError(t, l.Roll(p.ctx))
	_, err := l.Append(p.ctx, rec("", "behind"))
	require.NoError(t, err)
	reindex(t, p, l) // with its filter
	require.NoError(t, l.Close())
	p.verified(t)
	im := p.image(t)
	name := evtest.SegmentFile(0)
	im[name] = im[name][:len(im[name])/6*left]
	p.put(t, im)
	return p
}

func noKey(int) string { return "" }

// A closed segment without keys that has become shorter has lost records, since
// compaction cannot have removed them: it is damage although all that is left is
// valid. It is told until repair, also beside writers.
func TestVerify_CutAtRecord(t *testing.T) {
	for _, left := range []int{0, 1, 5} {
		p := cutAtRecord(t, left, noKey)
		require.NoError(t, p.open(t, nil).Close(), "a writer does not do away with the evidence")
		rep, err := evlog.Verify(p.ctx, p.dir, nil)
		require.NoError(t, err)
		require.False(t, rep.OK())
		fatal := rep.Problems[0]
		require.True(t, fatal.Fatal)
		require.ErrorContains(t, fatal.Err, "cut at the end of a record")
		require.EqualValues(t, left, fatal.Offset)
		require.EqualValues(t, 6-left, fatal.LostOffsets)

		plan, err := evlog.Repair(p.ctx, p.dir, &evlog.RepairOptions{Execute: true})
		require.NoError(t, err)
		require.Len(t, plan.Steps, 1)
		require.Equal(t, evlog.OffsetRange{From: uint64(left), To: 6}, plan.Steps[0].Gap)
		rep, err = evlog.Verify(p.ctx, p.dir, nil)
		require.NoError(t, err)
		require.True(t, rep.OK(), "the gap is known")
		l := p.open(t, nil)
		soon(t, "the index is written anew", func() bool {
			rep, err := evlog.Verify(p.ctx, p.dir, nil)
			return err == nil && len(rep.Problems) == 0
		})
		require.NoError(t, l.Close())
	}
}

// With keys it may be a compaction that died before it had put the index in place.
func TestVerify_ShorterWithKeys(t *testing.T) {
	p := cutAtRecord(t, 4, func(i int) string { return fmt.Sprint("k", i) })
	rep, err := evlog.Verify(p.ctx, p.dir, nil)
	require.NoError(t, err)
	require.True(t, rep.OK())
	require.Len(t, rep.Problems, 1)
	l := p.open(t, nil)
	soon(t, "the index is written anew", func() bool {
		rep, err := evlog.Verify(p.ctx, p.dir, nil)
		return err == nil && len(rep.Problems) == 0
	})
	require.NoError(t, l.Close())
}
