package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	sqlite "modernc.org/sqlite"

	"github.com/evlog-go/evlog/cursor"
	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/sqlbridge/sqldriver"
)

// sqlFlags are the options of sql.
type sqlFlags struct {
	format      string
	json, jsonl bool
	noHeader    bool
	since       timeValue
	consumer    string
	noHistory   bool
}

var sqlFormats = []string{"table", "csv", "jsonl", "markdown", "json"}

const sqlLong = `Ask the log in SQL, which is SQLite's. The log is the table log:

  offset     integer, the record's number
  ts_ms      integer, its time in milliseconds since 1970
  time       the same as text: 2026-09-20T03:00:00.123Z
  schema     integer
  key        text where it is valid UTF-8, a blob otherwise, NULL if it is empty
  value      the same; ->> and SQLite's other functions take JSON apart. What is
             no JSON is an error to them: iif(json_valid(value), value ->> ...)
  tombstone  1 for a key without a value
  segment    integer, the base of the segment that holds it

The table segments lists the segments, with the columns of "evlog segments
--json", and consumers the committed offsets of consumers.json: name, committed,
log_start, log_end, lag, updated, state, note. Comparisons of offset, time,
ts_ms, segment and key narrow what is read; "order by offset desc limit 10"
reads ten records. A statement sees what was durable when it began, and those
between BEGIN and COMMIT all see the same. Nothing can be changed.

QUERY is one statement or more, with semicolons between them. Without it they
come from standard input; the first one that fails ends the command and is named
with its line. On a terminal there is a shell: a statement ends with a semicolon
and may have many lines, the arrow keys go through the history, Ctrl-C ends a
query, Ctrl-D the shell. Its commands are those of the sqlite3 shell, such as
.tables, .schema, .mode and .quit; .help lists them.

Formats, the same on a terminal and in a pipe but for what is said here:

  table     columns for people. What is not printable shows as an escape, which
            looks like a text with that backslash in it; NULL is NULL, a blob
            x'ff00', and a text that looks like one of these two has quotes.
            Columns are as wide as the first 1000 rows need; on a terminal wide
            values are cut so that a row fits
  csv       a line of names, then the values: NULL is empty and an empty text
            "", a blob x'ff00'. On a terminal what is not printable is escaped
  jsonl     an object a line with a field for each column: NULL is null, and
            what is not UTF-8 stands in base64 in NAME_b64. "append --format
            jsonl" takes the columns offset, ts_ms, schema, key, value and
            tombstone, and no other: name them, * has time and segment too
  markdown  a table for documents, with the values of table
  json      an array of such objects for each statement, as with --json

The shell's history is kept in evlog/sql_history in the user's directory for
state (XDG_STATE_HOME, ~/.local/state), which nobody else can read.
EVLOG_HISTORY names another file; EVLOG_HISTORY=off or --no-history keeps none.`

const sqlExample = `  # the newest record of each key, as compaction would leave it
  evlog sql events "select * from log where not tombstone and offset in
    (select max(offset) from log where key is not null group by key)"
  # out of the JSON in the values: how many of each kind, by day
  evlog sql events "select date(time) day, count(*) n,
    iif(json_valid(value), value ->> '$.kind') kind
    from log group by day, kind order by day, n desc"
  # the last ten of a key; the last hour, for other programs
  evlog sql events "select offset, time, value from log where key = 'doc:42'
    order by offset desc limit 10"
  evlog sql events --since -1h "select * from log" --format csv
  # when was it quiet for long, where are offsets missing
  evlog sql events "select offset, time,
    (ts_ms - lag(ts_ms) over (order by offset)) / 1000.0 seconds
    from log order by seconds desc limit 5"
  evlog sql events "select base, records, holes from segments where holes > 0"
  # what a consumer has still to read
  evlog sql events --consumer uplink "select count(*) from log"
  # a part of a log as a log of its own
  evlog sql events -J "select ts_ms, schema, key, value from log
    where key like 'doc:%'" | evlog append docs --format jsonl
  # a shell, and a script
  evlog sql events
  evlog sql events < report.sql`

func newSQLCommand(a *app) *cobra.Command {
	var f sqlFlags
	cmd := &cobra.Command{
		Use:               "sql DIR [QUERY]",
		Short:             "Ask the log in SQL",
		Long:              sqlLong,
		Example:           sqlExample,
		ValidArgsFunction: dirOnly,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.sql(cmd, args, &f)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.format, "format", "table", "in this `FORMAT`: "+strings.Join(sqlFormats, ", "))
	flags.BoolVar(&f.json, "json", false, "the same as --format json")
	flags.BoolVarP(&f.jsonl, "jsonl", "J", false, "the same as --format jsonl")
	flags.BoolVar(&f.noHeader, "no-header", false, "no names of the columns, in table and csv")
	f.since.now = a.now
	flags.Var(&f.since, "since", "only from the first record of this time or later on: "+timeHelp)
	flags.StringVar(&f.consumer, "consumer", "", "only what the consumer `NAME` has not committed")
	flags.BoolVar(&f.noHistory, "no-history", false, "keep no history of the shell")
	completeWords(cmd, "format", sqlFormats)
	completeFlag(cmd, "consumer", a.consumerOfDir)
	return cmd
}

func (a *app) sql(cmd *cobra.Command, args []string, f *sqlFlags) (err error) {
	ctx := cmd.Context()
	dir, query, err := a.sqlArgs(cmd, args)
	if err != nil {
		return err
	}
	if err := f.check(cmd); err != nil {
		return err
	}
	db, err := a.openSQL(cmd, dir, f)
	if err != nil {
		return err
	}
	defer closing(db, &err)
	// One connection, so that what a statement begins the next one finds.
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer closing(conn, &err)
	s := &sqlSession{a: a, conn: conn, format: f.format, header: !f.noHeader}
	if out, ok := a.stdout.(*os.File); ok && term.IsTerminal(int(out.Fd())) {
		s.terminal = out
	}
	if query != "" {
		return s.script(ctx, strings.NewReader(query), false)
	}
	if t := newSQLTerminal(a); t != nil {
		h := a.openHistory(f.noHistory)
		t.history = h
		return s.shell(ctx, t, h)
	}
	return s.script(ctx, a.in, true)
}

// check checks the flags and settles the format.
func (f *sqlFlags) check(cmd *cobra.Command) error {
	if cmd.Flags().Changed("consumer") {
		if err := cursor.CheckName(f.consumer); err != nil {
			return usagef(cmd, "--consumer: %w", err)
		}
	}
	asked := map[string]bool{}
	if cmd.Flags().Changed("format") {
		asked[f.format] = true
	}
	if f.json {
		asked["json"], f.format = true, "json"
	}
	if f.jsonl {
		asked["jsonl"], f.format = true, "jsonl"
	}
	if len(asked) > 1 {
		return usagef(cmd, "two formats: choose one of --format, --json and -J")
	}
	return checkSQLFormat(cmd, f.format)
}

func checkSQLFormat(cmd *cobra.Command, format string) error {
	if !slices.Contains(sqlFormats, format) {
		return usagef(cmd, "unknown format %q (there are: %s)", format, strings.Join(sqlFormats, ", "))
	}
	return nil
}

// sqlArgs tells DIR and QUERY apart. Where EVLOG_DIR is set, a single argument is
// a query if it looks like one and is no directory.
func (a *app) sqlArgs(cmd *cobra.Command, args []string) (dir, query string, err error) {
	if len(args) == 1 && looksLikeSQL(args[0]) {
		dir, rest, err := a.dirAnd(cmd, args, "QUERY")
		if err != nil {
			return "", "", usagef(cmd, "%q is no directory, and a query needs DIR before it, or EVLOG_DIR", args[0])
		}
		return dir, rest[0], nil
	}
	if len(args) < 2 {
		dir, _, err = a.dirAnd(cmd, args)
		return dir, "", err
	}
	dir, rest, err := a.dirAnd(cmd, args, "QUERY")
	if err == nil && strings.TrimSpace(rest[0]) == "" {
		err = usagef(cmd, "QUERY is empty")
	}
	if err != nil {
		return "", "", err
	}
	return dir, rest[0], nil
}

func looksLikeSQL(arg string) bool {
	if info, err := os.Stat(arg); err == nil && info.IsDir() {
		return false
	}
	return strings.ContainsAny(arg, " \t\n;(") || sqlDots[arg] != nil
}

// openSQL opens the log as a database.
func (a *app) openSQL(cmd *cobra.Command, dir string, f *sqlFlags) (*sql.DB, error) {
	options := url.Values{"mode": {"ro"}}
	if f.since.set {
		options.Set("since", f.since.t.UTC().Format(time.RFC3339Nano))
	}
	if f.consumer != "" {
		options.Set("consumer", f.consumer)
	}
	ctx := cmd.Context()
	r, err := a.openReader(ctx, dir, false) // tells what readers leave out
	if err != nil {
		return nil, err
	}
	if f.consumer != "" {
		err = a.checkConsumer(ctx, r, dir, f.consumer)
	}
	if err := errors.Join(err, r.Close()); err != nil {
		return nil, err
	}
	c, err := sqldriver.NewConnector(ctx, dir+"?"+options.Encode())
	if err != nil {
		return nil, sqlError(ctx, "", err)
	}
	return sql.OpenDB(c), nil
}

// checkConsumer refuses a consumer that has neither committed nor is waited for: to
// the driver it has all before it, and here it is mistyped.
func (a *app) checkConsumer(ctx context.Context, r *evlog.Reader, dir, name string) error {
	rows, err := a.consumersFromDir(ctx, r, dir)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(rows, func(row consumerRow) bool { return row.Name == name }) {
		return noSuchConsumer(dir, name, "evlog consumers lists them")
	}
	return nil
}

// script runs statements up to the first one that fails. lines says that its
// line is told.
func (s *sqlSession) script(ctx context.Context, r io.Reader, lines bool) error {
	in := newSQLInput()
	run := func(st sqlStatement) error {
		err := s.run(ctx, st.text)
		if err != nil && lines && !readerGone(err) && ctx.Err() == nil && !errors.Is(err, errQuit) {
			err = fmt.Errorf("line %d: %w", st.line, err)
		}
		return err
	}
	err := in.read(r, run)
	if errors.Is(err, errQuit) {
		return nil
	}
	return err
}

// sqlError is an error as the command tells it.
func sqlError(ctx context.Context, statement string, err error) error {
	if err == nil || readerGone(err) {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	text := strings.TrimPrefix(err.Error(), "sqldriver: ")
	var fromSQLite *sqlite.Error
	switch {
	case errors.Is(err, sqldriver.ErrNotAllowed):
		if word := firstWord(statement); strings.EqualFold(word, "insert") || strings.EqualFold(word, "replace") {
			text = "INSERT: the log is open for reading: not allowed"
		}
		return &hinted{retold{text, err}, "evlog sql only reads: evlog append adds records, evlog retain and evlog compact remove them"}
	case errors.As(err, &fromSQLite):
		text = printable(strings.TrimSuffix(strings.TrimPrefix(text, "SQL logic error: "), " (1)"))
		if text == "malformed JSON" {
			return &hinted{retold{text, err}, "iif(json_valid(value), ...) passes over values that are none"}
		}
	}
	return retold{text, err}
}

// retold is an error with another text.
type retold struct {
	text string
	err  error
}

func (e retold) Error() string { return e.text }
func (e retold) Unwrap() error { return e.err }

func firstWord(s string) string {
	if words := strings.Fields(s); len(words) > 0 {
		return words[0]
	}
	return ""
}
