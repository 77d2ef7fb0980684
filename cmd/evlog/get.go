package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/evlog-go/evlog/evlog"
)

func newGetCommand(a *app) *cobra.Command {
	c := getCommand{a: a}
	cmd := &cobra.Command{
		Use:   "get DIR OFFSET",
		Short: "Print one record",
		Long: `Print the first record at or after OFFSET. There may be none with that very
number: compaction and retention remove records, and nothing is renumbered.
` + formatHelp,
		Example: `  evlog get events 42
  evlog get events 42 --exact --format raw > payload`,
		ValidArgsFunction: dirOnly,
		RunE:              c.run,
	}
	cmd.Flags().BoolVar(&c.exact, "exact", false, "only the record with this very offset")
	c.format.register(cmd)
	return cmd
}

type getCommand struct {
	a      *app
	exact  bool
	format formatFlags
}

func (c *getCommand) run(cmd *cobra.Command, args []string) (err error) {
	dir, rest, err := c.a.dirAnd(cmd, args, "OFFSET")
	if err != nil {
		return err
	}
	offset, err := parseOffset(rest[0])
	if err != nil {
		return usageOf(cmd, err)
	}
	encode, err := c.format.encoder(cmd)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	r, err := c.a.openReader(ctx, dir, false)
	if err != nil {
		return err
	}
	defer closing(r, &err)
	rec, err := r.Get(ctx, offset)
	var gone *evlog.OffsetError
	if errors.As(err, &gone) && offset < gone.First && !c.exact {
		// Below the first one left, that one is the answer.
		rec, err = r.Get(ctx, gone.First)
	}
	if err == nil && c.exact && rec.Offset != offset {
		err = fmt.Errorf("offset %d: %w; the next one is %d", offset, evlog.ErrNotFound, rec.Offset)
	}
	if errors.As(err, &gone) {
		return &hinted{fmt.Errorf("%s: %w", dir, gone), "evlog info says which offsets there are"}
	}
	if err != nil {
		return inDir(dir, err)
	}
	printer := recordPrinter{a: c.a, encode: encode}
	return printer.print(rec)
}
