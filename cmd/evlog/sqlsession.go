package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"slices"
	"sort"
	"strings"

	"golang.org/x/term"
)

// sqlSession runs statements and prints what they return.
type sqlSession struct {
	a        *app
	conn     *sql.Conn
	format   string
	header   bool
	terminal *os.File // standard output, if it is one
	results  int      // how many were printed
	cutTold  bool
}

// errQuit ends a script or a shell that asks for it.
var errQuit = errors.New("quit")

// run runs one statement, or one command that begins with a dot.
func (s *sqlSession) run(ctx context.Context, text string) error {
	if isDot(text) {
		return s.dot(ctx, strings.Fields(strings.TrimRight(text, "; "))) // out of habit
	}
	if strings.IndexByte(text, 0) >= 0 {
		return errors.New("a NUL in a statement: SQLite would read up to it") // and leave out the rest
	}
	return sqlError(ctx, text, s.query(ctx, text))
}

func (s *sqlSession) query(ctx context.Context, text string) (err error) {
	rows, err := s.conn.QueryContext(ctx, text)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := rows.Close(); err == nil {
			err = closeErr
		}
	}()
	names, err := rows.Columns()
	if err != nil {
		return err
	}
	if len(names) == 0 {
		for rows.Next() {
		}
		return rows.Err()
	}
	w := s.newResult(names)
	err = s.print(rows, w, len(names))
	// What was read before an error is shown, as it is in a format without widths.
	if endErr := w.end(err == nil); endErr != nil {
		return endErr
	}
	if err == nil {
		err = s.flush()
	}
	return err
}

func (s *sqlSession) print(rows *sql.Rows, w sqlResult, columns int) error {
	values := make([]any, columns)
	into := make([]any, columns)
	for i := range values {
		into[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		if err := w.row(values); err != nil {
			return err
		}
		if s.terminal != nil {
			if err := s.flush(); err != nil {
				return err
			}
		}
	}
	return rows.Err()
}

func (s *sqlSession) flush() error { return s.a.out.Flush() }

// sqlDots are the commands that begin with a dot.
var sqlDots map[string]func(*sqlSession, context.Context, []string) error

func init() { // not a literal: .help lists them
	sqlDots = map[string]func(*sqlSession, context.Context, []string) error{
		".help":    (*sqlSession).dotHelp,
		".tables":  (*sqlSession).dotTables,
		".schema":  (*sqlSession).dotSchema,
		".mode":    (*sqlSession).dotMode,
		".headers": (*sqlSession).dotHeaders,
		".quit":    func(*sqlSession, context.Context, []string) error { return errQuit },
		".exit":    func(*sqlSession, context.Context, []string) error { return errQuit },
	}
}

const dotHelp = `.help               this
.tables             the tables
.schema [TABLE]     their columns
.mode [FORMAT]      how results are printed: table, csv, jsonl, markdown, json
.headers on|off     the names of the columns, in table and csv
.quit, .exit        end; so does Ctrl-D
A statement ends with a semicolon. Ctrl-C ends a query.
`

func (s *sqlSession) dot(ctx context.Context, words []string) error {
	f := sqlDots[words[0]]
	if f == nil {
		return &hinted{fmt.Errorf("unknown command %q", printable(words[0])), ".help lists them"}
	}
	if err := f(s, ctx, words[1:]); err != nil {
		return err
	}
	return s.flush()
}

func (s *sqlSession) dotHelp(context.Context, []string) error {
	_, err := s.a.out.WriteString(dotHelp)
	return err
}

// tables are the names of the tables.
func (s *sqlSession) tables(ctx context.Context) ([]string, error) {
	return s.column(ctx, `SELECT name FROM sqlite_schema WHERE type = 'table'`)
}

// column is the first column of a query, as texts.
func (s *sqlSession) column(ctx context.Context, query string, args ...any) (all []string, err error) {
	rows, err := s.conn.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, sqlError(ctx, "", err)
	}
	defer closing(rows, &err)
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		all = append(all, text)
	}
	return all, sqlError(ctx, "", rows.Err())
}

func (s *sqlSession) dotTables(ctx context.Context, _ []string) error {
	names, err := s.tables(ctx)
	if err != nil {
		return err
	}
	sort.Strings(names)
	_, err = s.a.out.WriteString(strings.Join(names, "\n") + "\n")
	return err
}

// dotSchema shows the tables as if they were made by CREATE TABLE, since what
// made them says nothing to people.
func (s *sqlSession) dotSchema(ctx context.Context, args []string) error {
	names, err := s.tables(ctx)
	if err != nil {
		return err
	}
	if len(args) > 0 {
		if !slices.Contains(names, args[0]) {
			return &hinted{fmt.Errorf("no table %q", printable(args[0])), ".tables lists them"}
		}
		names = args[:1]
	}
	for _, name := range names {
		// A column whose name is a word of SQL needs quotes in a statement too.
		columns, err := s.column(ctx, `SELECT format(iif(name = 'end', '  "%s" %s', '  %s %s'), name, type)
			FROM pragma_table_xinfo(?)`, name)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(s.a.out, "CREATE TABLE %s (\n%s\n);\n", name, strings.Join(columns, ",\n"))
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *sqlSession) dotMode(_ context.Context, args []string) error {
	switch {
	case len(args) == 0:
		_, err := s.a.out.WriteString(s.format + "\n")
		return err
	case !slices.Contains(sqlFormats, args[0]):
		return fmt.Errorf(".mode: unknown format %q (there are: %s)", printable(args[0]), strings.Join(sqlFormats, ", "))
	}
	s.format = args[0]
	return nil
}

func (s *sqlSession) dotHeaders(_ context.Context, args []string) error {
	if len(args) != 1 || args[0] != "on" && args[0] != "off" {
		return errors.New(".headers is on or off")
	}
	s.header = args[0] == "on"
	return nil
}

// width is how wide a table may be; 0 is as wide as it is.
func (s *sqlSession) width() int {
	if s.terminal == nil {
		return 0
	}
	width, _, err := term.GetSize(int(s.terminal.Fd()))
	if err != nil {
		return 0
	}
	return width
}

// tellCut tells once that a table does not show all.
func (s *sqlSession) tellCut() {
	if !s.cutTold {
		s.cutTold = true
		s.a.notice("wide values are cut to fit the terminal; the format jsonl shows all of them")
	}
}
