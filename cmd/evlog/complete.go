package main

import (
	"context"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/evlog-go/evlog/cursor"
	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/internal/format"
)

func newCompletionCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print the completions for a shell",
		Long: `Print the script with which a shell completes commands, flags, values of flags,
directories, and the names of a log's consumers. SHELL is bash, zsh, fish or
powershell. "make install" puts the scripts where the first three look for them;
by hand, write it to

  bash  ~/.local/share/bash-completion/completions/evlog; needs the package
        bash-completion
  zsh   _evlog in a directory of $fpath, with compinit in ~/.zshrc
  fish  ~/.config/fish/completions/evlog.fish

and start a new shell. In powershell pipe it to Out-String | Invoke-Expression.`,
		Example: `  evlog completion bash > evlog.bash
  evlog completion zsh > _evlog`,
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return []string{"bash", "zsh", "fish", "powershell"}, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return usagef(cmd, "the shell is missing")
			case len(args) > 1:
				return usagef(cmd, "unexpected argument %q", args[1])
			}
			root := cmd.Root()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(a.out, true)
			case "zsh":
				return root.GenZshCompletion(a.out)
			case "fish":
				return root.GenFishCompletion(a.out, true)
			case "powershell":
				return root.GenPowerShellCompletionWithDesc(a.out)
			}
			return usagef(cmd, "unknown shell %q (there are: bash, zsh, fish, powershell)", args[0])
		},
	}
	return cmd
}

// dirOnly completes a directory as the first argument and nothing after it.
func dirOnly(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return nil, cobra.ShellCompDirectiveFilterDirs
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// dirOrCommand is dirOnly for a command that has others below it. A shell cannot
// be given both: directories come where no command begins so.
func dirOrCommand(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	for _, sub := range cmd.Commands() {
		if len(args) == 0 && strings.HasPrefix(sub.Name(), toComplete) {
			return nil, cobra.ShellCompDirectiveNoFileComp // cobra adds them
		}
	}
	return dirOnly(cmd, args, toComplete)
}

// dirThen completes a directory, and behind it at most words that the log there
// has. Where EVLOG_DIR stands in for the directory, its words are offered first.
func (a *app) dirThen(words func(dir string) []string, most int) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		dir, taken := a.getenv("EVLOG_DIR"), len(args)
		if len(args) > 0 && isDir(args[0]) {
			dir, taken = args[0], len(args)-1
		}
		var found []string
		if dir != "" && taken < most {
			for _, w := range words(dir) {
				if strings.HasPrefix(w, toComplete) {
					found = append(found, w)
				}
			}
		}
		if len(args) == 0 && len(found) == 0 {
			return nil, cobra.ShellCompDirectiveFilterDirs
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}

func isDir(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}

// consumerNames are the consumers of consumers.json. A completion has no place
// for errors: where the file cannot be read there are none.
func consumerNames(dir string) []string {
	store, err := cursor.OpenFile(context.Background(), dir, nil)
	if err != nil {
		return nil
	}
	defer store.Close() //nolint:errcheck // it was read from
	positions, err := store.List(context.Background())
	if err != nil {
		return nil
	}
	var names []string
	for _, p := range positions {
		if printable(p.Name) == p.Name {
			names = append(names, p.Name)
		}
	}
	return names
}

// holdNames completes append's --hold-for.
func (a *app) holdNames(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	names, directive := a.consumerOfDir(cmd, args, toComplete)
	return append(names, evlog.HoldForAll, limitOff), directive
}

// consumerOfDir completes a flag with a consumer of the log in DIR, where that
// comes before it.
func (a *app) consumerOfDir(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	dir := a.getenv("EVLOG_DIR")
	if len(args) > 0 && isDir(args[0]) {
		dir = args[0]
	}
	return consumerNames(dir), cobra.ShellCompDirectiveNoFileComp
}

// segmentBases are the segments by their base offsets.
func segmentBases(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var bases []string
	for _, e := range entries {
		if base, ok := format.ParseSegmentName(e.Name()); ok {
			bases = append(bases, strconv.FormatUint(base, 10))
		}
	}
	return bases
}

// commandNames completes a command, word by word.
func commandNames(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	topic, rest, err := cmd.Root().Find(args)
	if err != nil || len(rest) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, sub := range topic.Commands() {
		if sub.IsAvailableCommand() && strings.HasPrefix(sub.Name(), toComplete) {
			names = append(names, cobra.CompletionWithDesc(sub.Name(), sub.Short))
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeWords has the shell complete a flag's value.
func completeWords(cmd *cobra.Command, flag string, words []string) {
	completeFlag(cmd, flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// completeDirectories has the shell complete a flag's value with directories.
func completeDirectories(cmd *cobra.Command, flag string) {
	completeFlag(cmd, flag, cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs))
}

func completeFlag(cmd *cobra.Command, flag string, c cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, c); err != nil {
		panic(err) // the flag was registered before, once
	}
}

// timeWords are the times that have a name.
var timeWords = []string{"today", "yesterday", "now", "-1h", "-1d"}

// completeRest gives a completion to each flag that has none yet: by the kind of
// its value, and files only where the value is a FILE. Shells would offer files
// for everything.
func completeRest(cmd *cobra.Command) {
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		name, _ := pflag.UnquoteUsage(f)
		if _, has := cmd.GetFlagCompletionFunc(f.Name); has || name == "FILE" || f.NoOptDefVal != "" {
			return
		}
		var words []string
		switch f.Value.(type) {
		case *timeValue:
			words = timeWords
		case *originValue:
			words = []string{"beginning", "end"}
		case *spanLimit, *sizeLimit, *countLimit:
			words = []string{limitOff}
		}
		completeWords(cmd, f.Name, words)
	})
	for _, sub := range cmd.Commands() {
		completeRest(sub)
	}
}
