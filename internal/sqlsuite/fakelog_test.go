package sqlsuite

import (
	"context"
	"fmt"
	"testing"

	"github.com/evlog-go/evlog/cursor/cursortest"
	"github.com/evlog-go/evlog/evlog"
)

// The log of the suite is one that consumers may rely on.
func TestFakeLog(t *testing.T) {
	cursortest.TestLog(t, func(*testing.T) cursortest.LogFixture {
		l := logOf("A", 5, 0)
		return cursortest.LogFixture{
			Log: l,
			Append: func(_ context.Context, recs ...evlog.Record) (first uint64, err error) {
				return l.append(recs...), nil
			},
			AppendAt: func(_ context.Context, recs ...evlog.Record) error {
				for _, r := range recs {
					if r.Offset < l.end() {
						return fmt.Errorf("offset %d is below the end, %d", r.Offset, l.end())
					}
					l.skip(r.Offset - l.end())
					l.append(r)
				}
				return nil
			},
			RemoveBelow: func(_ context.Context, offset uint64) error {
				l.drop(offset)
				return nil
			},
		}
	})
}
