package jsonl

import (
	"bytes"
	"fmt"
	"unicode/utf16"
	"unicode/utf8"
)

// parser walks over JSON text, checking its grammar (RFC 8259). It remembers
// where it stands and builds nothing. That the text is UTF-8 is for the caller
// to check.
type parser struct {
	b []byte
	i int
}

// errorf makes an error that names the byte the parser stands at, from 1.
func (p *parser) errorf(format string, args ...any) error {
	return fmt.Errorf("byte %d: %s", p.i+1, fmt.Sprintf(format, args...))
}

// unexpected is the error for a byte that cannot come here.
func (p *parser) unexpected(want string) error {
	if p.i >= len(p.b) {
		return p.errorf("line ends where %s should be", want)
	}
	r, _ := utf8.DecodeRune(p.b[p.i:])
	return p.errorf("%q where %s should be", r, want)
}

func (p *parser) space() {
	for p.i < len(p.b) {
		switch p.b[p.i] {
		case ' ', '\t', '\r', '\n':
			p.i++
		default:
			return
		}
	}
}

// peek returns the next byte, 0 at the end. A zero byte is never legal where
// peek is asked.
func (p *parser) peek() byte {
	if p.i < len(p.b) {
		return p.b[p.i]
	}
	return 0
}

// next skips white space and takes c.
func (p *parser) next(c byte, want string) error {
	p.space()
	if p.peek() != c {
		return p.unexpected(want)
	}
	p.i++
	return nil
}

// value takes one JSON value of any kind. It keeps the open brackets itself:
// text nested a million deep costs a million bytes, not a stack overflow.
func (p *parser) value() error {
	var few [64]byte
	open := few[:0]
	for {
		p.space()
		switch c := p.peek(); c {
		case '{', '[':
			p.i++
			p.space()
			if p.peek() == c+2 { // closing brackets are two above opening ones
				p.i++
				break
			}
			open = append(open, c)
			if c == '{' {
				if err := p.memberName(); err != nil {
					return err
				}
			}
			continue
		default:
			if err := p.scalar(); err != nil {
				return err
			}
		}
		rest, err := p.closeValues(open)
		if err != nil || len(rest) == 0 {
			return err
		}
		open = rest
	}
}

// closeValues goes on after a complete value: over the brackets that end with
// it, up to where the next value starts. It returns the brackets still open.
func (p *parser) closeValues(open []byte) ([]byte, error) {
	for len(open) > 0 {
		top := open[len(open)-1]
		p.space()
		switch p.peek() {
		case ',':
			p.i++
			if top == '{' {
				return open, p.memberName()
			}
			return open, nil
		case top + 2:
			p.i++
			open = open[:len(open)-1]
		default:
			return open, p.unexpected(fmt.Sprintf("',' or %q", top+2))
		}
	}
	return open, nil
}

// memberName takes a name and its colon.
func (p *parser) memberName() error {
	p.space()
	if p.peek() != '"' {
		return p.unexpected("a field name")
	}
	if _, _, err := p.str(); err != nil {
		return err
	}
	return p.next(':', "':'")
}

// scalar takes a string, a number or one of the three words.
func (p *parser) scalar() error {
	switch c := p.peek(); {
	case c == '"':
		_, _, err := p.str()
		return err
	case c == '-' || c >= '0' && c <= '9':
		return p.number()
	case c == 't':
		return p.word("true")
	case c == 'f':
		return p.word("false")
	case c == 'n':
		return p.word("null")
	}
	return p.unexpected("a value")
}

func (p *parser) word(w string) error {
	if !bytes.HasPrefix(p.b[p.i:], []byte(w)) {
		return p.unexpected("a value")
	}
	p.i += len(w)
	return nil
}

func (p *parser) number() error {
	if p.peek() == '-' {
		p.i++
	}
	if p.peek() == '0' {
		p.i++
	} else if err := p.digits(); err != nil {
		return err
	}
	if p.peek() == '.' {
		p.i++
		if err := p.digits(); err != nil {
			return err
		}
	}
	if c := p.peek(); c == 'e' || c == 'E' {
		p.i++
		if c := p.peek(); c == '+' || c == '-' {
			p.i++
		}
		return p.digits()
	}
	return nil
}

// digits takes one digit or more.
func (p *parser) digits() error {
	start := p.i
	for c := p.peek(); c >= '0' && c <= '9'; c = p.peek() {
		p.i++
	}
	if p.i == start {
		return p.unexpected("a digit")
	}
	return nil
}

// str takes a string and returns what stands between the quotes, and whether
// it has escapes.
func (p *parser) str() (raw []byte, escaped bool, err error) {
	p.i++ // the opening quote
	start := p.i
	for p.i < len(p.b) {
		switch c := p.b[p.i]; {
		case c == '"':
			raw = p.b[start:p.i:p.i]
			p.i++
			return raw, escaped, nil
		case c == '\\':
			escaped = true
			if err := p.escape(); err != nil {
				return nil, false, err
			}
		case c < ' ':
			return nil, false, p.errorf("control character %#02x in a string, write it as \\u%04x", c, c)
		default:
			p.i++
		}
	}
	return nil, false, p.unexpected("the end of a string")
}

// escape takes a backslash and what belongs to it.
func (p *parser) escape() error {
	p.i++
	switch p.peek() {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		p.i++
		return nil
	case 'u':
		p.i++
		for range 4 {
			if _, ok := unhex(p.peek()); !ok {
				return p.unexpected("a hexadecimal digit")
			}
			p.i++
		}
		return nil
	}
	return p.unexpected("an escape")
}

func unhex(c byte) (rune, bool) {
	switch {
	case c >= '0' && c <= '9':
		return rune(c - '0'), true
	case c >= 'a' && c <= 'f':
		return rune(c-'a') + 10, true
	case c >= 'A' && c <= 'F':
		return rune(c-'A') + 10, true
	}
	return 0, false
}

// unescape returns the text of a string that str took. It fails on half of a
// surrogate pair: no text has such a character, so that something would have
// to be put in its place.
func unescape(raw []byte) ([]byte, error) {
	text := make([]byte, 0, len(raw)) // escapes only get shorter
	for {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 {
			return append(text, raw...), nil
		}
		text = append(text, raw[:i]...)
		raw = raw[i+1:]
		if raw[0] != 'u' {
			text = append(text, unescapeByte(raw[0]))
			raw = raw[1:]
			continue
		}
		r := hexRune(raw[1:])
		used := 5
		if utf16.IsSurrogate(r) {
			if len(raw) < 11 || raw[5] != '\\' || raw[6] != 'u' {
				return nil, fmt.Errorf("\\u%04x is half of a character", r)
			}
			low := hexRune(raw[7:])
			pair := utf16.DecodeRune(r, low)
			if pair == utf8.RuneError {
				return nil, fmt.Errorf("\\u%04x\\u%04x is no character", r, low)
			}
			r, used = pair, 11
		}
		text = utf8.AppendRune(text, r)
		raw = raw[used:]
	}
}

func unescapeByte(c byte) byte {
	switch c {
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	}
	return c // quote, backslash, slash
}

// hexRune reads four hexadecimal digits that escape has checked.
func hexRune(b []byte) (r rune) {
	for _, c := range b[:4] {
		d, _ := unhex(c)
		r = r<<4 | d
	}
	return r
}
