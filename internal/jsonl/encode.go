package jsonl

import (
	"bytes"
	"encoding/base64"
	"strconv"
	"unicode/utf8"

	"github.com/evlog-go/evlog/evlog"
)

// Options are the choices of [Append]. The zero value writes every value as a
// JSON string.
type Options struct {
	// EmbedJSON puts a value that is a JSON object or array, and stands on one
	// line, in as it is, not as a string of JSON.
	EmbedJSON bool
	// NoOffset leaves the offset out, for what is not in a log.
	NoOffset bool
}

// Append appends the record's line to dst, without a newline at its end, and
// returns the extended buffer. Fields come in the order offset, ts_ms, schema,
// key, value, tombstone; a record without a key has no key field.
func Append(dst []byte, r evlog.Record, o Options) []byte {
	dst = append(dst, '{')
	if !o.NoOffset {
		dst = append(dst, `"offset":`...)
		dst = strconv.AppendUint(dst, r.Offset, 10)
		dst = append(dst, ',')
	}
	dst = append(dst, `"ts_ms":`...)
	dst = strconv.AppendInt(dst, r.Time.UnixMilli(), 10)
	dst = append(dst, `,"schema":`...)
	dst = strconv.AppendUint(dst, uint64(r.Schema), 10)
	if len(r.Key) > 0 {
		dst = AppendField(dst, "key", r.Key)
	}
	if o.EmbedJSON && embeddable(r.Value) {
		dst = append(dst, `,"value":`...)
		dst = append(dst, r.Value...)
	} else {
		dst = AppendField(dst, "value", r.Value)
	}
	if r.Tombstone() {
		dst = append(dst, `,"tombstone":true`...)
	}
	return append(dst, '}')
}

// AppendField appends a comma and the field that holds payload: as a string
// under name where it is UTF-8, otherwise in base64 under name_b64.
func AppendField(dst []byte, name string, payload []byte) []byte {
	dst = append(dst, ',', '"')
	dst = append(dst, name...)
	if utf8.Valid(payload) {
		dst = append(dst, '"', ':')
		return AppendString(dst, payload)
	}
	dst = append(dst, `_b64":"`...)
	dst = base64.StdEncoding.AppendEncode(dst, payload)
	return append(dst, '"')
}

const hexDigits = "0123456789abcdef"

// AppendString appends text, which is UTF-8, as a JSON string. Only what JSON
// demands is escaped.
func AppendString(dst, text []byte) []byte {
	dst = append(dst, '"')
	start := 0
	for i, c := range text {
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, text[start:i]...)
		start = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\b':
			dst = append(dst, '\\', 'b')
		case '\f':
			dst = append(dst, '\\', 'f')
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	dst = append(dst, text[start:]...)
	return append(dst, '"')
}

// embeddable reports whether Decode would give exactly v for a line in which v
// stands as it is: a JSON object or array without white space around it, and
// without line ends, which would break the line or be changed by programs that
// convert them.
func embeddable(v []byte) bool {
	if len(v) < 2 || (v[0] != '{' && v[0] != '[') || bytes.ContainsAny(v, "\r\n") || !utf8.Valid(v) {
		return false
	}
	p := parser{b: v}
	return p.value() == nil && p.i == len(v)
}
