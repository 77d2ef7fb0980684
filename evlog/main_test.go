package evlog_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// children are what this test binary can be when a test starts it once more as
// a process of its own.
var children = map[string]func(args []string) error{}

const childEnv = "EVLOG_TEST_CHILD"

func TestMain(m *testing.M) {
	if name := os.Getenv(childEnv); name != "" {
		if err := children[name](os.Args[1:]); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}
