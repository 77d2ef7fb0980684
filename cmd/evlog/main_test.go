package main

import (
	"runtime/debug"
	"testing"
	_ "time/tzdata" // the scripts print local times

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"
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

// Go records a version, or make does.
func TestVersion(t *testing.T) {
	recorded := func(v string) *debug.BuildInfo { return &debug.BuildInfo{Main: debug.Module{Version: v}} }
	for _, c := range []struct {
		info    *debug.BuildInfo
		stamped string
		want    string
	}{
		{recorded("v1.2.3"), "", "v1.2.3"},
		{recorded("v1.2.3"), "4f75851-dirty", "v1.2.3"},
		{recorded("(devel)"), "4f75851-dirty", "4f75851-dirty"},
		{recorded(""), "4f75851", "4f75851"},
		{nil, "4f75851", "4f75851"},
		{nil, "", "(devel)"},
		{recorded("(devel)"), "", "(devel)"},
	} {
		require.Equal(t, c.want, versionOf(c.info, c.stamped))
	}
}
