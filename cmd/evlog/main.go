// Command evlog appends to, reads, checks and mends logs made by package evlog.
//
// Every command takes the log's directory as its first argument, or from the
// environment variable EVLOG_DIR. Data goes to standard output and nothing else
// does; notices go to standard error with a leading "% ". The exit status is 0
// for success, 1 for an error while running, 2 for wrong usage, 3 for
// corruption that was found, and 128 and the signal's number where a signal
// ended the command.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

func main() {
	ignoreBrokenPipes()
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is main with everything it touches as arguments.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) (code int) {
	defer func() {
		if p := recover(); p != nil {
			code = exitError
			fmt.Fprintf(stderr, "evlog: internal error: %s; please report it\n", oneLine(fmt.Sprint(p)))
		}
	}()
	ctx, stop := withSignals(ctx)
	defer stop()
	a := newApp(stdin, stdout, stderr)
	root := newRoot(a)
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(a.out)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if flushErr := a.out.Flush(); err == nil {
		err = flushErr
	}
	return a.report(ctx, err)
}

// newRoot builds the whole command tree. A new command is one file and one
// line here.
func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "evlog",
		Short: "An append-only log in a directory of files",
		Long: `An append-only log in a directory of files: records with offsets, one writer,
many readers, no server.

DIR is the log's directory. It can be left out where EVLOG_DIR names one. Data
goes to standard output, and nothing else does. Notices go to standard error,
with a leading "% "; errors are one line there.

  times      RFC 3339; "2026-09-20 03:00", 03:00 (of today), today, yesterday,
             all in the local zone; now; -2h; @epoch in seconds, @epochms.
             Printed as RFC 3339 in UTC, with --local in the local zone
  durations  90s, 2h30m, 30d, 2w
  sizes      4096, 64M, 1GiB. K, M, G and T are powers of 1024, KB and so on of
             1000

` + exitStatusTitle + exitStatusHelp,
		Example: `  printf 'hello\nworld\n' | evlog append events
  evlog cat events
  evlog tail -f events`,
		Version:                    version(),
		SilenceErrors:              true,
		SilenceUsage:               true,
		SuggestionsMinimumDistance: 2,
		Args:                       noCommand,
		RunE:                       noCommand,
	}
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages ", ".FlagUsagesWrapped 80 "))
	root.SetVersionTemplate("evlog {{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usageOf(cmd, err) })
	root.PersistentFlags().BoolVarP(&a.quiet, "quiet", "q", false, "no notices")
	root.AddCommand(
		newAppendCommand(a),
		newCatCommand(a),
		newTailCommand(a),
		newGetCommand(a),
		newSegmentsCommand(a),
		newInfoCommand(a),
		newVerifyCommand(a),
		newDumpCommand(a),
		newRetainCommand(a),
		newCompactCommand(a),
		newRepairCommand(a),
		newReindexCommand(a),
		newConsumersCommand(a),
		newConsumeCommand(a),
		newOutboxCommand(a),
		newSQLCommand(a),
	)
	root.AddCommand(newManCommand(a), newCompletionCommand(a))
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetHelpCommand(newHelpCommand())
	root.InitDefaultHelpCmd()
	completeRest(root)
	return root
}

// exitStatusHelp says it for every command.
const (
	exitStatusTitle = "Exit status:\n\n"
	exitStatusHelp  = `  0    success; also where whoever read standard output went away, except in
       append, which then ends with 1
  1    an error: not found, out of range, locked, of the file system
  2    wrong usage
  3    damage was found
  130  ended by Ctrl-C; 128 and the number of any other signal`
)

// noCommand refuses a call that names no command, or none there is.
func noCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		if cmd.Flags().Changed("help") || cmd.Flags().Changed("version") {
			return nil
		}
		return usagef(cmd, "no command given")
	}
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return usagef(cmd, "unknown command %q, did you mean %s", args[0], near[0])
	}
	return usagef(cmd, "unknown command %q", args[0])
}

// newHelpCommand replaces cobra's, which takes an unknown command for success.
func newHelpCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "help [COMMAND]",
		Short:             "Help about any command",
		Example:           `  evlog help append`,
		ValidArgsFunction: commandNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			topic, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return usagef(cmd.Root(), "no help for %q", strings.Join(args, " "))
			}
			return topic.Help()
		},
	}
}

// stamped is the version that make gives to the build, which has no other one under
// -buildvcs=false.
var stamped string

func version() string {
	info, _ := debug.ReadBuildInfo()
	return versionOf(info, stamped)
}

// versionOf is the module's version as the build recorded it, in any way.
func versionOf(info *debug.BuildInfo, stamped string) string {
	switch {
	case info != nil && info.Main.Version != "" && info.Main.Version != "(devel)":
		return info.Main.Version
	case stamped != "":
		return stamped
	}
	return "(devel)"
}
