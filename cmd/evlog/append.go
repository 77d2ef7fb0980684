package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/outbox"
)

func newAppendCommand(a *app) *cobra.Command {
	c := appendCommand{a: a}
	cmd := &cobra.Command{
		Use:   "append DIR",
		Short: "Append standard input to the log",
		Long: `Append standard input to the log, which is created if there is none. What was
read is made durable whenever no more input is ready, and at the end.

Formats:
  lines  each line, without its newline, is a value. -k gives all of them a key;
         -K DELIM splits each line at the first DELIM into key and value
  jsonl  each line is a JSON object with key or key_b64, value or value_b64,
         ts_ms and schema, as "evlog cat -J" prints it. The payload of a string
         is its text, of an object, array, number or boolean its JSON text as it
         stands, of null an empty value. offset and tombstone are ignored:
         offsets are given anew, without holes. An absent ts_ms is stamped.
         -k and --schema count where a line does not say

A bad line ends the command with its number; what came before it is durable.

--segment-bytes and --sync are stored in the log. Sync policies: always (the
default), interval=DURATION, flush (only when input pauses, and at the end).

So are the limits of retention, by which whoever has the log open for writing
removes its oldest segments (evlog retain --help says how they count), and the
consumers that it waits for: --hold-for needs --hold-bytes or --hold-age. "none"
turns a stored one off.
` + fromTableHelp,
		Example: `  printf 'hello\nworld\n' | evlog append events
  evlog append events -K : --ack < pairs.txt
  evlog append moved --from-table app.sqlite
  evlog cat old -J | evlog append new --format jsonl`,
		ValidArgsFunction: dirOnly,
		RunE:              c.run,
	}
	c.key.name, c.delim.name = "KEY", "DELIM"
	flags := cmd.Flags()
	flags.StringVar(&c.format, "format", "lines", "input is of this `FORMAT`: lines or jsonl")
	flags.VarP(&c.key, "key", "k", "key of the records")
	flags.VarP(&c.delim, "key-delimiter", "K", "split each line into key and value here (\\t and \\xHH are understood)")
	flags.Var(&c.schema, "schema", "schema id of the records")
	flags.BoolVar(&c.ack, "ack", false, "print each record's offset, one a line, once it is durable")
	flags.Var(&c.segmentBytes, "segment-bytes", "size from which a new segment is started, such as 64M")
	flags.Var(&c.sync, "sync", "always, interval=DURATION or flush")
	c.retention.register(flags)
	c.table.register(flags, "from-table", "copy the log that a table of this SQLite database `FILE` holds")
	completeWords(cmd, "format", []string{"lines", "jsonl"})
	completeFlag(cmd, "hold-for", a.holdNames)
	completeWords(cmd, "sync", []string{"always", "interval=100ms", "flush"})
	return cmd
}

type appendCommand struct {
	a            *app
	format       string
	key, delim   bytesValue
	schema       schemaValue
	ack          bool
	segmentBytes sizeValue
	sync         syncValue
	retention    retentionFlags
	table        tableFlag
}

func (c *appendCommand) run(cmd *cobra.Command, args []string) error {
	dir, _, err := c.a.dirAnd(cmd, args)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	if used, err := c.table.alone(cmd, "key", "key-delimiter", "schema", "format", "ack"); err != nil {
		return err
	} else if used {
		return c.appendTable(ctx, dir)
	}
	parse, maxLine, err := c.parser(cmd)
	if err != nil {
		return err
	}
	l, err := evlog.Open(ctx, dir, c.options())
	if errors.Is(err, evlog.ErrBadOptions) {
		return usageOf(cmd, flagsError{err}) // they come from flags, and from what is stored
	}
	if err != nil {
		return err
	}
	st, err := l.Reader().Status(ctx)
	if err == nil && st.OpenHook != "" {
		err = needsHook(dir, st.OpenHook)
	}
	if err != nil {
		closing(l, &err)
		return err
	}
	p := &pump{
		a: c.a, l: l,
		lines: newLineReader(c.a.in, maxLine),
		batch: batcher{parse: parse, maxBatch: min(st.Config.SegmentBytes/batchesPerSegment, blockBytes)},
		acks:  acks{wanted: c.ack, out: c.a.out},
	}
	return p.run(ctx)
}

// needsHook says who may append to a log with this open hook.
func needsHook(dir, hook string) error {
	err := fmt.Errorf("%s: append: %w %q", dir, evlog.ErrHookRequired, hook)
	if hook != outbox.HookName {
		return err
	}
	return &hinted{err, "a second process inserts into the outbox (outbox.Put, or INSERT INTO evlog_outbox in the application's database)"}
}

// batchesPerSegment keeps batches, which are never divided, small against a
// segment: it may stay that much below its size.
const batchesPerSegment = 64

// parser is what the flags say about the input, and the longest line that can
// be a legal record.
func (c *appendCommand) parser(cmd *cobra.Command) (lineParser, int, error) {
	def := evlog.Record{Key: c.key.b, Schema: c.schema.id}
	if err := checkRecord(&def); err != nil {
		return nil, 0, usagef(cmd, "-k: %v", err)
	}
	switch c.format {
	case "lines":
		if c.delim.set && len(c.delim.b) == 0 {
			return nil, 0, usagef(cmd, "-K: the delimiter is empty")
		}
		return parseValues(def, unescapeDelimiter(c.delim.b)), evlog.DefaultMaxRecordBytes, nil
	case "jsonl":
		if c.delim.set {
			return nil, 0, usagef(cmd, "-K goes with --format lines")
		}
		// A byte takes six as an escape.
		return parseJSONL(def), 6*evlog.DefaultMaxRecordBytes + blockBytes, nil
	}
	return nil, 0, usagef(cmd, "unknown format %q (there are: lines, jsonl)", c.format)
}

func (c *appendCommand) options() *evlog.Options {
	o := &evlog.Options{
		SegmentBytes: c.segmentBytes.n,
		Sync:         c.sync.policy,
		SyncInterval: c.sync.interval,
		Logger:       c.a.logger(),
		OnEvent: func(e evlog.Event) {
			if e.Kind == evlog.EventOpened && e.Bytes > 0 {
				c.noticeCut(e)
			}
		},
	}
	c.retention.options(o)
	return o
}

// noticeCut tells what opening cut off the end of the log.
func (c *appendCommand) noticeCut(e evlog.Event) {
	if e.KeptAs == "" {
		c.a.notice("cut %s of an unfinished record, next offset %d", plural(e.Bytes, "byte"), e.Offset)
		return
	}
	c.a.notice("cut %s at damage behind which a valid record stood; they are kept in %s (evlog dump shows them); next offset %d",
		plural(e.Bytes, "byte"), e.KeptAs, e.Offset)
}
