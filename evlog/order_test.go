package evlog_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/internal/vfs"
)

// The order that I1 demands, operation by operation.
func TestOrder_WriteSyncPublishAcknowledge(t *testing.T) {
	trace := vfs.NewTrace(vfs.OpWrite | vfs.OpAnySync)
	p := onFS(t, vfs.Inject(vfs.NewMem(), nil).After(trace.Record))
	l := p.open(t, &evlog.Options{NoPreallocate: true})
	trace.Reset()
	size := rec("k", "v").Size()
	for i := range int64(3) {
		_, err := l.Append(p.ctx, rec("k", "v"))
		require.NoError(t, err)
		ops := trace.Strings()
		trace.Reset()
		seg := evtest.SegmentFile(0)
		want := []string{
			fmt.Sprintf("write %s [%d,%d)", seg, i*size, (i+1)*size),
			"syncdata " + seg,
			"write DURABLE [0,32)",
		}
		// DURABLE itself may be synced behind it at any time, in the background.
		require.Equal(t, want, ops[:3])
		for _, op := range ops[3:] {
			require.Contains(t, op, "DURABLE")
		}
	}
}

// FORMAT.md, Roll: the order of the steps.
func TestOrder_Roll(t *testing.T) {
	trace := vfs.NewTrace(vfs.OpWrite | vfs.OpAnySync | vfs.OpTruncate | vfs.OpCreate | vfs.OpChtimes)
	p := onFS(t, vfs.Inject(vfs.NewMem(), nil).After(trace.Record))
	l := p.open(t, &evlog.Options{NoPreallocate: true, Sync: evlog.SyncFlush})
	_, err := l.Enqueue(p.ctx, rec("k", "v"))
	require.NoError(t, err)
	trace.Reset()
	require.NoError(t, l.Roll(p.ctx))
	old, next := evtest.SegmentFile(0), evtest.SegmentFile(1)
	var ops []string
	for _, op := range trace.Strings() {
		if !strings.Contains(op, ".idx") {
			ops = append(ops, op)
		}
	}
	size := rec("k", "v").Size()
	inOrder(t, ops,
		fmt.Sprintf("write %s [0,%d)", old, size),
		fmt.Sprintf("truncate %s %d", old, size),
		"chtimes "+old,
		"sync "+old,
		"create "+next,
		"sync "+next,
		"dirsync",
		"write DURABLE [0,32)",
		"syncdata DURABLE")
}

// inOrder asserts that want is a subsequence of ops.
func inOrder(t testing.TB, ops []string, want ...string) {
	t.Helper()
	i := 0
	for _, op := range ops {
		if i < len(want) && op == want[i] {
			i++
		}
	}
	if i < len(want) {
		require.Fail(t, "operations are missing or out of order", "%q is missing behind %q in\n%s", want[i], want[:i], strings.Join(ops, "\n"))
	}
}

func TestClose_AfterPowerLossOpensWithoutReading(t *testing.T) {
	p, m := inMem(t)
	l := p.open(t, nil)
	want := appendEach(t, p.ctx, l, numbered(0, 1000)...)
	require.NoError(t, l.Close())
	q := onFS(t, m.SyncedImage())
	sameRecs(t, want, q.all(t), "a clean close leaves everything synced")

	trace := vfs.NewTrace(vfs.OpRead)
	q = q.on(vfs.Inject(q.fsys, nil).After(trace.Record))
	l = q.open(t, nil)
	var read int64
	for _, op := range trace.Ops() {
		if isLog(op.Name) {
			read += op.Len
		}
	}
	size := int64(len(q.image(t)[evtest.SegmentFile(0)]))
	require.Less(t, read, size/4, "only the last frame is read after a clean close")
	require.NoError(t, l.Close())
}
