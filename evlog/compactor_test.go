package evlog_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/evlog/evlogtest"
)

// A clock that is set back does not keep a quiet active segment open for as long
// as it was set back: its age begins anew when that is seen.
func TestCompactor_RollsAfterTheClockWasSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := inMem(t)
		clock := evlogtest.NewClock(noon)
		l := p.open(t, &evlog.Options{Compact: evlog.On, TombstoneGrace: time.Hour, NoPreallocate: true, Clock: clock})
		appendEach(t, p.ctx, l, rec("a", "1"), rec("a", "2"))
		synctest.Wait()
		clock.SetWall(noon.Add(-10 * 24 * time.Hour))
		for range 2 * 60 {
			require.Zero(t, l.Stats().Rolls)
			clock.Advance(time.Minute)
			synctest.Wait()
		}
		require.EqualValues(t, 1, l.Stats().Rolls)
		require.NoError(t, l.Close())
	})
}
