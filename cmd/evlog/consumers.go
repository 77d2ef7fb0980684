package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/evlog-go/evlog/cursor"
	"github.com/evlog-go/evlog/evlog"
)

func newConsumersCommand(a *app) *cobra.Command {
	var table tableFlags
	var db string
	cmd := &cobra.Command{
		Use:   "consumers DIR",
		Short: "List the named consumers, and move their cursors",
		Long: `List the consumers that have committed offsets, and those that have not and that
the log holds records for (evlog append --hold-for). Committed is the first
offset that a consumer has not finished. Lag is how many offsets lie between it
and the log's end, holes included. A note says where a cursor does not fit the
log:

  behind     retention has removed what comes next
  ahead      the cursor is above everything in the log: it was moved there by
             hand, or the log is an older copy
  other log  the cursor was made for a log with another id
  holds      segments that are due for removal stay for it
  never committed  whatever is due stays for it, from the first record on

A consumer with one of the first three notes ends with an error. "evlog
consumers reset" lets it go on.

With --db FILE: the consumers whose cursors package sqlbridge keeps in that
SQLite database. It is opened for reading and may be in use. There is one more
note:

  half applied  a handler committed part of a batch by itself; the application
                has to say where to go on (Bridge.Reset)

With --json: an array of objects with name, committed (null: never), log_start,
log_end, lag (null where it means nothing), updated, state (ok, behind, ahead,
other log, unknown, half applied, never committed), note, and held_segments and
held_bytes, which are due for removal and stay for it.`,
		Example: `  evlog consumers events
  evlog consumers events --json | jq '.[] | select(.lag > 1000).name'
  evlog consumers events --db app.sqlite
  evlog consumers reset events uplink --to-time yesterday --execute`,
		ValidArgsFunction: dirOrCommand,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.consumers(cmd, args, db, &table)
		},
	}
	table.register(cmd)
	cmd.Flags().StringVar(&db, "db", "", "cursors in this SQLite `FILE`, not in DIR")
	cmd.AddCommand(newConsumersSetCommand(a), newConsumersResetCommand(a), newConsumersRemoveCommand(a))
	return cmd
}

func (a *app) consumers(cmd *cobra.Command, args []string, db string, table *tableFlags) (err error) {
	dir, _, err := a.dirAnd(cmd, args)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	r, err := a.openReader(ctx, dir, false)
	if err != nil {
		return err
	}
	defer closing(r, &err)
	var rows []consumerRow
	where := dir
	if cmd.Flags().Changed("db") {
		where = db
		rows, err = consumersFromDB(ctx, r, db)
	} else {
		rows, err = a.consumersFromDir(ctx, r, dir)
	}
	if err != nil {
		return err
	}
	if where == dir {
		plan, err := r.PlanRetain(ctx, nil)
		if err != nil {
			return err
		}
		for _, h := range markHolds(rows, plan.Holds) {
			a.notice("%s", holdText(h))
		}
	}
	if table.json {
		return writeDocument(a.out, consumerDocs(rows, table.times))
	}
	if len(rows) == 0 {
		a.notice("%s: no consumers", where)
		return nil
	}
	return writeTable(a.out, consumerCells(rows, table.times))
}

// consumersFromDir returns the consumers of consumers.json.
func (a *app) consumersFromDir(ctx context.Context, r *evlog.Reader, dir string) (rows []consumerRow, err error) {
	store, err := a.openConsumers(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer closing(store, &err)
	// The positions first: the log's end, looked at later, is not below them.
	positions, err := store.List(ctx)
	if err != nil {
		return nil, consumersError(dir, err)
	}
	if rows, err = consumerRows(ctx, r, positions); err != nil {
		return nil, err
	}
	return addHeld(ctx, r, rows)
}

// addHeld adds those that retention waits for and that have never committed.
func addHeld(ctx context.Context, r *evlog.Reader, rows []consumerRow) ([]consumerRow, error) {
	st, err := r.Status(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range st.Config.HoldFor {
		if name == evlog.HoldForAll || slices.ContainsFunc(rows, func(row consumerRow) bool { return row.Name == name }) {
			continue
		}
		rows = append(rows, consumerRow{
			Position: cursor.Position{Name: name}, first: st.First, next: st.Next, state: stateNever, note: stateNever,
		})
	}
	slices.SortStableFunc(rows, func(a, b consumerRow) int { return strings.Compare(a.Name, b.Name) })
	return rows, nil
}

// markHolds adds to each consumer what retention leaves for it, and returns what
// it leaves for others.
func markHolds(rows []consumerRow, holds []evlog.Hold) (others []evlog.Hold) {
	for _, h := range holds {
		i := slices.IndexFunc(rows, func(row consumerRow) bool { return row.Name == h.Name })
		if i < 0 || h.Err != nil && rows[i].state != stateNever {
			others = append(others, h)
			continue
		}
		rows[i].held = h
		if rows[i].note != "" {
			rows[i].note += "; "
		}
		rows[i].note += fmt.Sprintf("holds %s that are due for removal, %s", plural(h.Segments, "segment"), plural(h.Bytes, "byte"))
	}
	return others
}

// openConsumers opens the store of a log's directory.
func (a *app) openConsumers(ctx context.Context, dir string) (*cursor.File, error) {
	return cursor.OpenFile(ctx, dir, &cursor.FileOptions{Logger: a.logger()})
}

// consumersError adds the log's name where the error does not carry it, and what
// to do about a consumers.json that cannot be used.
func consumersError(dir string, err error) error {
	for _, named := range []error{
		cursor.ErrAhead, cursor.ErrBehind, cursor.ErrWrongLog, cursor.ErrMoved, cursor.ErrUnknownConsumer,
	} {
		if errors.Is(err, named) {
			return fmt.Errorf("%s: %w", dir, err)
		}
	}
	if errors.Is(err, cursor.ErrNoLogID) {
		return &hinted{err, "log.json is missing or damaged, evlog repair gives the log a new id"}
	}
	return err
}

// consumerRow is a consumer's cursor against the log.
type consumerRow struct {
	cursor.Position
	first, next uint64 // of the log
	state       string
	note        string
	held        evlog.Hold
}

// States of a cursor, in JSON.
const (
	stateOK       = "ok"
	stateBehind   = "behind"
	stateAhead    = "ahead"
	stateOtherLog = "other log"
	stateUnknown  = "unknown"
	stateNever    = "never committed"
)

// consumerRows judges cursors, of whichever store, by the rules that consumers
// go by.
func consumerRows(ctx context.Context, r cursor.Log, positions []cursor.Position) ([]consumerRow, error) {
	first, next, err := r.Bounds(ctx)
	if err != nil {
		return nil, err
	}
	rows := make([]consumerRow, len(positions))
	for i, p := range positions {
		row := consumerRow{Position: p, first: first, next: next, state: stateOK}
		_, err := cursor.Resolve(ctx, r, p.Name, p.Next, p.LogID, cursor.Fail)
		var wrong *cursor.LogError
		var outside *cursor.RangeError
		switch {
		case err == nil:
		case errors.As(err, &wrong):
			row.state, row.note = stateOtherLog, fmt.Sprintf("other log: made for %s", wrong.CursorsLogID)
		case errors.Is(err, cursor.ErrBehind) && errors.As(err, &outside):
			row.state, row.note = stateBehind, fmt.Sprintf("behind: offsets %d to %d are gone", p.Next, outside.First-1)
		case errors.Is(err, cursor.ErrAhead):
			row.state, row.note = stateAhead, "ahead: the log ends before it"
		case errors.Is(err, cursor.ErrNoLogID):
			row.state, row.note = stateUnknown, "the log's id is not known"
		default:
			return nil, err
		}
		rows[i] = row
	}
	return rows, nil
}

// committed is nil where nothing was.
func (r *consumerRow) committed() *uint64 {
	if r.state == stateNever {
		return nil
	}
	return &r.Next
}

// lag is nil where it would mean nothing.
func (r *consumerRow) lag() *uint64 {
	if r.state != stateOK && r.state != stateBehind {
		return nil
	}
	lag := cursor.Lag(r.first, r.next, r.Next)
	return &lag
}

func consumerCells(rows []consumerRow, times timePrinter) [][]string {
	cells := [][]string{{"NAME", "COMMITTED", "LOG-START", "LOG-END", "LAG", "UPDATED", "NOTE"}}
	for i := range rows {
		r := &rows[i]
		cells = append(cells, []string{
			printable(r.Name), numberOrDash(r.committed()), strconv.FormatUint(r.first, 10),
			strconv.FormatUint(r.next, 10), numberOrDash(r.lag()), times.cell(r.Updated), orDash(r.note),
		})
	}
	return cells
}

func numberOrDash(n *uint64) string {
	if n == nil {
		return "-"
	}
	return strconv.FormatUint(*n, 10)
}

// printable is a name that moves no cursor and starts no line.
func printable(name string) string { return string(appendPrintable(nil, []byte(name))) }

// consumerDoc is a consumer in the JSON document.
type consumerDoc struct {
	Name      string  `json:"name"`
	Committed *uint64 `json:"committed"`
	LogStart  uint64  `json:"log_start"`
	LogEnd    uint64  `json:"log_end"`
	Lag       *uint64 `json:"lag"`
	Updated   *string `json:"updated"`
	State     string  `json:"state"`
	Note      string  `json:"note"`
	Held      int     `json:"held_segments"`
	HeldBytes int64   `json:"held_bytes"`
}

func consumerDocs(rows []consumerRow, times timePrinter) []consumerDoc {
	docs := make([]consumerDoc, len(rows))
	for i := range rows {
		r := &rows[i]
		docs[i] = consumerDoc{
			Name: r.Name, Committed: r.committed(), LogStart: r.first, LogEnd: r.next, Lag: r.lag(),
			Updated: times.json(r.Updated), State: r.state,
			Held: r.held.Segments, HeldBytes: r.held.Bytes, Note: r.note,
		}
	}
	return docs
}
