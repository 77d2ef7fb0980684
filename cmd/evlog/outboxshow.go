package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/evlog-go/evlog/outbox"
)

func newOutboxShowCommand(a *app) *cobra.Command {
	c := outboxShow{a: a, format: formatFlags{noOffset: true}}
	cmd := &cobra.Command{
		Use:   "show DB ID...|--all",
		Short: "Print rows of the outbox, whole",
		Long: `Print rows of the outbox, queued or parked, as the records that they are to be.
"evlog outbox" lists the parked ones with their IDs; --all prints all of these.
` + formatHelp + `

A row has no offset yet: in text and as %o stands its ID, and jsonl has none.`,
		Example: `  evlog outbox show app.sqlite 17
  evlog outbox show app.sqlite 17 --format raw > value
  evlog outbox show app.sqlite --all -J > parked.jsonl`,
		RunE: c.run,
	}
	c.rows.register(cmd)
	c.format.register(cmd)
	return cmd
}

type outboxShow struct {
	a      *app
	rows   rowFlags
	format formatFlags
}

func (c *outboxShow) run(cmd *cobra.Command, args []string) error {
	path, ids, err := c.rows.parse(cmd, args)
	if err != nil {
		return err
	}
	encode, err := c.format.encoder(cmd)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	if c.rows.all {
		if ids, err = parkedIDs(ctx, path); err != nil {
			return err
		}
	}
	printer := recordPrinter{a: c.a, encode: encode}
	for _, id := range ids { // one value in memory at a time
		row, err := findRow(ctx, path, id)
		if errors.Is(err, errNoRow) && c.rows.all {
			continue // it was dealt with meanwhile
		}
		if err != nil {
			return err
		}
		r := row.Record
		r.Offset = uint64(row.ID)
		if err := printer.print(r); err != nil {
			return err
		}
	}
	return nil
}

func parkedIDs(ctx context.Context, path string) (ids []int64, err error) {
	err = readOutbox(ctx, path, func(db *sql.DB) error {
		rows, err := outbox.Parked(ctx, db)
		ids = nil
		for _, r := range rows {
			ids = append(ids, r.ID)
		}
		return err
	})
	return ids, err
}

var errNoRow = errors.New("no such row")

func findRow(ctx context.Context, path string, id int64) (row outbox.Row, err error) {
	err = readOutbox(ctx, path, func(db *sql.DB) error {
		var found bool
		row, found, err = outbox.FindRow(ctx, db, id)
		if err == nil && !found {
			return &hinted{fmt.Errorf("row %d: %w", id, errNoRow), "it may be in the log by now"}
		}
		return err
	})
	return row, err
}
