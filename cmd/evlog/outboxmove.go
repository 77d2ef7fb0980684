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
		Use:   "requeue DB ID...",
		Short: "Have the relay try parked rows again",
		Long: `Have the relay try parked rows again, for when what stood in their way is gone:
a limit was raised, or the application's encoding was mended. A relay that is
running notices by itself.
` + outboxMoveHelp,
		Example: `  evlog outbox requeue app.sqlite 17 18
  evlog outbox requeue app.sqlite 17 18 --execute`,
		RunE: c.run,
	}
	c.register(cmd)
	return cmd
}

func newOutboxDiscardCommand(a *app) *cobra.Command {
	c := outboxMove{a: a, what: "discard", do: (*outbox.Box).Discard}
	cmd := &cobra.Command{
		Use:   "discard DB ID...",
		Short: "Delete parked rows for good",
		Long:  "Delete parked rows for good: they will never be in the log.\n" + outboxMoveHelp,
		Example: `  evlog outbox discard app.sqlite 17
  evlog outbox discard app.sqlite 17 --execute`,
		RunE: c.run,
	}
	c.register(cmd)
	return cmd
}

const outboxMoveHelp = `
Without --execute it says what it would do, and changes nothing. An ID that no
parked row has is an error, and nothing is changed either.

With --json: one object with action, executed and rows, as "evlog outbox --json"
has them.`

// outboxMove is what is done to parked rows.
type outboxMove struct {
	a       *app
	what    string
	do      func(b *outbox.Box, ctx context.Context, ids ...int64) error
	table   tableFlags
	execute bool
}

func (c *outboxMove) register(cmd *cobra.Command) {
	c.table.register(cmd)
	cmd.Flags().BoolVar(&c.execute, "execute", false, "do it")
}

func (c *outboxMove) run(cmd *cobra.Command, args []string) (err error) {
	if err := exactly(cmd, args, "DB", "ID..."); err != nil {
		return err
	}
	path := args[0]
	var ids []int64
	for _, arg := range args[1:] {
		id, err := strconv.ParseInt(arg, 10, 64)
		if err != nil {
			return usagef(cmd, "%q is no ID", arg)
		}
		ids = append(ids, id)
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
		cells := [][]string{{"ID", "UID", "ACTION", "ERROR"}}
		for _, r := range rows {
			cells = append(cells, []string{strconv.FormatInt(r.ID, 10), r.UID.String(), c.what, printable(r.Reason)})
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
			rows, err = parkedRows(ctx, db, ids)
			return err
		})
		return rows, err
	}
	err = changeDatabase(path, func(db *sql.DB) (err error) {
		if rows, err = parkedRows(ctx, db, ids); err != nil {
			return noOutbox(err)
		}
		box, err := outbox.Open(ctx, db, nil) // it has the tables: this creates none
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

// parkedRows returns those with these ids.
func parkedRows(ctx context.Context, db *sql.DB, ids []int64) (rows []outbox.ParkedRow, err error) {
	parked, err := outbox.Parked(ctx, db)
	if err != nil {
		return nil, err
	}
	seen := map[int64]bool{}
	for _, id := range ids {
		i := slices.IndexFunc(parked, func(r outbox.ParkedRow) bool { return r.ID == id })
		if i < 0 {
			return nil, fmt.Errorf("row %d: %w", id, outbox.ErrNotParked)
		}
		if !seen[id] {
			rows = append(rows, parked[i])
		}
		seen[id] = true
	}
	return rows, nil
}
