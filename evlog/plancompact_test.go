package evlog_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/evtest"
	"github.com/evlog-go/evlog/internal/vfs"
)

// A plan that is made while another process compacts finds no damage in a file that
// has become shorter since it was looked at.
func TestPlanCompact_BesideACompaction(t *testing.T) {
	for at := int32(1); ; at++ {
		p, _ := inMem(t)
		l := p.open(t, &evlog.Options{SegmentBytes: 300, NoCompaction: true})
		for i := range 40 { // of three keys, so that little is left of each segment
			_, err := l.Append(p.ctx, rec([]string{"a", "b", "c"}[i%3], "a value"))
			require.NoError(t, err)
		}
		require.NoError(t, l.Roll(p.ctx))
		quiet(t, p)

		var opened atomic.Int32
		var armed atomic.Bool
		q := p.on(vfs.Inject(p.fsys, func(op vfs.Op) error {
			if armed.Load() && op.Kind == vfs.OpOpen && op.Name == evtest.SegmentFile(0) && opened.Add(1) == at {
				compact(t, p, l, fast())
			}
			return nil
		}))
		r := q.reader(t, nil)
		armed.Store(true)
		plan, err := r.PlanCompact(q.ctx, fast())
		require.NoError(t, err)
		require.Empty(t, plan.Refused, "compacted at the %d. look", at)
		require.NoError(t, l.Close())
		if opened.Load() < at {
			require.Greater(t, at, int32(2), "looked at, and read")
			return
		}
	}
}

// So does one of many passes, which goes on in the middle of a file.
func TestPlanCompact_OfManyPassesBesideACompaction(t *testing.T) {
	for at := int32(1); at < 600; at++ {
		p, _ := inMem(t)
		l := p.open(t, &evlog.Options{SegmentBytes: 20000, NoCompaction: true})
		for i := range 600 {
			k := fmt.Sprint("unique", i)
			if i%3 == 0 {
				k = "dup"
			}
			_, err := l.Append(p.ctx, rec(k, strings.Repeat("v", i%17)))
			require.NoError(t, err)
		}
		require.NoError(t, l.Roll(p.ctx))
		quiet(t, p)
		var opened atomic.Int32
		var armed atomic.Bool
		q := p.on(vfs.Inject(p.fsys, func(op vfs.Op) error {
			if armed.Load() && op.Kind == vfs.OpOpen && strings.HasSuffix(op.Name, ".log") && opened.Add(1) == at {
				compact(t, p, l, fast())
			}
			return nil
		}))
		r := q.reader(t, nil)
		armed.Store(true)
		o := fast()
		o.MemoryBytes = 32 * 40
		plan, err := r.PlanCompact(q.ctx, o)
		require.NoError(t, err)
		if len(plan.Refused) > 0 {
			t.Errorf("at %d: passes %d: %v", at, plan.Passes, plan.Refused)
		}
		require.NoError(t, l.Close())
		if opened.Load() < at {
			return
		}
	}
}
