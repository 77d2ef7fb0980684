package main

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/sqlbridge/tablelog"
)

const fromTableHelp = `
--from-table copies a log that package sqlbridge/tablelog keeps in an SQLite
database, and reads no input. The copy has the same id, so that cursors fit it,
and all offsets, holes, times and bytes as they are. It can be interrupted, and
the same command goes on, also with what was appended to the table since; what
is there already is compared first. A log with another id, or with other
records, is refused. Once a program appends to the copy, none may append to the
table any more: two records would have one name.
`

const toTableHelp = `

--to-table copies the whole log to a table of package sqlbridge/tablelog, which
is created where it is missing, and prints nothing. Other flags do not go with
it. What "evlog append --help" says of --from-table holds for it too. Cursors
that package sqlbridge keeps fit the copy; those in consumers.json stay behind.`

// tableFlag names a table that holds a log.
type tableFlag struct {
	name      string // of the flag
	db, table string
}

func (f *tableFlag) register(flags *pflag.FlagSet, name, usage string) {
	f.name = name
	flags.StringVar(&f.db, name, "", usage)
	flags.StringVar(&f.table, "table", tablelog.DefaultTable, "the `NAME` of that table")
}

// alone reports whether the flag is used; these others do not go with it.
func (f *tableFlag) alone(cmd *cobra.Command, others ...string) (used bool, err error) {
	flags := cmd.Flags()
	if f.db == "" {
		if flags.Changed(f.name) {
			return false, usagef(cmd, "--%s: FILE is empty", f.name)
		}
		if flags.Changed("table") {
			return false, usagef(cmd, "--table goes with --%s", f.name)
		}
		return false, nil
	}
	if strings.Trim(strings.ToLower(f.table), "abcdefghijklmnopqrstuvwxyz0123456789_") != "" || f.table == "" {
		return false, usagef(cmd, "--table: %q is no name of letters, digits and underscores", f.table)
	}
	for _, name := range others {
		if name != f.name && name != "table" && flags.Changed(name) {
			return false, usagef(cmd, "--%s does not go with --%s", name, f.name)
		}
	}
	return true, nil
}

func (f *tableFlag) String() string { return f.db + ", table " + f.table }

func (f *tableFlag) options() *tablelog.Options {
	return &tablelog.Options{Table: f.table, MustExist: true}
}

// load reads a batch from the table. The database is not kept open between
// batches, so that each is read without a trace (see readDatabase).
func (f *tableFlag) load(ctx context.Context, from, end uint64) (records []evlog.Record, err error) {
	err = f.read(ctx, func(l *tablelog.Log) (err error) {
		records, err = loadFrom(ctx, l, from, end)
		return err
	})
	return records, err
}

func (f *tableFlag) identity(ctx context.Context) (d identity, err error) {
	err = f.read(ctx, func(l *tablelog.Log) (err error) {
		d, err = identityOf(ctx, l)
		return err
	})
	return d, err
}

func (f *tableFlag) read(ctx context.Context, read func(*tablelog.Log) error) error {
	return readDatabase(ctx, f.db, func(db *sql.DB) error {
		l, err := tablelog.Open(ctx, db, f.options())
		if errors.Is(err, tablelog.ErrNoTable) {
			return &hinted{err, "--table names another one"}
		}
		if err != nil {
			return err
		}
		return read(l)
	})
}

// appendTable copies a table into the log at dir.
func (c *appendCommand) appendTable(ctx context.Context, dir string) (err error) {
	from, err := c.table.identity(ctx)
	if err != nil {
		return err
	}
	cp := &copier{a: c.a, from: c.table.String(), to: dir, source: &c.table}
	switch r, err := evlog.OpenReader(ctx, dir, nil); {
	case err == nil:
		id := r.ID()
		if err := errors.Join(cp.anotherLog(id, from.id), r.Close()); err != nil {
			return err
		}
	case !isMissing(err):
		return err
	}
	opts := c.options()
	opts.ID, opts.FirstOffset = from.id, from.first
	if first, err := c.table.load(ctx, from.first, from.next); err != nil {
		return err
	} else if len(first) == 0 {
		opts.FirstOffset = from.next // nothing is left: a log has no hole in front of its first record
	}
	l, err := evlog.Open(ctx, dir, opts)
	if err != nil {
		return err
	}
	defer closing(l, &err)
	st, err := l.Reader().Status(ctx)
	switch {
	case err != nil:
		return err
	case st.OpenHook != "":
		return needsHook(dir, st.OpenHook)
	}
	if err := cp.anotherLog(st.ID, from.id); err != nil {
		return err
	}
	cp.target = logTarget{l.Reader(), l, st.Config.SegmentBytes / batchesPerSegment}
	return cp.run(ctx, from)
}

// tableTarget writes a table.
type tableTarget struct{ *tablelog.Log }

func (t tableTarget) append(ctx context.Context, records []evlog.Record) error {
	return t.AppendExact(ctx, records...)
}

func (t tableTarget) skipTo(ctx context.Context, next uint64) error { return t.SkipTo(ctx, next) }

// copyToTable copies the log at dir into a table.
func (c *catCommand) copyToTable(ctx context.Context, dir string) (err error) {
	r, err := c.a.openReader(ctx, dir, false)
	if err != nil {
		return err
	}
	defer closing(r, &err)
	from, err := identityOf(ctx, r)
	if err != nil {
		return err
	}
	cp := &copier{a: c.a, from: dir, to: c.table.String(), source: logSource{r}}
	if err := createFile(c.table.db); err != nil {
		return err
	}
	return changeDatabase(c.table.db, func(db *sql.DB) error {
		l, err := tablelog.Open(ctx, db, c.table.options())
		switch {
		case err == nil:
			err = cp.anotherLog(l.ID(), from.id)
		case errors.Is(err, tablelog.ErrNoTable):
			l, err = tablelog.Open(ctx, db, &tablelog.Options{Table: c.table.table, ID: from.id, FirstOffset: from.first})
		}
		if err != nil {
			return err
		}
		cp.target = tableTarget{l}
		return cp.run(ctx, from)
	})
}

// createFile creates an empty file, which is an SQLite database, where nothing is.
func createFile(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return f.Close()
}
