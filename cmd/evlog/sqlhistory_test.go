package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// withEnv is an app with these variables and no others, and what it tells.
func withEnv(env map[string]string) (*app, *strings.Builder) {
	var told strings.Builder
	a := newApp(strings.NewReader(""), &strings.Builder{}, &told)
	a.getenv = func(name string) string { return env[name] }
	return a, &told
}

func TestSQLHistory_File(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history")
	a, told := withEnv(map[string]string{"EVLOG_HISTORY": path})
	h := a.openHistory(false)
	require.NoFileExists(t, path, "nothing was typed")
	h.add([]string{"select 1;"})
	h.add([]string{"select 1;"}) // again
	h.add([]string{"select", "  2", ";"})
	h.add([]string{"select 3 -- not;", ";"})
	h.add([]string{"select 'a", "b';"})
	h.add(nil)
	want := []string{"select 1;", "select 2 ;", "select 3 -- not;", ";", "select 'a", "b';"}
	require.Equal(t, want, h.entries)
	require.Equal(t, 6, h.Len())
	require.Equal(t, "b';", h.At(0))
	require.Equal(t, "select 1;", h.At(5))
	h.Add("what the editor adds is part of a statement")
	require.Equal(t, want, h.entries)

	require.NoError(t, os.Chmod(path, 0o644))
	again := a.openHistory(false)
	require.Equal(t, want, again.entries)
	again.add([]string{"select 4;"})
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, strings.Join(append(want, "select 4;"), "\n")+"\n", string(b))
	if runtime.GOOS != "windows" {
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), "it is nobody else's, whoever made it")
	}
	require.Empty(t, told.String())
}

// A file that has become long is cut at its old end when it is read.
func TestSQLHistory_Long(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "history")
	write := func(n int) {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "select %d;\n", i)
		}
		require.NoError(t, os.WriteFile(path, []byte(b.String()), 0o600))
	}
	a, told := withEnv(map[string]string{"EVLOG_HISTORY": path})
	write(2*historyEntries - 1)
	h := a.openHistory(false)
	require.Equal(t, 2*historyEntries-1, h.Len())
	write(5 * historyEntries)
	h = a.openHistory(false)
	require.Equal(t, fmt.Sprintf("select %d;", 5*historyEntries-1), h.At(0))
	h.add([]string{"select 'new';"})
	h = a.openHistory(false)
	require.GreaterOrEqual(t, h.Len(), historyEntries)
	require.LessOrEqual(t, h.Len(), 2*historyEntries)
	require.Equal(t, "select 'new';", h.At(0))
	require.Equal(t, fmt.Sprintf("select %d;", 5*historyEntries-1), h.At(1))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1, "nothing is left beside it")
	require.Empty(t, told.String())
}

// A history that cannot be kept is told once, and is no reason to have no shell.
func TestSQLHistory_Fails(t *testing.T) {
	dir := t.TempDir()
	a, told := withEnv(map[string]string{"EVLOG_HISTORY": dir})
	h := a.openHistory(false)
	require.Contains(t, told.String(), "% the history is not kept: ")
	h.add([]string{"select 1;"})
	require.Equal(t, "select 1;", h.At(0), "in this shell it is there")
	require.Equal(t, 1, strings.Count(told.String(), "%"))

	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	a, told = withEnv(map[string]string{"EVLOG_HISTORY": filepath.Join(file, "below", "history")})
	h = a.openHistory(false)
	h.add([]string{"select 1;"})
	h.add([]string{"select 2;"})
	require.Equal(t, 1, strings.Count(told.String(), "% the history is not kept: "), told)
}

func TestSQLHistory_Path(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	a, _ := withEnv(map[string]string{"XDG_STATE_HOME": state})
	path, err := a.historyPath()
	require.NoError(t, err)
	require.Equal(t, filepath.Join(state, "evlog", "sql_history"), path)
	a, _ = withEnv(map[string]string{"XDG_STATE_HOME": "relative"})
	path, err = a.historyPath()
	if err == nil { // a user without a home has none
		require.True(t, filepath.IsAbs(path), path)
		require.NotContains(t, path, "relative")
	}
	a, _ = withEnv(map[string]string{"EVLOG_HISTORY": "off"})
	require.Empty(t, a.openHistory(false).path)
	a, _ = withEnv(map[string]string{"EVLOG_HISTORY": "f"})
	require.Empty(t, a.openHistory(true).path)
}
