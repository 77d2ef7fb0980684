package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/evlog-go/evlog/cursor"
	"github.com/evlog-go/evlog/evlog"
)

func newConsumeCommand(a *app) *cobra.Command {
	c := consumeCommand{a: a}
	cmd := &cobra.Command{
		Use:   "consume DIR NAME",
		Short: "Print the records that a named consumer has not had yet",
		Long: `Print the records from where the consumer NAME stopped the last time, up to the
durable end, and keep where it is now. One that is not known starts at the first
record left; "evlog consumers set" puts it elsewhere.

Offsets are committed after the output is flushed: every thousand records, every
second, and at the end, also at Ctrl-C. So no record is left out wherever this
command is killed; some may come twice. What was written to a pipe counts as
output, whether or not the other side has read it: a program there that dies has
lost what it had not dealt with. For one that sends, say, read with "evlog cat
--from N" and commit with "evlog consumers set" when it is done.

Two that run under one name do not share the work: one of them ends with an
error. So does a consumer whose cursor does not fit the log any more; "evlog
consumers reset" lets it go on.
` + formatHelp,
		Example: `  evlog consume events archive -J >> archive.jsonl
  evlog consume events next -n 1 --format raw
  evlog consume events printer -f`,
		ValidArgsFunction: a.dirThen(consumerNames, 1),
		RunE:              c.run,
	}
	flags := cmd.Flags()
	flags.VarP(&c.most, "count", "n", "at most N")
	flags.BoolVarP(&c.follow, "follow", "f", false, "wait for new records")
	c.format.register(cmd)
	return cmd
}

type consumeCommand struct {
	a      *app
	most   countValue
	follow bool
	format formatFlags
}

func (c *consumeCommand) run(cmd *cobra.Command, args []string) (err error) {
	dir, name, err := c.a.dirAndConsumer(cmd, args)
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
	store, err := c.a.openConsumers(ctx, dir)
	if err != nil {
		return err
	}
	defer closing(store, &err)
	if c.most.set && c.most.n == 0 {
		return nil
	}
	ctx, stop := watchReader(ctx, c.a.stdout)
	defer stop()
	err = c.consume(ctx, r, store, name, encode)
	if errors.Is(context.Cause(ctx), errReaderGone) {
		return nil
	}
	return inDir(dir, doesNotFit(consumersError(dir, err)))
}

func (c *consumeCommand) consume(ctx context.Context, r *evlog.Reader, store *cursor.File, name string, encode recordEncoder) error {
	printer := recordPrinter{a: c.a, encode: encode}
	end := follower{a: c.a, r: r}
	handle := func(ctx context.Context, rec evlog.Record) error {
		err := printer.print(rec)
		if err == nil && c.follow {
			err = end.flushAtEnd(ctx, rec.Offset+1)
		}
		return err
	}
	flush := func(context.Context) error {
		if err := context.Cause(ctx); errors.Is(err, errReaderGone) {
			return err // nobody may have had the last records
		}
		return c.a.out.Flush()
	}
	return cursor.Run(ctx, r, store, name, handle, &cursor.Options{
		UntilEnd: !c.follow, Limit: c.most.n, BeforeCommit: flush, Logger: c.a.logger(),
	})
}

// doesNotFit adds what to do about a cursor that does not fit the log.
func doesNotFit(err error) error {
	var wrong *cursor.LogError
	switch {
	case errors.As(err, &wrong) && wrong.NoCursor:
		return &hinted{err, "consumers.json came from there; evlog consumers set gives this consumer a place in this log"}
	case errors.Is(err, cursor.ErrAhead), errors.Is(err, cursor.ErrBehind), errors.Is(err, cursor.ErrWrongLog):
		return &hinted{err, "evlog consumers reset puts it to --to-earliest, --to-latest or elsewhere"}
	case errors.Is(err, cursor.ErrMoved):
		return &hinted{err, "two consumers under one name do not share work, give each a name of its own; one that was reset or removed is started again"}
	}
	return err
}
