package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/evlog-go/evlog/evlog"
)

func newRepairCommand(a *app) *cobra.Command {
	c := repairCommand{a: a}
	cmd := &cobra.Command{
		Use:   "repair DIR",
		Short: "Say what it takes to make a damaged log usable, and do it",
		Long: `Say what repair would cut off and write; with --execute, do it. What is cut is
kept beside the log in a .torn file. Offsets that are lost stay a hole: the next
record gets a number that nobody has seen.

Without --execute nothing is changed and no lock is taken.

With --json: one object with path, executed, next_offset, new_id (where log.json
had to be written anew: cursors must be bound again) and steps: objects with
what, path, position, cut_bytes, saved_as and gap ([from, to), null if none).`,
		Example: `  evlog repair events
  evlog repair events --execute`,
		ValidArgsFunction: dirOnly,
		RunE:              c.run,
	}
	cmd.Flags().BoolVar(&c.execute, "execute", false, "do it")
	cmd.Flags().BoolVar(&c.json, "json", false, "print one JSON document")
	return cmd
}

type repairCommand struct {
	a       *app
	execute bool
	json    bool
}

func (c *repairCommand) run(cmd *cobra.Command, args []string) error {
	dir, _, err := c.a.dirAnd(cmd, args)
	if err != nil {
		return err
	}
	bar := c.a.newProgress("repair", true)
	report, err := evlog.Repair(cmd.Context(), dir, &evlog.RepairOptions{Execute: c.execute, Progress: bar.set})
	bar.end()
	done := "nothing was changed"
	if c.execute {
		done = "it may be done in part; evlog repair --execute does the rest"
	}
	c.a.noticeEnded(cmd.Context(), err, done)
	if err != nil {
		return lockedHint(err, "close that program first")
	}
	if c.json {
		err = writeDocument(c.a.out, newRepairDoc(dir, report))
	} else {
		err = c.print(dir, report)
	}
	if err != nil {
		return err
	}
	if len(report.Steps) > 0 && !report.Executed {
		c.a.notice("nothing was changed; evlog repair --execute does it")
	}
	if report.NewID != "" {
		c.a.notice("the log has a new id, %s: bind cursors again", report.NewID)
	}
	return nil
}

func (c *repairCommand) print(dir string, report *evlog.RepairReport) error {
	if len(report.Steps) == 0 {
		_, err := fmt.Fprintf(c.a.out, "%s: nothing to repair\n", dir)
		return err
	}
	for i := range report.Steps {
		if _, err := fmt.Fprintln(c.a.out, stepText(&report.Steps[i])); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(c.a.out, "next offset %d\n", report.Next)
	return err
}

func stepText(s *evlog.RepairStep) string {
	text := fmt.Sprintf("%s: %s", s.Path, s.What)
	if s.Cut > 0 {
		text += fmt.Sprintf(": %s from byte %d", plural(s.Cut, "byte"), s.Pos)
	}
	if s.SavedAs != "" {
		text += ", kept in " + s.SavedAs
	}
	if s.Gap.From < s.Gap.To {
		text += fmt.Sprintf("; offsets %d to %d are lost", s.Gap.From, s.Gap.To-1)
	}
	if s.Intact > 0 {
		text += fmt.Sprintf("; %s among them can be read (evlog cat --from reads on behind the damage, evlog dump reads the kept file)",
			plural(int64(s.Intact), "valid record"))
	}
	return text
}

// repairDoc is the JSON document of repair.
type repairDoc struct {
	Path     string    `json:"path"`
	Executed bool      `json:"executed"`
	Next     uint64    `json:"next_offset"`
	NewID    string    `json:"new_id,omitempty"`
	Steps    []stepDoc `json:"steps"`
}

type stepDoc struct {
	What     string     `json:"what"`
	Path     string     `json:"path"`
	Position int64      `json:"position"`
	Cut      int64      `json:"cut_bytes"`
	SavedAs  string     `json:"saved_as,omitempty"`
	Intact   uint64     `json:"intact_records"`
	Gap      *[2]uint64 `json:"gap"`
}

func newRepairDoc(dir string, r *evlog.RepairReport) *repairDoc {
	doc := &repairDoc{Path: dir, Executed: r.Executed, Next: r.Next, NewID: r.NewID, Steps: make([]stepDoc, len(r.Steps))}
	for i := range r.Steps {
		s := &r.Steps[i]
		doc.Steps[i] = stepDoc{What: s.What, Path: s.Path, Position: s.Pos, Cut: s.Cut, SavedAs: s.SavedAs, Intact: s.Intact}
		if s.Gap.From < s.Gap.To {
			doc.Steps[i].Gap = &[2]uint64{s.Gap.From, s.Gap.To}
		}
	}
	return doc
}
