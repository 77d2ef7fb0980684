package sqlbridge_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Users choose their SQLite driver: two copies of one in a binary would panic.
// And who wants only a log gets no SQL at all.
func TestDeps(t *testing.T) {
	deps := func(pkg string) []string {
		out, err := exec.Command("go", "list", "-deps", "github.com/evlog-go/evlog/"+pkg).Output()
		require.NoError(t, err)
		return strings.Fields(string(out))
	}
	for _, pkg := range []string{"cursor", "sqlbridge", "sqlbridge/tablelog", "outbox"} {
		for _, dep := range deps(pkg) {
			require.NotContains(t, strings.ToLower(strings.TrimPrefix(dep, "github.com/evlog-go/")), "sqlite", "%s imports %s", pkg, dep)
			require.NotContains(t, dep, "modernc.org")
		}
	}
	for _, pkg := range []string{"evlog", "evlog/evlogtest", "cursor"} {
		require.NotContains(t, deps(pkg), "database/sql", pkg)
	}
	require.True(t, slices.Contains(deps("sqlbridge"), "database/sql"))
	for _, pkg := range []string{"sqlbridge", "outbox"} {
		require.False(t, slices.Contains(deps(pkg), "testing"))
	}
}
