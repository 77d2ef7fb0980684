package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

// everyCommand calls f for each command that --help lists.
func everyCommand(t *testing.T, f func(t *testing.T, cmd *cobra.Command)) {
	root := newRoot(newApp(strings.NewReader(""), &strings.Builder{}, &strings.Builder{}))
	n := 0
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		n++
		t.Run(manName(cmd), func(t *testing.T) { f(t, cmd) })
		for _, sub := range cmd.Commands() {
			if !sub.Hidden {
				walk(sub)
			}
		}
	}
	walk(root)
	require.Greater(t, n, 20)
}

// A terminal is 80 columns wide, and a manual page is written in ASCII.
func TestHelp_Text(t *testing.T) {
	everyCommand(t, func(t *testing.T, cmd *cobra.Command) {
		require.NotEmpty(t, cmd.Short)
		require.LessOrEqual(t, len(cmd.Short), 66, cmd.Short)
		require.False(t, strings.HasSuffix(cmd.Short, "."), cmd.Short)
		require.NotEmpty(t, cmd.Example)
		if cmd.Name() != "help" {
			require.NotEmpty(t, cmd.Long)
		}
		text := cmd.Long + "\n" + cmd.Example
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			require.NotEmpty(t, f.Usage, f.Name)
			require.NotEqual(t, "string", first(pflag.UnquoteUsage(f)), "--%s: what kind of value?", f.Name)
			text += "\n" + strings.ReplaceAll(f.Usage, " ", "\n")
		})
		for line := range strings.Lines(text) {
			require.LessOrEqual(t, len(strings.TrimSuffix(line, "\n")), 80, line)
			require.Regexp(t, `^[ -~\n]*$`, line)
		}
		for _, line := range strings.Split(cmd.Example, "\n") {
			require.True(t, strings.HasPrefix(line, "  "), line)
		}
	})
}

func first(a, _ string) string { return a }

// The page of each command has all that its help has, and nothing in it is taken
// for a request that is none.
func TestManPage(t *testing.T) {
	requests := regexp.MustCompile(`^\.(TH|SH|PP|TP|BR|RS|RE|nf|fi|nh|ad)( |$)`)
	everyCommand(t, func(t *testing.T, cmd *cobra.Command) {
		if !hasManPage(cmd) {
			require.Equal(t, "help", cmd.Name())
			return
		}
		page := manPage(cmd)
		for line := range strings.Lines(page) {
			line = strings.TrimSuffix(line, "\n")
			require.NotEmpty(t, line)
			if strings.HasPrefix(line, ".") {
				require.Regexp(t, requests, line)
			}
			require.False(t, strings.HasPrefix(line, "'"), line)
		}
		plain := unroff(page)
		for _, word := range strings.Fields(strings.TrimSuffix(cmd.Long, exitStatusTitle+exitStatusHelp)) {
			require.Contains(t, plain, word)
		}
		for line := range strings.Lines(cmd.Example) {
			require.Contains(t, plain, strings.TrimSpace(line))
		}
		for _, set := range []*pflag.FlagSet{cmd.LocalFlags(), cmd.InheritedFlags()} {
			set.VisitAll(func(f *pflag.Flag) {
				require.Contains(t, plain, "--"+f.Name)
				_, usage := pflag.UnquoteUsage(f)
				require.Contains(t, plain, usage)
			})
		}
		require.Equal(t, 1, strings.Count(plain, "wrong usage"))
	})
}

// unroff undoes what a page needs so that signs stand for themselves.
func unroff(page string) string {
	page = regexp.MustCompile(`\\f[BIR]`).ReplaceAllString(page, "")
	return strings.NewReplacer(`\e`, `\`, `\-`, "-", `\(aq`, "'", `\(ga`, "`", `\(ha`, "^", `\(ti`, "~", `\(dq`, `"`, `\:`, "", `\&`, "").Replace(page)
}

func TestManPage_Signs(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"plain", "plain\n"},
		{"'quoted'", "\\(aqquoted\\(aq\n"},
		{".log files", "\\&.log files\n"},
		{`a\n`, "a\\en\n"},
		{"a -b\n\nnext", "a \\-b\n.PP\nnext\n"},
		{"list:\n  a   one\n      two\n  bb  three", "list:\n.TP 6\na\none\ntwo\n.TP 6\nbb\nthree\n"},
		{"  as it  stands\n      here", ".PP\n.RS 2\n.nf\nas it  stands\n    here\n.fi\n.RE\n"},
		{"  a\n\nand", ".PP\n.RS 2\n.nf\na\n.fi\n.RE\n.PP\nand\n"},
	} {
		m := &manWriter{}
		m.text(test.text)
		require.Equal(t, test.want, m.b.String())
	}
}
