package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/evlog-go/evlog/evlog"
)

func newTailCommand(a *app) *cobra.Command {
	c := tailCommand{a: a}
	cmd := &cobra.Command{
		Use:   "tail DIR",
		Short: "Print the last records, and follow",
		Long: `Print the last records. With -f go on with new ones as they become durable,
until Ctrl-C. Where retention overtakes a follower, it says which offsets it
missed and goes on with the first one left.
` + formatHelp,
		Example: `  evlog tail events
  evlog tail events -n 0 -f -J | jq .value`,
		ValidArgsFunction: dirOnly,
		RunE:              c.run,
	}
	c.last = countValue{n: 10, set: true}
	cmd.Flags().VarP(&c.last, "last", "n", "how many")
	cmd.Flags().BoolVarP(&c.follow, "follow", "f", false, "wait for new records")
	c.filter.register(cmd)
	c.format.register(cmd)
	return cmd
}

type tailCommand struct {
	a      *app
	last   countValue
	follow bool
	filter filterFlags
	format formatFlags
}

func (c *tailCommand) run(cmd *cobra.Command, args []string) (err error) {
	dir, _, err := c.a.dirAnd(cmd, args)
	if err != nil {
		return err
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
	first, next, err := r.Bounds(ctx)
	if err != nil {
		return inDir(dir, err)
	}
	s := span{from: first, to: next, implicit: true}
	if err := s.startAtLast(ctx, r, c.last.n, &c.filter); err != nil {
		return inDir(dir, err)
	}
	printer := recordPrinter{a: c.a, encode: encode}
	if !c.follow {
		plain := catCommand{a: c.a, filter: c.filter}
		return inDir(dir, plain.scan(ctx, r, s, printer.print))
	}
	ctx, stop := watchReader(ctx, c.a.stdout)
	defer stop()
	f := follower{a: c.a, r: r, filter: &c.filter, emit: printer.print}
	err = f.run(ctx, s.from)
	if errors.Is(context.Cause(ctx), errReaderGone) {
		return nil
	}
	return inDir(dir, err)
}

// errReaderGone ends a follower that nobody listens to.
var errReaderGone = errors.New("nobody reads standard output any more")

// follower prints records as they come, and sees to it that the last one does
// not wait in the output buffer.
type follower struct {
	a      *app
	r      *evlog.Reader
	filter *filterFlags
	emit   func(evlog.Record) error
	next   uint64 // end of the log when it was last looked at
}

func (f *follower) run(ctx context.Context, from uint64) error {
	for {
		err := f.follow(ctx, &from)
		var behind *evlog.OffsetError
		if !errors.As(err, &behind) || behind.First <= from {
			return err
		}
		f.a.notice("fell behind: offsets %d to %d are gone, going on at %d", from, behind.First-1, behind.First)
		from = behind.First
	}
}

// follow runs until an error; from is kept at the offset to go on with.
func (f *follower) follow(ctx context.Context, from *uint64) error {
	for rec, err := range f.r.Follow(ctx, *from) {
		if err != nil {
			return err
		}
		*from = rec.Offset + 1
		if f.filter.match(rec) {
			if err := f.emit(rec); err != nil {
				return err
			}
		}
		if err := f.flushAtEnd(ctx, *from); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// flushAtEnd flushes the output if nothing more is there to be read.
func (f *follower) flushAtEnd(ctx context.Context, reached uint64) error {
	if reached < f.next {
		return nil
	}
	_, next, err := f.r.Bounds(ctx)
	if err == nil && reached < next {
		f.next = next
		return nil
	}
	return f.a.out.Flush() // an error of Bounds comes up again where it matters
}
