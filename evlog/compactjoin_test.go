package evlog_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/vfs"
)

// What stays of neighbours goes into one file in the pass in which they change, up
// to the size at which the writer rolls and not beyond: where the number of records
// that stay says how much it is, nothing is copied twice; and where it does not,
// because those that go are the small ones, what is too much is taken out again.
func TestCompact_JoinsNoMoreThanASegment(t *testing.T) {
	const limit = 10_000
	for _, cap := range []struct {
		name string
		opts evlog.Options
	}{
		{"SegmentBytes", evlog.Options{SegmentBytes: limit}},
		{"MaxBytes", evlog.Options{MaxBytes: 4 * limit}},
	} {
		for _, c := range []struct {
			name  string
			sizes []int // of the values in each segment; the first one stays
			want  int   // segments of 24 that are left
			exact bool
		}{
			{"all of one size", []int{1500, 1500}, 4, true},
			{"the small ones go", []int{6000, 1, 1, 1, 1, 1}, 24, false},
		} {
			t.Run(cap.name+", "+c.name, func(t *testing.T) {
				m := vfs.NewMem()
				var written atomic.Int64
				p := onFS(t, vfs.Inject(m, func(op vfs.Op) error {
					if op.Kind == vfs.OpWrite && strings.HasSuffix(op.Name, ".log.tmp") {
						written.Add(op.Len)
					}
					return nil
				}))
				o := cap.opts
				o.NoRetention, o.NoPreallocate = true, true
				l := p.open(t, &o)
				for i := range 24 {
					for k, size := range c.sizes {
						key := fmt.Sprint("once ", i)
						if k > 0 {
							key = fmt.Sprint("again ", k)
						}
						appendEach(t, p.ctx, l, rec(key, string(make([]byte, size))))
					}
					require.NoError(t, l.Roll(p.ctx))
				}
				for k := range c.sizes[1:] { // so that those in the last one go too
					appendEach(t, p.ctx, l, rec(fmt.Sprint("again ", k+1), ""))
				}
				require.NoError(t, l.Roll(p.ctx))
				quiet(t, p)
				written.Store(0)
				compact(t, p, l, purging())
				var sizes []int
				var sum int64
				for _, s := range p.image(t).Segments() {
					require.LessOrEqual(t, s.End, int64(limit))
					if s.End > 0 {
						sizes, sum = append(sizes, int(s.End)), sum+s.End
					}
				}
				require.Len(t, sizes, c.want, "%v", sizes)
				if c.exact {
					require.LessOrEqual(t, written.Load(), sum)
				}
				require.Len(t, p.all(t), 24)
				p.verified(t)
				require.NoError(t, l.Close())
			})
		}
	}
}
