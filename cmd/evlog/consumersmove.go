package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/evlog-go/evlog/cursor"
	"github.com/evlog-go/evlog/evlog"
)

// moveHelp is what the commands that move a cursor have in common.
const moveHelp = `
Where it goes:
  --to-offset N   offset N, which must lie in the log or at its end
  --to-earliest   the first record left
  --to-latest     the end
  --to-time T     the first record of this time or later
  --shift-by N    N offsets on, back where N is negative

Without --execute it says what it would do, takes no lock and changes nothing. A
consumer that is running under this name notices at its next commit and ends.

With --json: one object with name, from (null: there was none), to, executed and
note.`

func newConsumersSetCommand(a *app) *cobra.Command {
	c := moveCommand{a: a, create: true}
	cmd := &cobra.Command{
		Use:   "set DIR NAME",
		Short: "Put a consumer's cursor somewhere, also a new one's",
		Long:  "Put the cursor of a consumer somewhere. A consumer that is not there is made.\n" + moveHelp,
		Example: `  evlog consumers set events backup --to-latest --execute
  evlog consumers set events uplink --to-offset 4182`,
		ValidArgsFunction: a.dirThen(consumerNames, 1),
		RunE:              c.run,
	}
	c.register(cmd)
	return cmd
}

func newConsumersResetCommand(a *app) *cobra.Command {
	c := moveCommand{a: a}
	cmd := &cobra.Command{
		Use:   "reset DIR NAME",
		Short: "Put an existing consumer's cursor somewhere, or at the start",
		Long: `Put the cursor of an existing consumer somewhere: to the first record left,
where nothing else is said. It is the way out for a consumer that is behind or
ahead of the log, or that was made for another one.
` + moveHelp,
		Example: `  evlog consumers reset events uplink
  evlog consumers reset events uplink --shift-by -100 --execute`,
		ValidArgsFunction: a.dirThen(consumerNames, 1),
		RunE:              c.run,
	}
	c.register(cmd)
	return cmd
}

type moveCommand struct {
	a                *app
	create           bool // a consumer that is not there
	offset           offsetValue
	earliest, latest bool
	time             timeValue
	shift            shiftValue
	execute          bool
	json             bool
}

func (c *moveCommand) register(cmd *cobra.Command) {
	c.time.now = c.a.now
	flags := cmd.Flags()
	flags.Var(&c.offset, "to-offset", "to this offset")
	flags.BoolVar(&c.earliest, "to-earliest", false, "to the first record left")
	flags.BoolVar(&c.latest, "to-latest", false, "to the end")
	flags.Var(&c.time, "to-time", "to the first record of this time or later: "+timeHelp)
	flags.Var(&c.shift, "shift-by", "so many offsets on, or back")
	flags.BoolVar(&c.execute, "execute", false, "do it")
	flags.BoolVar(&c.json, "json", false, "print one JSON document")
}

func (c *moveCommand) run(cmd *cobra.Command, args []string) (err error) {
	dir, name, err := c.a.dirAndConsumer(cmd, args)
	if err != nil {
		return err
	}
	if err := c.checkTarget(cmd); err != nil {
		return err
	}
	ctx := cmd.Context()
	r, err := c.a.openReader(ctx, dir, false)
	if err != nil {
		return err
	}
	defer closing(r, &err)
	store, err := c.a.openConsumers(ctx, dir)
	if err != nil {
		return err
	}
	defer closing(store, &err)
	m, err := findConsumer(ctx, store, name)
	if err != nil {
		return consumersError(dir, err)
	}
	if !m.known && !c.create {
		return noSuchConsumer(dir, name, `evlog consumers lists them, "evlog consumers set" makes one`)
	}
	if m.to, err = c.target(ctx, r, m); err != nil {
		return consumersError(dir, err)
	}
	if c.execute {
		if err := store.Reset(ctx, name, m.from, m.to); err != nil {
			return movedMeanwhile(consumersError(dir, err))
		}
	}
	return c.a.printMove(m, c.execute, c.json)
}

// dirAndConsumer is dirAnd for DIR NAME.
func (a *app) dirAndConsumer(cmd *cobra.Command, args []string) (dir, name string, err error) {
	dir, rest, err := a.dirAnd(cmd, args, "NAME")
	if err != nil {
		return "", "", err
	}
	if err := cursor.CheckName(rest[0]); err != nil {
		return "", "", usageOf(cmd, err)
	}
	return dir, rest[0], nil
}

// checkTarget wants one place to go to.
func (c *moveCommand) checkTarget(cmd *cobra.Command) error {
	n := 0
	for _, set := range []bool{c.offset.set, c.earliest, c.latest, c.time.set, c.shift.set} {
		if set {
			n++
		}
	}
	switch {
	case n > 1:
		return usagef(cmd, "more than one place to go to")
	case n == 0 && c.create:
		return usagef(cmd, "where to? --to-offset, --to-earliest, --to-latest, --to-time or --shift-by")
	case n == 0:
		c.earliest = true
	}
	return nil
}

func noSuchConsumer(dir, name, hint string) error {
	return &hinted{fmt.Errorf("%s: consumer %q: %w", dir, name, cursor.ErrUnknownConsumer), hint}
}

func movedMeanwhile(err error) error {
	if errors.Is(err, cursor.ErrMoved) {
		return &hinted{err, "it is running; stop it, or try again"}
	}
	return err
}

// consumerMove is what set, reset and rm do.
type consumerMove struct {
	name     string
	known    bool
	from, to uint64
	removed  bool
	otherLog string // that the cursor was made for; empty: this one
}

// findConsumer returns where a consumer stands, in whichever log.
func findConsumer(ctx context.Context, store *cursor.File, name string) (*consumerMove, error) {
	m := &consumerMove{name: name}
	p, err := store.Load(ctx, name)
	var wrong *cursor.LogError
	switch {
	case err == nil:
		m.known, m.from = true, p.Next
	case errors.Is(err, cursor.ErrUnknownConsumer):
	case errors.As(err, &wrong):
		// Nobody else is known either in another log's file.
		m.known, err = isListed(ctx, store, name)
		m.from, m.otherLog = wrong.Cursor, wrong.CursorsLogID
		return m, err
	default:
		return nil, err
	}
	return m, nil
}

func isListed(ctx context.Context, store *cursor.File, name string) (bool, error) {
	all, err := store.List(ctx)
	for _, p := range all {
		if p.Name == name {
			return true, nil
		}
	}
	return false, err
}

// target is the offset that the flags mean. One outside the log is refused: a
// consumer there would only end with an error, or read nothing.
func (c *moveCommand) target(ctx context.Context, r *evlog.Reader, m *consumerMove) (uint64, error) {
	first, next, err := r.Bounds(ctx)
	if err != nil {
		return 0, err
	}
	switch {
	case c.earliest:
		return first, nil
	case c.latest:
		return next, nil
	case c.time.set:
		return offsetAt(ctx, r, c.time.t)
	case c.offset.set:
		return inLog(ctx, r, m.name, c.offset.n)
	}
	if !m.known {
		return 0, &hinted{fmt.Errorf("consumer %q: %w", m.name, cursor.ErrUnknownConsumer), "--shift-by needs one that has committed"}
	}
	to, ok := c.shift.from(m.from)
	if !ok {
		return 0, fmt.Errorf("consumer %q: %d shifted by %d is no offset; the log has [%d, %d)", m.name, m.from, c.shift.n, first, next)
	}
	return inLog(ctx, r, m.name, to)
}

func inLog(ctx context.Context, r *evlog.Reader, name string, to uint64) (uint64, error) {
	_, err := cursor.Resolve(ctx, r, name, to, "", cursor.Fail)
	switch {
	case errors.Is(err, cursor.ErrAhead):
		return 0, &hinted{err, "--to-latest goes to the end"}
	case errors.Is(err, cursor.ErrBehind):
		return 0, &hinted{err, "--to-earliest goes to the first record left"}
	}
	return to, err
}

// printMove tells what was done, or would be.
func (a *app) printMove(m *consumerMove, executed, json bool) error {
	if err := a.writeMove(m, executed, json); err != nil {
		return err
	}
	if !executed {
		a.notice("nothing was changed; --execute does it")
	}
	return nil
}

func (a *app) writeMove(m *consumerMove, executed, json bool) error {
	from, to, note := "-", strconv.FormatUint(m.to, 10), ""
	if m.known {
		from = strconv.FormatUint(m.from, 10)
	}
	if m.removed {
		to = "-"
	}
	if m.otherLog != "" && m.known {
		note = "was made for log " + m.otherLog
	}
	if !json {
		return writeTable(a.out, [][]string{
			{"NAME", "FROM", "TO", "NOTE"},
			{printable(m.name), from, to, orDash(note)},
		})
	}
	doc := moveDoc{Name: m.name, Executed: executed, Note: note}
	if m.known {
		doc.From = &m.from
	}
	if !m.removed {
		doc.To = &m.to
	}
	return writeDocument(a.out, &doc)
}

// moveDoc is the JSON document of set, reset and rm.
type moveDoc struct {
	Name     string  `json:"name"`
	From     *uint64 `json:"from"`
	To       *uint64 `json:"to"`
	Executed bool    `json:"executed"`
	Note     string  `json:"note"`
}

func newConsumersRemoveCommand(a *app) *cobra.Command {
	var execute, json bool
	cmd := &cobra.Command{
		Use:   "rm DIR NAME",
		Short: "Forget a consumer",
		Long: `Forget a consumer. Under the same name it starts anew. Without --execute it says
what it would do, takes no lock and changes nothing. A consumer that is running
under this name notices at its next commit and ends.

With --json: one object with name, from, to (null), executed and note.`,
		Example:           `  evlog consumers rm events uplink --execute`,
		ValidArgsFunction: a.dirThen(consumerNames, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.removeConsumer(cmd, args, execute, json)
		},
	}
	cmd.Flags().BoolVar(&execute, "execute", false, "do it")
	cmd.Flags().BoolVar(&json, "json", false, "print one JSON document")
	return cmd
}

// removeConsumer works by the list: what is to be forgotten need not fit the
// log, nor need the log have an id.
func (a *app) removeConsumer(cmd *cobra.Command, args []string, execute, json bool) (err error) {
	dir, name, err := a.dirAndConsumer(cmd, args)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	store, err := a.openConsumers(ctx, dir)
	if err != nil {
		return err
	}
	defer closing(store, &err)
	all, err := store.List(ctx)
	if err != nil {
		return consumersError(dir, err)
	}
	m := &consumerMove{name: name, removed: true}
	for _, p := range all {
		if p.Name == name {
			m.known, m.from = true, p.Next
			if p.LogID != store.LogID() {
				m.otherLog = p.LogID
			}
		}
	}
	if !m.known {
		return noSuchConsumer(dir, name, "evlog consumers lists them")
	}
	if execute {
		if err := store.Remove(ctx, name); err != nil {
			return consumersError(dir, err)
		}
	}
	return a.printMove(m, execute, json)
}

// shiftValue is a number of offsets with a sign.
type shiftValue struct {
	n   int64
	set bool
}

func (v *shiftValue) Type() string { return "N" }

func (v *shiftValue) String() string {
	if !v.set {
		return ""
	}
	return strconv.FormatInt(v.n, 10)
}

func (v *shiftValue) Set(s string) (err error) {
	if v.n, err = strconv.ParseInt(s, 10, 64); err != nil {
		return fmt.Errorf("not a number")
	}
	v.set = true
	return nil
}

// from is the offset shifted; ok is false where that is none.
func (v *shiftValue) from(offset uint64) (to uint64, ok bool) {
	if v.n < 0 {
		back := uint64(-(v.n + 1)) + 1
		return offset - back, back <= offset
	}
	return offset + uint64(v.n), uint64(v.n) <= math.MaxUint64-offset
}
