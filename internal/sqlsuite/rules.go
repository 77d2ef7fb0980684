package sqlsuite

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/internal/sqlrule"
	"github.com/evlog-go/evlog/sqlbridge"
)

// rule is something that sqlbridge must not do without.
type rule struct {
	name string
	// off is the part of sqlbridge that keeps the rule. Switched off, check has to
	// return an error that shows that: otherwise it would prove nothing.
	off   sqlrule.Rule
	shows string
	// bites says where the absence can be noticed; nil is everywhere.
	bites func(d Driver, m Mode) bool
	// busyMS is the busy timeout of the connections.
	busyMS int
	// check returns what is wrong. It must end also when the rule is off.
	check func(e *env) error
}

// impatient is for tests in which a lock may never go away.
var impatient = &sqlbridge.Options{BusyFor: time.Second}

func inWAL(_ Driver, m Mode) bool      { return m.wal() }
func inRollback(_ Driver, m Mode) bool { return !m.wal() }

func runRules(t *testing.T, d Driver, m Mode) {
	for _, group := range [][]rule{cursorRules, guardRules, poisonRules, lockRules} {
		for _, r := range group {
			t.Run(r.name+"/kept", func(t *testing.T) {
				e := newEnv(t, d, m, envOptions{busyMS: r.busyMS, opts: impatient})
				require.NoError(t, checkRule(r, e))
				require.NoError(t, e.cleanPool())
			})
			t.Run(r.name+"/switched_off", func(t *testing.T) {
				if r.bites != nil && !r.bites(d, m) {
					t.Skip("makes no difference here")
				}
				err := checkRule(r, newEnv(t, d, m, envOptions{busyMS: r.busyMS, off: r.off, opts: impatient}))
				require.ErrorContains(t, err, r.shows, "the test does not notice that the rule is not kept")
				require.NotEmpty(t, r.shows)
			})
		}
	}
}

// checkRule makes an error of a panic in check.
func checkRule(r rule, e *env) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return r.check(e)
}
