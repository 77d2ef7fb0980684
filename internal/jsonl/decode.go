package jsonl

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/evlog-go/evlog/evlog"
)

// Decode reads the record in one line. Its Key and Value may point into line.
//
// The line is a JSON object with these fields and no other, each at most once:
//
//   - key, a string or null, or key_b64; neither means no key
//   - value, of any kind, or value_b64; one of them must be there.
//     The payload of a string is its text, of null nothing, of everything else
//     the JSON text exactly as it stands
//   - ts_ms, a whole number; left out, the record's Time is zero, which means
//     "stamped by the writer"
//   - schema, a number from 0 to 65535
//   - offset and tombstone, which are ignored: the log gives the offset, and
//     a tombstone follows from key and value
func Decode(line []byte) (evlog.Record, error) {
	return DecodeDefault(line, evlog.Record{})
}

// DecodeDefault is Decode that takes from def what the line does not say: the
// key, the schema, the time.
func DecodeDefault(line []byte, def evlog.Record) (evlog.Record, error) {
	if !utf8.Valid(line) {
		return evlog.Record{}, errors.New("not UTF-8; bytes that are no text go into key_b64 and value_b64")
	}
	d := decoder{parser: parser{b: line}, rec: def}
	if err := d.object(); err != nil {
		return evlog.Record{}, err
	}
	if !d.seen(fieldValue) {
		return evlog.Record{}, errors.New("no value: neither value nor value_b64 is there")
	}
	return d.rec, nil
}

// UnknownFieldError is a field that no record has.
type UnknownFieldError struct {
	Byte int // where it stands in the line, from 1
	Name string
}

// Error names the byte and the field.
func (e *UnknownFieldError) Error() string {
	return fmt.Sprintf("byte %d: unknown field %q", e.Byte, e.Name)
}

// A field is a bit for each name, the two forms of a payload counting as one.
type field uint8

const (
	fieldKey field = 1 << iota
	fieldValue
	fieldTime
	fieldSchema
	fieldOffset
	fieldTombstone
)

type decoder struct {
	parser
	rec evlog.Record
	got field
}

func (d *decoder) seen(f field) bool { return d.got&f != 0 }

func (d *decoder) object() error {
	if err := d.next('{', "'{'"); err != nil {
		return err
	}
	d.space()
	if d.peek() == '}' {
		d.i++
		return d.end()
	}
	for {
		if err := d.field(); err != nil {
			return err
		}
		d.space()
		switch d.peek() {
		case ',':
			d.i++
		case '}':
			d.i++
			return d.end()
		default:
			return d.unexpected("',' or '}'")
		}
	}
}

// end checks that nothing follows the object.
func (d *decoder) end() error {
	d.space()
	if d.i < len(d.b) {
		return d.unexpected("the end of the line")
	}
	return nil
}

// field takes a name, a colon and a value.
func (d *decoder) field() error {
	d.space()
	if d.peek() != '"' {
		return d.unexpected("a field name")
	}
	at := d.i
	name, escaped, err := d.str()
	if err != nil {
		return err
	}
	if escaped {
		if name, err = unescape(name); err != nil {
			return err
		}
	}
	if err := d.next(':', "':'"); err != nil {
		return err
	}
	d.space()
	f := fieldNamed(name)
	if f == 0 {
		d.i = at
		return &UnknownFieldError{Byte: at + 1, Name: shorten(string(name))}
	}
	if d.seen(f) {
		d.i = at
		return d.errorf("%s for the second time", name)
	}
	d.got |= f
	if err := d.take(f, name[len(name)-1] == '4'); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func fieldNamed(name []byte) field {
	switch string(name) {
	case "key", "key_b64":
		return fieldKey
	case "value", "value_b64":
		return fieldValue
	case "ts_ms":
		return fieldTime
	case "schema":
		return fieldSchema
	case "offset":
		return fieldOffset
	case "tombstone":
		return fieldTombstone
	}
	return 0
}

// take takes the value of field f.
func (d *decoder) take(f field, base64Form bool) (err error) {
	switch {
	case f == fieldKey && base64Form:
		d.rec.Key, err = d.base64()
	case f == fieldKey:
		d.rec.Key, err = d.key()
	case f == fieldValue && base64Form:
		d.rec.Value, err = d.base64()
	case f == fieldValue:
		d.rec.Value, err = d.payload()
	case f == fieldTime:
		d.rec.Time, err = d.time()
	case f == fieldSchema:
		d.rec.Schema, err = d.schema()
	default:
		err = d.value() // whatever it is
	}
	return err
}

func (d *decoder) key() ([]byte, error) {
	switch d.peek() {
	case '"':
		return d.text()
	case 'n':
		return nil, d.word("null")
	}
	return nil, d.unexpected("a string")
}

func (d *decoder) payload() ([]byte, error) {
	switch d.peek() {
	case '"':
		return d.text()
	case 'n':
		return nil, d.word("null")
	}
	start := d.i
	if err := d.value(); err != nil {
		return nil, err
	}
	return d.b[start:d.i:d.i], nil
}

// text takes a string and returns its text, nil if it is empty.
func (d *decoder) text() ([]byte, error) {
	raw, escaped, err := d.str()
	switch {
	case err != nil:
		return nil, err
	case len(raw) == 0:
		return nil, nil
	case escaped:
		return unescape(raw)
	}
	return raw, nil
}

// strictBase64 takes one spelling of each byte sequence, the one that Append
// writes. It would skip line ends, so these are refused before.
var strictBase64 = base64.StdEncoding.Strict()

func (d *decoder) base64() ([]byte, error) {
	if d.peek() != '"' {
		return nil, d.unexpected("a string")
	}
	text, err := d.text()
	if err != nil || len(text) == 0 {
		return nil, err
	}
	for _, c := range text {
		if c == '\n' || c == '\r' {
			return nil, d.errorf("line end inside base64")
		}
	}
	b, err := strictBase64.AppendDecode(make([]byte, 0, base64.StdEncoding.DecodedLen(len(text))), text)
	if err != nil {
		return nil, d.errorf("%v", err)
	}
	return b, nil
}

func (d *decoder) time() (time.Time, error) {
	n, err := d.integer(64, "a whole number of milliseconds")
	if err != nil {
		return time.Time{}, err
	}
	return timeOf(n), nil
}

func (d *decoder) schema() (uint16, error) {
	const want = "a number from 0 to 65535"
	n, err := d.integer(17, want)
	if err == nil && n < 0 {
		err = d.errorf("%d where %s should be", n, want)
	}
	return uint16(n), err
}

// integer takes a number without fraction and exponent that fits so many bits,
// its sign included.
func (d *decoder) integer(bits int, want string) (int64, error) {
	if c := d.peek(); c != '-' && (c < '0' || c > '9') {
		return 0, d.unexpected(want)
	}
	start := d.i
	if err := d.number(); err != nil {
		return 0, err
	}
	raw := string(d.b[start:d.i])
	n, err := strconv.ParseInt(raw, 10, bits)
	if err != nil {
		d.i = start
		return 0, d.errorf("%s where %s should be", shorten(raw), want)
	}
	return n, nil
}

// shorten keeps a message readable that quotes what may be a megabyte.
func shorten(s string) string {
	const most = 40
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}

// timeOf turns milliseconds into a Time that is never the zero one: that would
// have the record stamped anew.
func timeOf(ms int64) time.Time {
	t := time.UnixMilli(ms).UTC()
	if t.IsZero() {
		t = t.Add(1)
	}
	return t
}
