package main

import (
	"testing"
	_ "time/tzdata" // the scripts print local times

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"
)

// TestMain lets the test binary be the evlog command itself, and checks that
// the tests leave no goroutine behind.
func TestMain(m *testing.M) {
	testscript.Main(leakChecked{m}, map[string]func(){"evlog": main})
}

type leakChecked struct{ m *testing.M }

func (l leakChecked) Run() int {
	code := l.m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		println(err.Error())
		return 1
	}
	return code
}
