package evlog

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Work takes as long as its rate says, until there is a hurry.
func TestPacer_UntilThereIsAHurry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hurry := make(chan struct{})
		p := &pacer{rate: 1 << 20, hurry: hurry}
		spend := func(n int64) time.Duration {
			began := time.Now()
			for ; n > 0; n -= pacerStep {
				require.NoError(t, p.spend(t.Context(), pacerStep))
			}
			return time.Since(began)
		}
		require.InDelta(t, 10*time.Second, spend(10<<20), float64(pacerBurst)+1)
		time.AfterFunc(5*time.Second, func() { close(hurry) })
		require.InDelta(t, 5*time.Second, spend(100<<20), float64(time.Second))
		require.Zero(t, spend(100<<20))

		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		slow := &pacer{rate: 1}
		began := time.Now()
		require.ErrorIs(t, slow.spend(ctx, 1<<20), context.Canceled)
		require.Equal(t, time.Second, time.Since(began))
		require.NoError(t, (*pacer)(nil).spend(ctx, 1<<40))
	})
}
