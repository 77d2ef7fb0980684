package bench

import (
	"fmt"
	"testing"

	"github.com/evlog-go/evlog/internal/sqlsuite"
	"github.com/evlog-go/evlog/sqlbridge"
)

// SQLBridge: records of a log applied to a table by sqlbridge.Run, beside the
// same rows written without any log or cursor: ratio is against that. WAL, FULL.
// batch=1 is a transaction for each record.
func BenchmarkSQLBridge(b *testing.B) {
	for _, c := range []struct {
		batch, records int
		poison         sqlbridge.Poison
	}{
		{1000, 50_000, sqlbridge.Stop},
		{1000, 50_000, sqlbridge.Skip},
		{100, 20_000, sqlbridge.Stop},
		{1, 500, sqlbridge.Stop},
	} {
		poison := map[sqlbridge.Poison]string{sqlbridge.Stop: "stop", sqlbridge.Skip: "skip"}[c.poison]
		b.Run(fmt.Sprintf("batch=%d/poison=%s", c.batch, poison), func(b *testing.B) {
			x := sqlsuite.NewBench(b, sqlsuite.Driver{Name: "sqlite"}, sqlsuite.Modes[0],
				makeRecords(c.records, 100), c.batch, sqlbridge.RunOptions{Poison: c.poison})
			takeTurns(b, recordSize(100),
				&side{name: "evlog", ops: c.records, before: x.Reset, run: func(int) { x.Bridge() }},
				&side{name: "limit", ops: c.records, before: x.Reset, run: func(int) { x.Plain() }})
		})
	}
}
