package evlog_test

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/internal/vfs"
)

// A segment of which nothing is wanted is merged into the one below it, whose file
// stays what it was, and gets an index with another end. Who opened that file
// between the two steps has the index of before, and must not take the segment
// that is gone for a missing one.
func TestBackward_OpenedInsideMerge(t *testing.T) {
	p, mem := inMem(t)
	var inside atomic.Pointer[func()]
	p = p.on(vfs.Inject(mem, nil).After(func(op vfs.Op, err error) {
		if f := inside.Load(); f != nil && op.Kind == vfs.OpRename && op.To == evtest.SegmentFile(0) {
			(*f)()
		}
	}))
	l := p.open(t, &evlog.Options{SegmentBytes: 1000})
	appendOne := func(key string, size int) {
		_, err := l.Append(p.ctx, evlog.Record{Key: []byte(key), Value: make([]byte, size)})
		require.NoError(t, err)
	}
	appendOne("a", 5)
	require.NoError(t, l.Roll(p.ctx))
	appendOne("b", 5)
	require.NoError(t, l.Roll(p.ctx))
	appendOne("b", 600) // too large to be merged
	require.NoError(t, l.Roll(p.ctx))
	want := recsOf(t, p, l, 0, 2)

	r := p.reader(t, nil)
	times := 0
	read := func() {
		times++
		_, err := collect(r.Backward(p.ctx, 99))
		require.NoError(t, err)
	}
	inside.Store(&read)
	rep, err := l.Compact(p.ctx, fast())
	require.NoError(t, err)
	require.NotZero(t, times, "%+v", rep)
	inside.Store(nil)
	got, err := collect(r.Backward(p.ctx, 99))
	require.NoError(t, err)
	sameRecs(t, reversed(want), got, "after the merge")
}

// recsOf reads single records.
func recsOf(t *testing.T, p place, l *evlog.Log, offsets ...uint64) (recs []evtest.Rec) {
	for _, off := range offsets {
		rec, err := l.Reader().Get(p.ctx, off)
		require.NoError(t, err)
		recs = append(recs, evtest.RecOf(rec))
	}
	return recs
}
