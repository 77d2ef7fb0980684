package main

import (
	"context"
	"errors"
	"iter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/evlog-go/evlog/evlog"
)

func newCatCommand(a *app) *cobra.Command {
	c := catCommand{a: a}
	cmd := &cobra.Command{
		Use:   "cat DIR",
		Short: "Print the records",
		Long: `Print the records, up to the durable end as it is at the start, and end.
Range and filter flags narrow each other down. Times may step back in a log:
--since and --until become offsets, of the first record of that time or later.
` + formatHelp + toTableHelp,
		Example: `  evlog cat events --since 03:00 -k doc:42
  evlog cat events -n 3 -J
  evlog cat events -F '%o %k %s\n' --from 100 --to 200
  evlog cat events --to-table copy.sqlite`,
		ValidArgsFunction: dirOnly,
		RunE:              c.run,
	}
	c.span.register(cmd, a.now)
	c.filter.register(cmd)
	c.format.register(cmd)
	c.table.register(cmd.Flags(), "to-table", "copy the log to a table of this SQLite database `FILE`")
	return cmd
}

type catCommand struct {
	a      *app
	span   rangeFlags
	filter filterFlags
	format formatFlags
	table  tableFlag
}

func (c *catCommand) run(cmd *cobra.Command, args []string) (err error) {
	dir, _, err := c.a.dirAnd(cmd, args)
	if err != nil {
		return err
	}
	var others []string
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) { others = append(others, f.Name) })
	if used, err := c.table.alone(cmd, others...); err != nil {
		return err
	} else if used {
		return c.copyToTable(cmd.Context(), dir)
	}
	encode, err := c.format.encoder(cmd)
	if err != nil {
		return err
	}
	if err := c.span.check(cmd); err != nil {
		return err
	}
	ctx := cmd.Context()
	r, err := c.a.openReader(ctx, dir, c.span.beyond)
	if err != nil {
		return err
	}
	defer closing(r, &err)
	s, err := c.span.resolve(ctx, r)
	if err != nil {
		return outOfRange(inDir(dir, err))
	}
	printer := recordPrinter{a: c.a, encode: encode}
	return outOfRange(inDir(dir, c.scan(ctx, r, s, printer.print)))
}

// outOfRange adds how to start inside the log.
func outOfRange(err error) error {
	var offset *evlog.OffsetError
	switch {
	case !errors.As(err, &offset):
		return err
	case offset.Asked < offset.First:
		return &hinted{err, "-o beginning starts at the first one left"}
	}
	return &hinted{err, "-o end starts behind the last one"}
}

// scan emits what the flags choose from the span.
func (c *catCommand) scan(ctx context.Context, r *evlog.Reader, s span, emit func(evlog.Record) error) error {
	left := c.span.most.limit()
	if c.span.reverse {
		return c.backward(ctx, r, s, min(left, c.span.last.limit()), emit)
	}
	if c.span.last.set {
		if err := s.startAtLast(ctx, r, c.span.last.n, &c.filter); err != nil {
			return err
		}
	}
	return c.forward(ctx, r, s, left, emit)
}

// forward emits in order of offsets, at most left records.
func (c *catCommand) forward(ctx context.Context, r *evlog.Reader, s span, left uint64, emit func(evlog.Record) error) error {
	if s.empty() || left == 0 {
		return nil
	}
	for rec, err := range c.records(ctx, r, s.from) {
		var moved *evlog.OffsetError
		switch {
		case err == nil:
		case s.implicit && errors.As(err, &moved) && moved.First > s.from:
			// Retention removed the start of the log between the look and the
			// reading. Nobody asked for that start.
			s.from = moved.First
			return c.forward(ctx, r, s, left, emit)
		default:
			return err
		}
		if rec.Offset >= s.to {
			return nil
		}
		s.implicit = false
		if !c.filter.match(rec) {
			continue
		}
		if err := emit(rec); err != nil {
			return err
		}
		if left--; left == 0 {
			return nil
		}
	}
	return nil
}

// records reads by key where that is what was asked for.
func (c *catCommand) records(ctx context.Context, r *evlog.Reader, from uint64) iter.Seq2[evlog.Record, error] {
	if c.filter.key.set && len(c.filter.key.b) > 0 {
		return r.ByKey(ctx, c.filter.key.b, from)
	}
	return r.Records(ctx, from)
}

// backward emits newest first, at most left records.
func (c *catCommand) backward(ctx context.Context, r *evlog.Reader, s span, left uint64, emit func(evlog.Record) error) error {
	if s.empty() || left == 0 {
		return nil
	}
	for rec, err := range r.Backward(ctx, s.to) {
		switch {
		case err != nil:
			return err
		case rec.Offset < s.from:
			return nil
		case !c.filter.match(rec):
			continue
		}
		if err := emit(rec); err != nil {
			return err
		}
		if left--; left == 0 {
			return nil
		}
	}
	return nil
}
