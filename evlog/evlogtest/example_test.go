package evlogtest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/evlog/evlogtest"
)

// A test of something that writes events: a log in memory, a clock that stands
// still, and a power failure at the end.
func Example() {
	test := func(t testing.TB) {
		clock := evlogtest.NewClock(time.Date(2026, 9, 20, 3, 0, 0, 0, time.UTC))
		dir := evlogtest.NewMemDir(t)
		ctx := dir.Context()

		log := dir.Open(&evlog.Options{Clock: clock})
		if _, err := log.Append(ctx, evlog.Record{Value: []byte("started")}); err != nil {
			t.Fatal(err)
		}
		clock.Advance(time.Minute)
		if _, err := log.Append(ctx, evlog.Record{Value: []byte("done")}); err != nil {
			t.Fatal(err)
		}

		after := dir.Crash(1)
		log = after.Open(nil)
		for rec, err := range log.Reader().Records(after.Context(), 0) {
			if err != nil {
				t.Fatal(err)
			}
			fmt.Printf("%d %s %s\n", rec.Offset, rec.Time.Format(time.TimeOnly), rec.Value)
		}
	}
	runAsTest(test)
	// Output:
	// 0 03:00:00 started
	// 1 03:01:00 done
}
