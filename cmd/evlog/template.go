package main

import (
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/evlog-go/evlog/evlog"
)

// A template is a compiled -F format: literal text and tokens in turn.
type template []templatePart

type templatePart struct {
	literal []byte
	token   byte // 0 for a literal
}

// templateHelp lists what a template may hold. The tokens are kcat's.
const (
	templateHelp = recordTokens + ", " + valueTokens + "; " + templateEscapes

	recordTokens    = `%o offset, %T time in ms, %k key, %K its length (-1: none)`
	valueTokens     = `%s value, %S its length (-1: tombstone), %R that as 4 bytes, %c schema`
	templateEscapes = `%% \n \r \t \\ \xHH`
)

func compileTemplate(s string) (template, error) {
	var t template
	var literal []byte
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '%':
			i++
			if i < len(s) && s[i] == '%' {
				literal = append(literal, '%')
				continue
			}
			if i == len(s) || !isToken(s[i]) {
				return nil, fmt.Errorf("unknown token %q (there are: %s)", s[i-1:min(i+1, len(s))], templateHelp)
			}
			t = append(t, templatePart{literal: literal}, templatePart{token: s[i]})
			literal = nil
		case '\\':
			c, used, err := unescapeTemplate(s[i+1:])
			if err != nil {
				return nil, err
			}
			literal = append(literal, c)
			i += used
		default:
			literal = append(literal, s[i])
		}
	}
	return append(t, templatePart{literal: literal}), nil
}

func isToken(c byte) bool {
	switch c {
	case 'o', 'T', 'k', 'K', 's', 'S', 'R', 'c':
		return true
	}
	return false
}

// unescapeTemplate reads what follows a backslash.
func unescapeTemplate(s string) (c byte, used int, err error) {
	if s == "" {
		return 0, 0, fmt.Errorf("a backslash at the end")
	}
	switch s[0] {
	case 'n':
		return '\n', 1, nil
	case 'r':
		return '\r', 1, nil
	case 't':
		return '\t', 1, nil
	case '\\':
		return '\\', 1, nil
	case 'x':
		n, err := strconv.ParseUint(s[1:min(3, len(s))], 16, 8)
		if err != nil || len(s) < 3 {
			return 0, 0, fmt.Errorf(`\x needs two hexadecimal digits`)
		}
		return byte(n), 3, nil
	}
	return 0, 0, fmt.Errorf(`unknown escape \%c (there are: %s)`, s[0], templateHelp)
}

// append writes the record. Nothing follows that the template does not say.
func (t template) append(dst []byte, r evlog.Record) []byte {
	for _, part := range t {
		switch part.token {
		case 0:
			dst = append(dst, part.literal...)
		case 'o':
			dst = strconv.AppendUint(dst, r.Offset, 10)
		case 'T':
			dst = strconv.AppendInt(dst, r.Time.UnixMilli(), 10)
		case 'k':
			dst = append(dst, r.Key...)
		case 'K':
			dst = appendLength(dst, r.Key, len(r.Key) == 0)
		case 's':
			dst = append(dst, r.Value...)
		case 'S':
			dst = appendLength(dst, r.Value, r.Tombstone())
		case 'R':
			dst = binary.BigEndian.AppendUint32(dst, uint32(len(r.Value)))
		case 'c':
			dst = strconv.AppendUint(dst, uint64(r.Schema), 10)
		}
	}
	return dst
}

func appendLength(dst, b []byte, none bool) []byte {
	if none {
		return append(dst, "-1"...)
	}
	return strconv.AppendInt(dst, int64(len(b)), 10)
}
