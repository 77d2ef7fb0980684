package bench

import (
	"fmt"
	"testing"

	"github.com/evlog-go/evlog/internal/bench/limit"
	"github.com/evlog-go/evlog/internal/bench/turns"
	"github.com/evlog-go/evlog/internal/sqlsuite"
	"github.com/evlog-go/evlog/sqlbridge"
)

// SQLBridge: records of a log applied to a table by sqlbridge.Run. The limit is
// the same rows written without any log or cursor, in transactions of the same
// size, with a prepared statement; by-hand has a cursor of its own in addition,
// one prepared UPDATE in each transaction, and is what can be had without the
// bridge. WAL, FULL. batch=1 is a transaction for each record, and about what
// the disk takes for a sync.
func BenchmarkSQLBridge(b *testing.B) {
	for _, c := range []struct {
		batch, records int
		poison         sqlbridge.Poison
	}{
		{1000, 20_000, sqlbridge.Stop},
		{1000, 20_000, sqlbridge.Skip},
		{100, 10_000, sqlbridge.Stop},
		{1, 300, sqlbridge.Stop},
	} {
		poison := map[sqlbridge.Poison]string{sqlbridge.Stop: "stop", sqlbridge.Skip: "skip"}[c.poison]
		b.Run(fmt.Sprintf("batch=%d/poison=%s", c.batch, poison), func(b *testing.B) {
			x := sqlsuite.NewBench(b, sqlsuite.Driver{Name: "sqlite"}, sqlsuite.Modes[0],
				limit.Records(c.records, 100), c.batch, sqlbridge.RunOptions{Poison: c.poison})
			turns.Take(b, limit.RecordSize(100),
				&turns.Side{Name: "evlog", Ops: c.records, Before: x.Reset, Run: func(int) { x.Bridge() }},
				&turns.Side{Name: "limit", Ops: c.records, Before: x.Reset, Run: func(int) { x.Plain(false) }},
				&turns.Side{Name: "by-hand", Ops: c.records, Before: x.Reset, Run: func(int) { x.Plain(true) }})
		})
	}
}
