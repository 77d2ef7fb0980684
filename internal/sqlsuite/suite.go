// Package sqlsuite tests package sqlbridge on an SQLite driver. The same suite
// runs in the tests of sqlbridge on modernc.org/sqlite, and in the module
// internal/drivers on the drivers that this module does not depend on.
//
// Its heart is a table of rules (see rules.go): each test passes while the rule
// is kept, and is shown to fail when the rule is switched off in sqlbridge.
package sqlsuite

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Driver is a driver under test.
type Driver struct {
	// Name is what it is registered as with database/sql.
	Name string
}

// Mode is how a database keeps its transactions.
type Mode struct{ Name, Journal, Sync string }

// Modes are those in which exactly once is promised.
var Modes = []Mode{
	{"wal_full", "WAL", "FULL"},
	{"wal_normal", "WAL", "NORMAL"},
	{"rollback", "DELETE", "FULL"},
}

func (m Mode) wal() bool { return m.Journal == "WAL" }

// dsn is understood by every driver, because each ignores what it does not know.
// Transactions are deferred, since that is what has the traps.
func (m Mode) dsn(path string, busyMS int) string {
	return fmt.Sprintf("file:%s?_txlock=deferred"+
		"&_pragma=busy_timeout(%d)&_pragma=journal_mode(%s)&_pragma=synchronous(%s)"+
		"&_busy_timeout=%d&_journal_mode=%s&_synchronous=%s",
		filepath.ToSlash(path), busyMS, m.Journal, m.Sync, busyMS, m.Journal, m.Sync)
}

// Run runs all of the suite.
func Run(t *testing.T, d Driver) {
	for _, m := range Modes {
		t.Run(m.Name, func(t *testing.T) {
			t.Run("rules", func(t *testing.T) { runRules(t, d, m) })
			t.Run("behaviour", func(t *testing.T) { runBehaviour(t, d, m) })
			t.Run("kill", func(t *testing.T) { runKill(t, d, m) })
		})
	}
	t.Run("check", func(t *testing.T) { runCheck(t, d) })
}

const childEnv = "EVLOG_SQLSUITE_CHILD"

// Main is the TestMain of a package that calls Run: the suite starts the test
// binary once more, to kill it.
func Main(m *testing.M, d Driver) {
	if args := os.Getenv(childEnv); args != "" {
		if err := applyChild(d, strings.Split(args, "\n")); err != nil {
			fmt.Fprintln(os.Stderr, "child:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// newSeed is another one in each run, or EVLOG_SEED.
func newSeed(t testing.TB) uint64 {
	seed := uint64(time.Now().UnixNano()) % 1_000_000_000
	if s, err := strconv.ParseUint(os.Getenv("EVLOG_SEED"), 10, 64); err == nil {
		seed = s
	}
	t.Logf("run again with EVLOG_SEED=%d", seed)
	return seed
}
