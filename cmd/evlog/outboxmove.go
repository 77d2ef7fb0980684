package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/evlog-go/evlog/outbox"
)

func newOutboxRequeueCommand(a *app) *cobra.Command {
	c := outboxMove{a: a, what: "requeue", do: (*outbox.Box).Requeue}
	cmd := &cobra.Command{
		Use:   "requeue DB ID...|--all",
		Short: "Have the relay try parked rows again",
		Long: `Have the relay try parked rows again, for when what stood in their way is gone:
a limit was raised, or the application's encoding was mended. A relay that is
running notices by itself.
` + outboxMoveHelp,
		Example: `  evlog outbox requeue app.sqlite 17 18
  evlog outbox requeue app.sqlite --all --execute`,
		RunE: c.run,
	}
	c.register(cmd)
	return cmd
}

func newOutboxDiscardCommand(a *app) *cobra.Command {
	c := outboxMove{a: a, what: "discard", do: (*outbox.Box).Discard}
	cmd := &cobra.Command{
		Use:   "discard DB ID...|--all",
		Short: "Delete parked rows for good",
		Long:  "Delete parked rows for good: they will never be in the log.\n" + outboxMoveHelp,
		Example: `  evlog outbox show app.sqlite --all -J > parked.jsonl
  evlog outbox discard app.sqlite 17
  evlog outbox discard app.sqlite 17 --execute`,
		RunE: c.run,
	}
	c.register(cmd)
	return cmd
}

const outboxMoveHelp = `
--all means all rows that are parked. Without --execute it says what it would
do, and changes nothing. An ID that no parked row has is an error, and nothing
is changed either.

With --json: one object with action, executed and rows, as "evlog outbox --json"
has them.`

// outboxMove is what is done to parked rows.
type outboxMove struct {
	a       *app
	what    string
	do      func(b *outbox.Box, ctx context.Context, ids ...int64) error
	table   tableFlags
	rows    rowFlags
	execute bool
}

func (c *outboxMove) register(cmd *cobra.Command) {
	c.table.register(cmd)
	c.rows.register(cmd)
	cmd.Flags().BoolVar(&c.execute, "execute", false, "do it")
}

func (c *outboxMove) run(cmd *cobra.Command, args []string) (err error) {
	path, ids, err := c.rows.parse(cmd, args)
	if err != nil {
		return err
	}
	rows, err := c.apply(cmd.Context(), path, ids)
	if err != nil {
		if errors.Is(err, outbox.ErrNotParked) {
			err = &hinted{err, "evlog outbox lists those that are"}
		}
		return err
	}
	if c.table.json {
		err = writeDocument(c.a.out, &outboxMoveDoc{Action: c.what, Executed: c.execute, Rows: parkedDocs(rows, c.table.times)})
	} else {
		cells := [][]string{{"ID", "KEY", "BYTES", "ACTION", "ERROR"}}
		for _, r := range rows {
			cells = append(cells, []string{strconv.FormatInt(r.ID, 10), shortened(r.Key), bytesOf(&r), c.what, printable(r.Reason)})
		}
		err = writeTable(c.a.out, cells)
	}
	if err == nil && !c.execute {
		c.a.notice("nothing was changed; --execute does it")
	}
	return err
}

type outboxMoveDoc struct {
	Action   string      `json:"action"`
	Executed bool        `json:"executed"`
	Rows     []parkedDoc `json:"rows"`
}

// apply returns the rows, and with execute does it to them.
func (c *outboxMove) apply(ctx context.Context, path string, ids []int64) (rows []outbox.ParkedRow, err error) {
	if !c.execute {
		err := readOutbox(ctx, path, func(db *sql.DB) (err error) {
			rows, err = c.rows.parked(ctx, db, ids)
			return err
		})
		return rows, err
	}
	err = changeDatabase(path, func(db *sql.DB) (err error) {
		if rows, err = c.rows.parked(ctx, db, ids); err != nil {
			return noOutbox(err)
		}
		// It has all that Open would create. An outbox that lacks something is the
		// application's to mend: a new one is a mismatch for its log.
		box, err := outbox.Open(ctx, db, nil)
		if err != nil {
			return err
		}
		found := make([]int64, len(rows))
		for i, r := range rows {
			found[i] = r.ID
		}
		return c.do(box, ctx, found...)
	})
	return rows, err
}

// rowFlags name rows of an outbox: by their ids, or all that are parked.
type rowFlags struct{ all bool }

func (f *rowFlags) register(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.all, "all", false, "all parked rows")
}

// parse splits the arguments into DB and ids, each once.
func (f *rowFlags) parse(cmd *cobra.Command, args []string) (path string, ids []int64, err error) {
	if f.all {
		err = exactly(cmd, args, "DB")
	} else {
		err = exactly(cmd, args, "DB", "ID...")
	}
	if err != nil {
		return "", nil, err
	}
	for _, arg := range args[1:] {
		id, err := strconv.ParseInt(arg, 10, 64)
		if err != nil {
			return "", nil, usagef(cmd, "%q is no ID", arg)
		}
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return args[0], ids, nil
}

// parked returns the rows, all of which have to be parked.
func (f *rowFlags) parked(ctx context.Context, db *sql.DB, ids []int64) ([]outbox.ParkedRow, error) {
	// This tells all that may be missing, also the one row of the relay.
	if _, err := outbox.ReadStatus(ctx, db); err != nil {
		return nil, err
	}
	parked, err := outbox.Parked(ctx, db)
	if err != nil || f.all {
		return parked, err
	}
	var rows []outbox.ParkedRow
	for _, id := range ids {
		i := slices.IndexFunc(parked, func(r outbox.ParkedRow) bool { return r.ID == id })
		if i < 0 {
			return nil, fmt.Errorf("row %d: %w", id, outbox.ErrNotParked)
		}
		rows = append(rows, parked[i])
	}
	return rows, nil
}
