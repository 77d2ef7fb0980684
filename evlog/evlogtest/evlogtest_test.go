package evlogtest_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/evlog/evlogtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestClock_TimersFireInOrder(t *testing.T) {
	start := time.UnixMilli(1_700_000_000_000)
	c := evlogtest.NewClock(start)
	var _ evlog.Clock = c
	late, _ := c.Timer(3 * time.Second)
	early, _ := c.Timer(time.Second)
	stopped, stop := c.Timer(time.Second)
	now, _ := c.Timer(0)
	<-now
	stop()
	c.Advance(999 * time.Millisecond)
	require.Empty(t, early)
	c.Advance(time.Millisecond)
	require.Equal(t, start.Add(time.Second), <-early)
	require.Empty(t, late)
	require.Empty(t, stopped)
	c.Advance(time.Hour)
	require.Equal(t, start.Add(3*time.Second), <-late)
	require.Equal(t, start.Add(time.Hour+time.Second), c.Now())
	require.Equal(t, time.Hour+time.Second, c.Elapsed())
}

func TestClock_WallJumpsAlone(t *testing.T) {
	c := evlogtest.NewClock(time.UnixMilli(0))
	timer, _ := c.Timer(time.Minute)
	c.SetWall(time.UnixMilli(1_700_000_000_000))
	require.Zero(t, c.Elapsed())
	require.Empty(t, timer)
	c.SetWall(time.UnixMilli(-5))
	c.Advance(time.Minute)
	require.Equal(t, time.UnixMilli(-5).Add(time.Minute), <-timer)
}

func TestClock_WaitTimers(t *testing.T) {
	c := evlogtest.NewClock(time.UnixMilli(0))
	go c.Timer(time.Second)
	c.WaitTimers(1)
}

func TestDir_ReopensAndReads(t *testing.T) {
	for _, dir := range []*evlogtest.Dir{evlogtest.NewDir(t), evlogtest.NewMemDir(t)} {
		ctx := dir.Context()
		l := dir.Open(nil)
		_, err := l.Append(ctx, evlog.Record{Value: []byte("a")})
		require.NoError(t, err)
		require.NoError(t, l.Close())
		l = dir.Open(nil)
		off, err := l.Append(ctx, evlog.Record{Value: []byte("b")})
		require.NoError(t, err)
		require.EqualValues(t, 1, off)
		r, err := dir.Reader(nil).Get(ctx, 1)
		require.NoError(t, err)
		require.Equal(t, "b", string(r.Value))
		require.EqualValues(t, 2, dir.Verify().Records)
	}
}

func TestDir_CrashKeepsWhatWasAcknowledged(t *testing.T) {
	dir := evlogtest.NewMemDir(t)
	ctx := dir.Context()
	l := dir.Open(&evlog.Options{Sync: evlog.SyncFlush})
	_, err := l.Append(ctx, evlog.Record{Value: []byte("acknowledged")})
	require.NoError(t, err)
	_, err = l.Enqueue(ctx, evlog.Record{Value: []byte("only enqueued")})
	require.NoError(t, err)
	for seed := range uint64(5) {
		after := dir.Crash(seed)
		r, err := after.Open(nil).Reader().Get(after.Context(), 0)
		require.NoError(t, err)
		require.Equal(t, "acknowledged", string(r.Value))
	}
	killed := dir.Kill()
	require.EqualValues(t, 1, killed.Open(nil).Stats().NextOffset)
}

func TestDir_DiskFull(t *testing.T) {
	dir := evlogtest.NewMemDir(t)
	l := dir.Open(&evlog.Options{NoPreallocate: true})
	_, err := l.Append(dir.Context(), evlog.Record{Value: []byte("fits")})
	require.NoError(t, err)
	dir.Limit(10)
	_, err = l.Append(dir.Context(), evlog.Record{Value: []byte("has no room")})
	require.ErrorContains(t, err, "no space")
	dir.Limit(-1)
	off, err := l.Append(dir.Context(), evlog.Record{Value: []byte("fits again")})
	require.NoError(t, err)
	require.EqualValues(t, 2, off, "the failed one left a hole")
}

// recorder is a testing.TB that only notes what went wrong.
type recorder struct {
	testing.TB
	failed []string
	clean  []func()
}

func (r *recorder) Errorf(format string, args ...any) {
	r.failed = append(r.failed, fmt.Sprintf(format, args...))
}
func (r *recorder) Cleanup(f func()) { r.clean = append(r.clean, f) }
func (r *recorder) finish() {
	for i := len(r.clean) - 1; i >= 0; i-- {
		r.clean[i]()
	}
}

func TestDir_ProblemsFailTheTest(t *testing.T) {
	rec := &recorder{TB: t}
	dir := evlogtest.NewMemDir(rec)
	ctx := dir.Context()
	l := dir.Open(&evlog.Options{SegmentBytes: 1})
	for range 3 {
		_, err := l.Append(ctx, evlog.Record{Value: []byte("v")})
		require.NoError(t, err)
	}
	evlogtest.FlipByte(t, dir, "00000000000000000000.log", 3)
	rec.finish()
	require.NotEmpty(t, rec.failed)
	require.True(t, strings.Contains(rec.failed[0], "00000000000000000000.log"), rec.failed)
}
