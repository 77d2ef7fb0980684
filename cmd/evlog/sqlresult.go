package main

import (
	"bufio"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/evlog-go/evlog/internal/jsonl"
)

// sqlResult prints the rows of one statement.
type sqlResult interface {
	// row prints a row, now or at the end. The values are valid until the next one.
	row(values []any) error
	// end prints what is left; whole says that no error ended the rows.
	end(whole bool) error
}

// newResult is for a statement with these columns.
func (s *sqlSession) newResult(names []string) sqlResult {
	first := s.results == 0
	s.results++
	switch s.format {
	case "csv":
		return newCSVResult(s, names)
	case "jsonl":
		return &jsonResult{out: s.a.out, fields: newJSONFields(names)}
	case "json":
		return &jsonResult{out: s.a.out, fields: newJSONFields(names), document: true}
	}
	return newTableResult(s, names, first)
}

// cell appends a value for people, on one line. Numbers and NULL look like
// nothing else: a text that would look like NULL or like a blob has quotes.
func cell(dst []byte, value any) []byte {
	text, isText := value.(string)
	if !isText {
		return appendSQLValue(dst, value, "NULL")
	}
	if text != "NULL" && !strings.HasPrefix(text, "'") && !strings.HasPrefix(text, "x'") {
		return appendPrintable(dst, []byte(text))
	}
	return appendPrintable(dst, []byte("'"+strings.ReplaceAll(text, "'", "''")+"'"))
}

// appendSQLValue appends a value as SQL has it; a text stands for itself.
func appendSQLValue(dst []byte, value any, null string) []byte {
	switch v := value.(type) {
	case nil:
		return append(dst, null...)
	case int64:
		return strconv.AppendInt(dst, v, 10)
	case float64:
		return appendReal(dst, v)
	case []byte:
		dst = append(dst, "x'"...)
		dst = hex.AppendEncode(dst, v)
		return append(dst, '\'')
	case string:
		return append(dst, v...)
	}
	return fmt.Append(dst, value) // no type of SQLite's; the driver has no other
}

// appendReal appends a number that reads as a real again. SQLite writes infinity
// so.
func appendReal(dst []byte, v float64) []byte {
	switch {
	case math.IsInf(v, 1):
		return append(dst, "9e999"...)
	case math.IsInf(v, -1):
		return append(dst, "-9e999"...)
	}
	at := len(dst)
	format := byte('f')
	if size := math.Abs(v); size != 0 && (size < 1e-4 || size >= 1e15) {
		format = 'e'
	}
	dst = strconv.AppendFloat(dst, v, format, -1, 64)
	if format == 'f' && !strings.Contains(string(dst[at:]), ".") {
		dst = append(dst, ".0"...)
	}
	return dst
}

// csvResult prints RFC 4180 with newlines as Unix has them.
type csvResult struct {
	s   *sqlSession
	buf []byte
	err error // of the line of names
}

func newCSVResult(s *sqlSession, names []string) *csvResult {
	r := &csvResult{s: s}
	if s.header {
		for i, name := range names {
			r.field(i, name)
		}
		r.err = r.line()
	}
	return r
}

func (r *csvResult) row(values []any) error {
	if r.err != nil {
		return r.err
	}
	for i, v := range values {
		r.field(i, v)
	}
	return r.line()
}

// field appends a value. Only an empty text and NULL need to be told apart, so
// quotes are where RFC 4180 needs them and around the former.
func (r *csvResult) field(i int, value any) {
	if i > 0 {
		r.buf = append(r.buf, ',')
	}
	text, isText := value.(string)
	if !isText {
		r.buf = appendSQLValue(r.buf, value, "")
		return
	}
	if r.s.terminal != nil {
		text = printable(text)
	}
	if text != "" && !strings.ContainsAny(text, ",\"\r\n") && strings.Trim(text, " ") == text {
		r.buf = append(r.buf, text...)
		return
	}
	r.buf = append(r.buf, '"')
	r.buf = append(r.buf, strings.ReplaceAll(text, `"`, `""`)...)
	r.buf = append(r.buf, '"')
}

func (r *csvResult) line() error {
	_, err := r.s.a.out.Write(append(r.buf, '\n'))
	r.buf = reuse(r.buf)
	return err
}

func (r *csvResult) end(bool) error { return r.err }

// reuse keeps a buffer for the next row, unless one huge row has made it huge.
func reuse(buf []byte) []byte {
	const keep = 1 << 20
	if cap(buf) > keep {
		return nil
	}
	return buf[:0]
}

// jsonResult prints an object for each row: one a line, or one document.
type jsonResult struct {
	out      *bufio.Writer
	fields   []jsonField
	document bool
	rows     int
	buf      []byte
}

// jsonField is a column's name as an object has it: in quotes, with the colon.
type jsonField struct{ name, b64 string }

// newJSONFields makes the names of fields, each of which an object has once: a
// second column key is key:1, as in a subquery of SQLite.
func newJSONFields(names []string) []jsonField {
	fields := make([]jsonField, len(names))
	taken := map[string]bool{}
	for i, name := range names {
		unique := name
		for n := 1; taken[unique] || taken[unique+"_b64"]; n++ {
			unique = fmt.Sprintf("%s:%d", name, n)
		}
		taken[unique], taken[unique+"_b64"] = true, true
		fields[i] = jsonField{quotedJSON(unique) + ":", quotedJSON(unique+"_b64") + ":"}
	}
	return fields
}

func quotedJSON(name string) string {
	return string(jsonl.AppendString(nil, []byte(strings.ToValidUTF8(name, "\ufffd"))))
}

func (r *jsonResult) row(values []any) error {
	b := r.buf
	if r.document {
		b = append(b, r.before()...)
	}
	b = append(b, '{')
	for i, v := range values {
		if i > 0 {
			b = append(b, ',')
		}
		b = r.fields[i].append(b, v)
	}
	b = append(b, '}')
	if !r.document {
		b = append(b, '\n')
	}
	r.rows++
	_, err := r.out.Write(b)
	r.buf = reuse(b)
	return err
}

// before is what stands before the next object of a document.
func (r *jsonResult) before() string {
	if r.rows == 0 {
		return "[\n  "
	}
	return ",\n  "
}

func (f *jsonField) append(dst []byte, value any) []byte {
	switch v := value.(type) {
	case string:
		if utf8.ValidString(v) {
			return jsonl.AppendString(append(dst, f.name...), []byte(v))
		}
		return f.appendBase64(dst, []byte(v))
	case []byte:
		return f.appendBase64(dst, v)
	}
	return appendSQLValue(append(dst, f.name...), value, "null")
}

func (f *jsonField) appendBase64(dst, v []byte) []byte {
	dst = append(append(dst, f.b64...), '"')
	dst = base64.StdEncoding.AppendEncode(dst, v)
	return append(dst, '"')
}

// end closes the document, but not one that an error broke off: whoever reads it
// finds that it is not whole.
func (r *jsonResult) end(whole bool) error {
	if !r.document {
		return nil
	}
	end := "\n]\n"
	switch {
	case !whole:
		end = "\n"
	case r.rows == 0:
		end = "[]\n"
	}
	_, err := r.out.WriteString(end)
	return err
}
