package invariant_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/internal/invariant"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	invariant.Check(true, "fine")
	if invariant.Enabled {
		require.PanicsWithValue(t, "invariant violated: 2 > 1", func() {
			invariant.Check(false, "%d > %d", 2, 1)
		})
	} else {
		invariant.Check(false, "not looked at")
	}
}

func TestCheck_CostsNothingWhenOff(t *testing.T) {
	if invariant.Enabled {
		t.Skip("it is on")
	}
	n := 0
	require.Zero(t, testing.AllocsPerRun(100, func() {
		n++
		if invariant.Enabled {
			invariant.Check(n > 0, "counted %d", n)
		}
	}))
}
