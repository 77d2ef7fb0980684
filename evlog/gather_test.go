package evlog

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Who was told of a commit is expected back beside those who have joined the next
// one; where they stay away, they are given up bit by bit.
func TestGathering_Expect(t *testing.T) {
	var g gathering
	g.covered = 3
	g.expect(2)
	require.EqualValues(t, 5, g.expected)
	g.covered = 4
	g.expect(12)
	require.EqualValues(t, 16, g.expected, "more are believed at once")

	var seen []int64
	g.covered = 1
	for range 20 {
		g.expect(0)
		seen = append(seen, g.expected)
	}
	require.Equal(t, []int64{14, 12, 10, 8, 7, 6, 5, 4, 3, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, seen)
}
