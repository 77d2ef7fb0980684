package clock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/internal/clock"
)

// Both steady clocks go forwards, and the one that counts from the start of the
// machine is no slower.
func TestSystem_SinceBoot(t *testing.T) {
	c := clock.NewSystem()
	boot, elapsed := c.SinceBoot(), c.Elapsed()
	time.Sleep(20 * time.Millisecond)
	passed := c.Elapsed() - elapsed
	require.GreaterOrEqual(t, passed, 20*time.Millisecond)
	require.GreaterOrEqual(t, c.SinceBoot()-boot, passed-time.Millisecond)
}
