package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func newManCommand(a *app) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "man [COMMAND...]",
		Short: "Print the manual page of a command",
		Long: `Print the manual page of a command, evlog's own where none is named, for man(1).
With --dir write the pages of all commands into a directory, each in a file of
its own, such as evlog-cat.1. What they say is what --help says.`,
		Example: `  evlog man cat | man -l -
  evlog man --dir man1`,
		ValidArgsFunction: commandNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("dir") {
				if len(args) > 0 {
					return usagef(cmd, "--dir writes the pages of all commands")
				}
				return writeManPages(cmd.Root(), dir)
			}
			topic, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 || !hasManPage(topic) {
				return usagef(cmd, "no page for %q", strings.Join(args, " "))
			}
			_, err = a.out.WriteString(manPage(topic))
			return err
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "write all pages into this `DIRECTORY`, which is made if it is not there")
	completeDirectories(cmd, "dir")
	return cmd
}

// writeManPages writes a file for each command.
func writeManPages(root *cobra.Command, dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil { // like any program's documents, for whoever may read them
		return err
	}
	var write func(cmd *cobra.Command) error
	write = func(cmd *cobra.Command) error {
		if !hasManPage(cmd) {
			return nil
		}
		if err := os.WriteFile(filepath.Join(dir, manName(cmd)+".1"), []byte(manPage(cmd)), 0o666); err != nil {
			return err
		}
		for _, sub := range cmd.Commands() {
			if err := write(sub); err != nil {
				return err
			}
		}
		return nil
	}
	return write(root)
}

// hasManPage leaves out help itself, and what is hidden.
func hasManPage(cmd *cobra.Command) bool { return cmd.IsAvailableCommand() || !cmd.HasParent() }

// manName is the name of a command's page.
func manName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// manPage is a command's page in the language of man(7), made of what --help
// shows. It has no date: two builds of one version are equal.
func manPage(cmd *cobra.Command) string {
	cmd.InitDefaultHelpFlag()
	cmd.InitDefaultVersionFlag()
	m := &manWriter{}
	m.line(`.TH %s 1 "" "evlog %s" "evlog manual"`, roff(strings.ToUpper(manName(cmd))), roff(cmd.Root().Version))
	m.line(".nh\n.ad l") // a command is looked for, and copied, as it is
	m.section("NAME")
	m.line(`%s \- %s`, roff(manName(cmd)), roff(lowerFirst(cmd.Short)))
	m.section("SYNOPSIS")
	m.line("%s", manSynopsis(cmd))
	m.section("DESCRIPTION")
	m.text(strings.TrimSuffix(cmd.Long, exitStatusTitle+exitStatusHelp))
	if len(cmd.Commands()) > 0 {
		m.section("COMMANDS")
		for _, sub := range cmd.Commands() {
			if hasManPage(sub) {
				m.line(".TP\n.BR %s (1)\n%s", roff(manName(sub)), roff(sub.Short))
			}
		}
	}
	m.flags("OPTIONS", cmd.LocalFlags())
	m.flags("OPTIONS OF EVERY COMMAND", cmd.InheritedFlags())
	if strings.Contains(cmd.Use, " DIR") {
		m.section("ENVIRONMENT")
		m.line(".TP\nEVLOG_DIR\nthe log\\(aqs directory, where DIR is left out")
	}
	m.section("EXIT STATUS")
	m.text(exitStatusHelp)
	if cmd.HasExample() {
		m.section("EXAMPLES")
		m.preformatted(strings.Split(cmd.Example, "\n"))
	}
	m.seeAlso(cmd)
	return m.b.String()
}

// manSynopsis sets what is typed as it stands in bold, and what stands for
// something else in italics.
func manSynopsis(cmd *cobra.Command) string {
	use := cmd.UseLine()
	if !cmd.HasParent() {
		use = cmd.Name() + " COMMAND"
	}
	words := strings.Fields(use)
	path := len(strings.Fields(cmd.CommandPath()))
	for i, w := range words {
		if i < path {
			words[i] = `\fB` + roff(w) + `\fR`
			continue
		}
		words[i] = `\fI` + roff(w) + `\fR`
	}
	return strings.Join(words, " ")
}

type manWriter struct{ b strings.Builder }

func (m *manWriter) line(format string, args ...any) { fmt.Fprintf(&m.b, format+"\n", args...) }

func (m *manWriter) section(name string) { m.line(".SH %s", name) }

// text writes paragraphs. Indented lines are set as they stand.
func (m *manWriter) text(s string) {
	lines := strings.Split(strings.Trim(s, "\n"), "\n")
	gap := false // an empty line came before
	for len(lines) > 0 {
		n := 1
		switch {
		case lines[0] == "":
			gap = true
		case isIndented(lines[0]):
			for n < len(lines) && isIndented(lines[n]) {
				n++
			}
			if !m.terms(lines[:n]) {
				m.line(".PP")
				m.preformatted(lines[:n])
			}
			gap = true
		default:
			if gap {
				m.line(".PP")
			}
			m.line("%s", roff(lines[0]))
			gap = false
		}
		lines = lines[n:]
	}
}

// terms writes lines that list what words mean, if that is what they do:
//
//	word   what it means,
//	       and more of it
func (m *manWriter) terms(lines []string) bool {
	head := termLine.FindStringSubmatch(lines[0])
	if head == nil {
		return false
	}
	more := strings.Repeat(" ", len(head[1]))
	var set strings.Builder
	for _, l := range lines {
		meaning, isMore := strings.CutPrefix(l, more)
		switch h := termLine.FindStringSubmatch(l); {
		case isMore && !strings.HasPrefix(meaning, " "):
			set.WriteString(roff(meaning) + "\n")
		case h != nil && len(h[1]) == len(head[1]):
			set.WriteString(fmt.Sprintf(".TP %d\n%s\n%s\n", len(more), roff(strings.TrimSpace(h[1])), roff(h[2])))
		default:
			return false
		}
	}
	m.b.WriteString(set.String())
	return true
}

// termLine is a word, or some, and what stands in the next column.
var termLine = regexp.MustCompile(`^(  \S+(?: \S+)*  +)(\S.*)$`)

func isIndented(line string) bool { return strings.HasPrefix(line, "  ") }

// preformatted sets lines as they stand, without the indentation that all of
// them have.
func (m *manWriter) preformatted(lines []string) {
	m.line(".RS 2\n.nf")
	for _, l := range lines {
		m.line("%s", roff(strings.TrimPrefix(l, "  ")))
	}
	m.line(".fi\n.RE")
}

func (m *manWriter) flags(title string, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	m.section(title)
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		name, usage := pflag.UnquoteUsage(f)
		head := `\fB` + roff("--"+f.Name) + `\fR`
		if f.Shorthand != "" {
			head = `\fB` + roff("-"+f.Shorthand) + `\fR, ` + head
		}
		if name != "" {
			head += ` \fI` + roff(name) + `\fR`
		}
		if d := f.DefValue; d != "" && d != "false" && d != "[]" && f.Value.Type() != "count" {
			usage += fmt.Sprintf(" (default %s)", d)
		}
		m.line(".TP\n%s\n%s", head, roff(usage))
	})
}

// seeAlso names the command that this one is part of, and those beside it.
func (m *manWriter) seeAlso(cmd *cobra.Command) {
	var pages []string
	add := func(c *cobra.Command) {
		if c != cmd && hasManPage(c) {
			pages = append(pages, fmt.Sprintf(`\fB%s\fR(1)`, roff(manName(c))))
		}
	}
	if !cmd.HasParent() {
		return // COMMANDS has them all
	}
	add(cmd.Root())
	if cmd.Parent() != cmd.Root() {
		add(cmd.Parent())
	}
	for _, c := range cmd.Parent().Commands() {
		add(c)
	}
	m.section("SEE ALSO")
	m.line("%s", strings.Join(pages, ",\n"))
}

// roff has each character stand for itself.
func roff(s string) string {
	s = roffEscapes.Replace(s)
	if strings.HasPrefix(s, ".") {
		s = `\&` + s
	}
	return s
}

// Plain signs would come out as typographic ones, which no shell takes.
var roffEscapes = strings.NewReplacer(
	`,"`, `,\:\(dq`, // a line may break there, which it may not inside of a word
	`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`, `"`, `\(dq`,
)

func lowerFirst(s string) string { return strings.ToLower(s[:1]) + s[1:] }
