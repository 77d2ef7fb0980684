package outbox

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// Ids below a batch can be given out again while its rows wait to be deleted, and
// a relay that is never idle must come to them.
func TestRelay_IDsToRead(t *testing.T) {
	const lowest, highest = math.MinInt64, math.MaxInt64
	for _, c := range []struct {
		name string
		done []int64
		want [][2]int64
	}{
		{"nothing_to_delete", nil, [][2]int64{{lowest, highest}}},
		{"one", []int64{5}, [][2]int64{{lowest, 4}, {6, highest}}},
		{"some", []int64{-3, 1, 8}, [][2]int64{{lowest, -4}, {9, highest}}},
		{"from_the_lowest", []int64{lowest, 0}, [][2]int64{{1, highest}}},
		{"up_to_the_highest", []int64{0, highest}, [][2]int64{{lowest, -1}}},
		{"all", []int64{lowest, highest}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var r relay
			for _, id := range c.done {
				r.done.rows = append(r.done.rows, rowRef{id: id})
			}
			require.Equal(t, c.want, r.idsToRead())
		})
	}
}
