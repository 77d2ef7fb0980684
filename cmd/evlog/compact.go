package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/evlog-go/evlog/evlog"
)

func newCompactCommand(a *app) *cobra.Command {
	c := compactCommand{a: a}
	cmd := &cobra.Command{
		Use:   "compact DIR",
		Short: "Keep the newest record of each key",
		Long: `Remove from the closed segments every record whose key has a newer one, and
merge small segments. The newest record of each key, records without a key, and
everything in the active segment stay; offsets do not change. A program that has
the log open for writing does the same by itself where compaction is on: it is
set when a log is opened (evlog.Options.Compact), and evlog info shows it.

A tombstone (a key with an empty value) stays for a grace, counted from when its
segment was first compacted, so that whoever reads the log learns that the key
was deleted; --grace 0 drops it at once. A damaged segment is left as it is, and
told, and no tombstone above it goes.

  --roll      closes the active segment first, so that it is compacted too
  --memory N  for the keys, 37 bytes each; more keys than fit take more passes

With --dry-run it says what would go and why, takes no lock and changes nothing.

With --json: one object with path, executed, passes, superseded and tombstones
(numbers of records dropped), tombstones_left (some stay for now), clock_wait_ms
(how long no grace is over, after the wall clock has jumped forwards; 0 if it
has not), bytes_before and bytes_after (of closed segments), changes (an array
of segments with base, into (the segment that it was merged into, or base),
superseded, tombstones, bytes_before, bytes_after) and refused (an array of
reasons).`,
		Example: `  evlog compact events --dry-run
  evlog compact events --roll --grace 7d`,
		ValidArgsFunction: dirOnly,
		RunE:              c.run,
	}
	flags := cmd.Flags()
	flags.Var(&c.grace, "grace", "how long tombstones stay, such as 7d or 0 (default the log's own)")
	flags.Var(&c.memory, "memory", "memory for keys, such as 256M (default 64MiB)")
	flags.BoolVar(&c.roll, "roll", false, "close the active segment first")
	flags.BoolVar(&c.dryRun, "dry-run", false, "only say what would be done")
	flags.BoolVar(&c.json, "json", false, "print one JSON document")
	return cmd
}

type compactCommand struct {
	a      *app
	grace  graceValue
	memory sizeValue
	roll   bool
	dryRun bool
	json   bool
}

// graceValue is a duration that may be none at all.
type graceValue struct {
	d    time.Duration // as evlog.CompactOptions has it
	text string
}

func (v *graceValue) Type() string   { return "DURATION" }
func (v *graceValue) String() string { return v.text }

func (v *graceValue) Set(s string) error {
	d, err := time.Duration(0), error(nil)
	if s != "0" {
		if d, err = parseDuration(s); err != nil {
			return err
		}
	}
	if d == 0 {
		d = -1
	}
	v.d, v.text = d, s
	return nil
}

func (c *compactCommand) run(cmd *cobra.Command, args []string) error {
	dir, _, err := c.a.dirAnd(cmd, args)
	if err != nil {
		return err
	}
	if c.dryRun && c.roll {
		return usagef(cmd, "--roll changes the log, --dry-run does not: what it says is of the segments that are closed")
	}
	rep, err := c.compact(cmd.Context(), dir)
	if rep == nil {
		return lockedHint(err, "its writer does this by itself where compaction is on (evlog info says so); otherwise close that program first")
	}
	if err != nil && len(rep.Changes) == 0 && rep.Before == 0 { // it was not found out what is there
		c.a.noticeEnded(cmd.Context(), err, "nothing was changed")
		return err
	}
	what := "this much was done, and is kept; evlog compact goes on with the rest"
	if c.dryRun {
		what = "not everything was looked at"
	}
	c.a.noticeEnded(cmd.Context(), err, what)
	if c.json {
		err = errors.Join(err, writeDocument(c.a.out, newCompactDoc(dir, rep)))
	} else {
		err = errors.Join(err, c.print(rep))
	}
	return errors.Join(err, c.verdict(dir, rep))
}

// compact does it, or plans it.
func (c *compactCommand) compact(ctx context.Context, dir string) (rep *evlog.CompactReport, err error) {
	bar := c.a.newProgress("compact", true)
	defer bar.end()
	opts := &evlog.CompactOptions{Grace: c.grace.d, MinLag: -1, MemoryBytes: c.memory.n, BytesPerSecond: -1, Progress: bar.set}
	if c.dryRun {
		r, err := c.a.openReader(ctx, dir, false)
		if err != nil {
			return nil, err
		}
		defer closing(r, &err)
		return r.PlanCompact(ctx, opts)
	}
	l, err := evlog.Open(ctx, dir, &evlog.Options{
		MustExist: true, NoCompaction: true, NoRetention: true, NoPreallocate: true, Logger: c.a.logger(),
	})
	if err != nil {
		return nil, err
	}
	defer closing(l, &err)
	if c.roll {
		if err := l.Roll(ctx); err != nil {
			return nil, err
		}
	}
	return l.Compact(ctx, opts)
}

func (c *compactCommand) print(rep *evlog.CompactReport) error {
	if len(rep.Changes) > 0 {
		rows := [][]string{{"BASE", "SUPERSEDED", "TOMBSTONES", "BEFORE", "AFTER", "CHANGE"}}
		for i, s := range rep.Changes {
			takesIn := i+1 < len(rep.Changes) && rep.Changes[i+1].Base != s.Base && rep.Changes[i+1].Into == s.Base
			rows = append(rows, []string{
				strconv.FormatUint(s.Base, 10), strconv.FormatUint(s.Superseded, 10), strconv.FormatUint(s.Tombstones, 10),
				strconv.FormatInt(s.Before, 10), strconv.FormatInt(s.After, 10), changeText(s, takesIn),
			})
		}
		if err := writeTable(c.a.out, rows); err != nil {
			return err
		}
	}
	done := "dropped"
	if c.dryRun {
		done = "would drop"
	}
	_, err := fmt.Fprintf(c.a.out, "%s %s with a newer one of its key and %s whose grace is over; %s before, %s after\n", done,
		plural(rep.Superseded, "record"), plural(rep.Tombstones, "tombstone"), plural(rep.Before, "byte"), plural(rep.After, "byte"))
	if rep.TombstonesLeft {
		c.a.notice("tombstones stay until their grace is over")
		if rep.ClockWait > 0 {
			c.a.notice("the wall clock has jumped forwards: no grace is over for %v more", wholeSeconds(rep.ClockWait))
		}
	}
	return err
}

func changeText(s evlog.CompactChange, takesIn bool) string {
	switch {
	case s.Into != s.Base:
		return fmt.Sprintf("merged into %d", s.Into)
	case takesIn:
		return "takes in the next ones"
	}
	return "rewritten"
}

// verdict tells what was left as it is; damage decides the exit status.
func (c *compactCommand) verdict(dir string, rep *evlog.CompactReport) error {
	var damage error
	for _, err := range rep.Refused {
		if damage == nil && errors.Is(err, evlog.ErrCorrupt) {
			damage = &hinted{
				error: &damageError{errorText(err)},
				hint:  "it was not compacted; evlog verify shows what is damaged, evlog repair what it would cut",
			}
			continue
		}
		c.a.notice("%v", err)
	}
	return damage
}

// compactDoc is the JSON document of compact.
type compactDoc struct {
	Path           string      `json:"path"`
	Executed       bool        `json:"executed"`
	Passes         int         `json:"passes"`
	Superseded     uint64      `json:"superseded"`
	Tombstones     uint64      `json:"tombstones"`
	TombstonesLeft bool        `json:"tombstones_left"`
	WaitMS         int64       `json:"clock_wait_ms"`
	Before         int64       `json:"bytes_before"`
	After          int64       `json:"bytes_after"`
	Changes        []changeDoc `json:"changes"`
	Refused        []string    `json:"refused"`
}

type changeDoc struct {
	Base       uint64 `json:"base"`
	Into       uint64 `json:"into"`
	Superseded uint64 `json:"superseded"`
	Tombstones uint64 `json:"tombstones"`
	Before     int64  `json:"bytes_before"`
	After      int64  `json:"bytes_after"`
}

func newCompactDoc(dir string, r *evlog.CompactReport) *compactDoc {
	doc := &compactDoc{
		Path: dir, Executed: r.Executed, Passes: r.Passes, Superseded: r.Superseded, Tombstones: r.Tombstones,
		TombstonesLeft: r.TombstonesLeft, WaitMS: r.ClockWait.Milliseconds(), Before: r.Before, After: r.After,
		Changes: make([]changeDoc, len(r.Changes)), Refused: make([]string, len(r.Refused)),
	}
	for i, s := range r.Changes {
		doc.Changes[i] = changeDoc(s)
	}
	for i, err := range r.Refused {
		doc.Refused[i] = errorText(err)
	}
	return doc
}
