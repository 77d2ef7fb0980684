package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
)

// maxStatementBytes is more than a statement that is meant has.
const maxStatementBytes = 16 << 20

// sqlStatement is a statement, or a command that begins with a dot.
type sqlStatement struct {
	text string
	line int // where it begins, from 1
}

// sqlInput takes lines apart into statements, which end with a semicolon outside
// of quotes and comments. A command with a dot is a line of its own, where no
// statement has begun.
type sqlInput struct {
	text  strings.Builder // what was read of a statement
	start int             // the line where it began; 0 if it has not
	line  int
	// inside is what the end of the last line was in: a quote, by its closing
	// character, or '*' for a comment; 0 if it was in neither.
	inside byte
}

func newSQLInput() *sqlInput { return &sqlInput{} }

// begun reports whether a statement has begun and not ended.
func (in *sqlInput) begun() bool { return in.start > 0 || in.inside != 0 }

// reset forgets a statement that has begun.
func (in *sqlInput) reset() { *in = sqlInput{line: in.line} }

// read calls run for each statement of r; the last one need not have a semicolon.
func (in *sqlInput) read(r io.Reader, run func(sqlStatement) error) error {
	b := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := readLine(b)
		end := errors.Is(err, io.EOF)
		if err != nil && !end {
			return fmt.Errorf("line %d: %w", in.line+1, err)
		}
		if in.text.Len()+len(line) > maxStatementBytes {
			return fmt.Errorf("line %d: a statement has more than %d bytes", in.line+1, maxStatementBytes)
		}
		for _, st := range in.add(line) {
			if err := run(st); err != nil {
				return err
			}
		}
		if end {
			if st, ok := in.rest(); ok {
				return run(st)
			}
			return nil
		}
	}
}

// readLine returns a line without its end.
func readLine(b *bufio.Reader) (string, error) {
	var line []byte
	for {
		part, err := b.ReadSlice('\n')
		line = append(line, part...)
		if errors.Is(err, bufio.ErrBufferFull) && len(line) <= maxStatementBytes {
			continue
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			err = fmt.Errorf("it has more than %d bytes", maxStatementBytes)
		}
		return strings.TrimRight(string(line), "\r\n"), err
	}
}

// add takes a line and returns the statements that end in it.
func (in *sqlInput) add(line string) (done []sqlStatement) {
	in.line++
	if !in.begun() && isDot(line) {
		return []sqlStatement{{strings.TrimSpace(line), in.line}}
	}
	from := 0
	for i := 0; i < len(line); i++ {
		c := line[i]
		next := byte(0)
		if i+1 < len(line) {
			next = line[i+1]
		}
		switch {
		case in.inside == '*':
			if c == '*' && next == '/' {
				in.inside = 0
				i++
			}
		case in.inside != 0:
			if c == in.inside { // a doubled quote ends one and begins the next
				in.inside = 0
			}
		case c == '-' && next == '-':
			i = len(line)
		case c == '/' && next == '*':
			in.inside = '*'
			i++
		case c == ';':
			if in.start > 0 {
				in.text.WriteString(line[from : i+1])
				done = append(done, sqlStatement{in.text.String(), in.start})
			}
			in.text.Reset()
			from, in.start = i+1, 0
		default:
			if c > ' ' && in.start == 0 {
				in.start = in.line
			}
			in.inside = closingQuote(c)
		}
	}
	if !in.begun() {
		in.text.Reset() // comments that have ended
		return done
	}
	in.text.WriteString(line[from:])
	in.text.WriteByte('\n')
	return done
}

// closingQuote is what ends the quotes that c begins, 0 if it begins none.
func closingQuote(c byte) byte {
	switch c {
	case '\'', '"', '`':
		return c
	case '[':
		return ']'
	}
	return 0
}

// rest is what came behind the last semicolon, if it is more than comments.
func (in *sqlInput) rest() (sqlStatement, bool) {
	return sqlStatement{strings.TrimSpace(in.text.String()), in.start}, in.start > 0
}

// isDot reports whether a line is a command of the shell.
func isDot(line string) bool { return strings.HasPrefix(strings.TrimSpace(line), ".") }
