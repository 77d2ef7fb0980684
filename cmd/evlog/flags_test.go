package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

// Each flag of each command is given in some script.
func TestScripts_EveryFlag(t *testing.T) {
	var lines []string
	for _, pattern := range []string{"testdata/script/*.txtar", "testdata/examples/*.txt"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			lines = append(lines, strings.FieldsFunc(string(text), func(r rune) bool { return strings.ContainsRune("\n|;", r) })...)
		}
	}
	everyCommand(t, func(t *testing.T, cmd *cobra.Command) {
		given := map[string]bool{}
		for _, line := range lines {
			words := strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" '\"()", r) })
			for i, w := range words {
				if w == "evlog" || w == "start" && i+1 < len(words) {
					addGiven(given, cmd, words[i+1:])
				}
			}
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			short := f.Shorthand != "" && given["-"+f.Shorthand]
			require.True(t, f.Name == "help" || given["--"+f.Name] || short, "no script has %s --%s", cmd.CommandPath(), f.Name)
		})
	})
}

// addGiven notes the flags in a call, if it is one of this command. A script's
// "start" has the process's name first.
func addGiven(given map[string]bool, cmd *cobra.Command, words []string) {
	path := strings.Fields(cmd.CommandPath())[1:]
	for len(words) > 0 && len(path) > 0 && words[0] != path[0] {
		words = words[1:]
	}
	for _, part := range path {
		if len(words) == 0 || words[0] != part {
			return
		}
		words = words[1:]
	}
	for _, w := range words {
		name, _, _ := strings.Cut(w, "=")
		given[name] = true
	}
}
