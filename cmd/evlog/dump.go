package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/evlog-go/evlog/internal/format"
	"github.com/evlog-go/evlog/internal/vfs"
)

func newDumpCommand(a *app) *cobra.Command {
	c := dumpCommand{a: a}
	cmd := &cobra.Command{
		Use:   "dump FILE",
		Short: "Show what stands in one file",
		Long: `Show what stands in one file of a log, a .log, a .idx or DURABLE, byte position
by byte position; of a .torn file that repair left, too. It reads this file
alone and goes on past damage, with the next bytes that make a valid record.
What it shows beyond the durable position was never acknowledged.

A start (--at) inside a sound record is moved to the next one, which a notice
tells.

Zeros at the end of a .log are space prepared for the next records. Damage makes
the exit status 3. Stray is what looks like a record, with a good checksum, and
does not fit the offsets around it: most likely bytes in the value of a damaged
record.

With --format jsonl one object a line, with --json one document with file and
items. Each has kind, pos and size. Kinds of a .log: record (offset, ts_ms,
schema, crc, key, value, as "evlog cat -J" prints them), stray (the same),
damage (error), zeros. Of a .idx: header, entry (offset, position, max_ts_ms),
filter (block, keys, columns), damage, rest. Of DURABLE: durable (next_offset,
segment_base, position), damage.`,
		Example: `  evlog dump events/00000000000000000000.log
  evlog dump events/00000000000000000000.log --at 8192 | head -3
  evlog dump events/DURABLE --json`,
		RunE: c.run,
	}
	flags := cmd.Flags()
	flags.Var(&c.at, "at", "start at this byte `POSITION`")
	flags.StringVar(&c.name, "format", "text", "in this `FORMAT`: text or jsonl")
	flags.BoolVarP(&c.jsonl, "jsonl", "J", false, "the same as --format jsonl")
	flags.BoolVar(&c.json, "json", false, "print one JSON document")
	flags.BoolVar(&c.times.local, "local", false, "in text, times in the local zone")
	completeWords(cmd, "format", []string{"text", "jsonl"})
	return cmd
}

type dumpCommand struct {
	a           *app
	at          offsetValue // a position, of the same form
	name        string
	jsonl, json bool
	times       timePrinter
}

func (c *dumpCommand) run(cmd *cobra.Command, args []string) (err error) {
	if err := c.check(cmd, args); err != nil {
		return err
	}
	f, err := vfs.OpenRegular(args[0])
	if st, statErr := os.Stat(args[0]); err != nil && statErr == nil && !st.Mode().IsRegular() {
		err = &hinted{error: fmt.Errorf("%s: not a file", args[0]), hint: "name one file of the log"}
	}
	if err != nil {
		return err
	}
	defer closing(f, &err)
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if c.at.n > uint64(st.Size()) {
		return fmt.Errorf("%s: position %d is beyond the end, %d", args[0], c.at.n, st.Size())
	}
	d := &dumper{
		a: c.a, ctx: cmd.Context(), path: args[0], w: newWindow(f, st.Size()), at: int64(c.at.n),
		times: c.times, settle: settle, structured: c.json || c.name == "jsonl", document: c.json,
	}
	dump, err := c.kindOf(cmd, d)
	if err != nil {
		return err
	}
	return d.run(dump)
}

func (c *dumpCommand) check(cmd *cobra.Command, args []string) error {
	if c.jsonl {
		c.name = "jsonl"
	}
	switch {
	case len(args) == 0:
		return usagef(cmd, "FILE is missing")
	case len(args) > 1:
		return usagef(cmd, "unexpected argument %q", args[1])
	case c.name != "text" && c.name != "jsonl":
		return usagef(cmd, "unknown format %q (there are: text, jsonl)", c.name)
	case c.json && c.jsonl:
		return usagef(cmd, "--json and -J")
	}
	return nil
}

// kindOf chooses how to read the file: by its name, or for another name by how
// it begins.
func (c *dumpCommand) kindOf(cmd *cobra.Command, d *dumper) (func() error, error) {
	name := filepath.Base(d.path)
	magic, err := d.w.bytes(0, int(min(4, d.w.size)))
	if err != nil {
		return nil, err
	}
	isDurable := name == format.DurableName
	isIndex := strings.HasSuffix(name, format.IndexSuffix)
	isLog := strings.HasSuffix(name, format.LogSuffix) || strings.HasSuffix(name, format.TornSuffix)
	if !isDurable && !isIndex && !isLog {
		isDurable = bytes.Equal(magic, []byte("EVD1"))
		isIndex = bytes.Equal(magic, []byte("EVI1"))
	}
	switch {
	case isDurable && c.at.set:
		return nil, usagef(cmd, "--at goes with a .log or .idx")
	case isDurable:
		return d.durable, nil
	case isIndex:
		return d.index, nil
	case isLog:
		return d.log, nil
	}
	return nil, usagef(cmd, "%s: not a .log, a .idx or DURABLE", d.path)
}

// dumper prints the items of one file.
type dumper struct {
	a     *app
	ctx   context.Context
	path  string
	w     *window
	at    int64
	times timePrinter

	settle     time.Duration // wait before bytes are believed to be damaged
	structured bool          // JSON in place of text
	document   bool          // all of it in one document
	items      int
	buf        []byte

	damage      int // places
	firstDamage string
}

func (d *dumper) run(dump func() error) error {
	if d.document {
		name, err := json.Marshal(d.path)
		if err != nil {
			return err
		}
		fmt.Fprintf(d.a.out, `{"file":%s,"items":[`, name)
	}
	if err := dump(); err != nil {
		return fmt.Errorf("%s: %w", d.path, err)
	}
	if d.document {
		if _, err := d.a.out.WriteString("\n]}\n"); err != nil {
			return err
		}
	}
	if d.damage == 0 {
		return nil
	}
	return &hinted{
		error: &damageError{fmt.Sprintf("%s: damaged in %s, first at %s", d.path, plural(d.damage, "place"), d.firstDamage)},
		hint:  "evlog verify tells whether acknowledged records are concerned",
	}
}

// put prints what the caller has appended to d.buf, one item.
func (d *dumper) put() error {
	if d.document {
		if d.items > 0 {
			if err := d.a.out.WriteByte(','); err != nil {
				return err
			}
		}
		d.items++
		if err := d.a.out.WriteByte('\n'); err != nil {
			return err
		}
	} else {
		d.buf = append(d.buf, '\n')
	}
	_, err := d.a.out.Write(d.buf)
	d.buf = d.buf[:0]
	return err
}

// putItem prints an item that is not a record: as JSON, or as its text.
func (d *dumper) putItem(pos, size int64, item any, text string, args ...any) error {
	if !d.structured {
		d.buf = fmt.Appendf(d.buf, "%10d %8d  ", pos, size)
		d.buf = fmt.Appendf(d.buf, text, args...)
		return d.put()
	}
	b, err := json.Marshal(item)
	if err != nil {
		return err
	}
	d.buf = append(d.buf, b...)
	return d.put()
}

// place starts every item.
type place struct {
	Kind string `json:"kind"`
	Pos  int64  `json:"pos"`
	Size int64  `json:"size"`
}

type damageItem struct {
	place
	Error string `json:"error"`
}

// putDamage prints and counts a damaged stretch.
func (d *dumper) putDamage(pos, size int64, why error) error {
	d.countDamage(pos, why)
	return d.putDamaged(pos, size, why)
}

func (d *dumper) countDamage(pos int64, why error) {
	if d.damage++; d.damage == 1 {
		d.firstDamage = fmt.Sprintf("byte %d: %v", pos, why)
	}
}

func (d *dumper) putDamaged(pos, size int64, why error) error {
	return d.putItem(pos, size, damageItem{place{"damage", pos, size}, why.Error()}, "damage: %v", why)
}

func (d *dumper) durable() error {
	dur, err := d.readDurable()
	if errors.Is(err, format.ErrDurable) {
		// A writer may have been overwriting it.
		if err = d.pause(); err == nil {
			dur, err = d.readDurable()
		}
	}
	size := d.w.size
	if errors.Is(err, format.ErrDurable) {
		return d.putDamage(0, size, err)
	}
	if err != nil {
		return err
	}
	item := struct {
		place
		NextOffset  uint64 `json:"next_offset"`
		SegmentBase uint64 `json:"segment_base"`
		Position    int64  `json:"position"`
	}{place{"durable", 0, size}, dur.NextOffset, dur.Base, dur.Position}
	return d.putItem(0, size, item, "durable: next offset %d, segment base %d, position %d",
		dur.NextOffset, dur.Base, dur.Position)
}

func (d *dumper) readDurable() (format.Durable, error) {
	size := d.w.size
	if size != format.DurableSize {
		return format.Durable{}, fmt.Errorf("%w: %s, not %d", format.ErrDurable, plural(size, "byte"), format.DurableSize)
	}
	b, err := d.w.bytes(0, format.DurableSize)
	if err != nil {
		return format.Durable{}, err
	}
	return format.ParseDurable(b)
}
