package evlog_test

import (
	"strings"
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
