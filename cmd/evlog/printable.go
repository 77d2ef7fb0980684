package main

import (
	"unicode"
	"unicode/utf8"
)

// appendPrintable writes bytes for people: text as it is, with whatever could
// move the cursor, start a new line or hide itself shown as an escape.
func appendPrintable(dst, b []byte) []byte {
	for len(b) > 0 {
		if c := b[0]; c >= ' ' && c < utf8.RuneSelf-1 {
			dst = append(dst, c)
			b = b[1:]
			continue
		}
		r, size := utf8.DecodeRune(b)
		switch {
		case r == utf8.RuneError && size == 1, r < utf8.RuneSelf:
			dst = appendEscape(dst, b[0])
		case unicode.IsPrint(r):
			dst = append(dst, b[:size]...)
		default:
			dst = appendRuneEscape(dst, r)
		}
		b = b[size:]
	}
	return dst
}

const hexDigits = "0123456789abcdef"

func appendEscape(dst []byte, c byte) []byte {
	switch c {
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	}
	return append(dst, '\\', 'x', hexDigits[c>>4], hexDigits[c&15])
}

func appendRuneEscape(dst []byte, r rune) []byte {
	digits, mark := 4, byte('u')
	if r > 0xffff {
		digits, mark = 8, 'U'
	}
	dst = append(dst, '\\', mark)
	for shift := 4 * (digits - 1); shift >= 0; shift -= 4 {
		dst = append(dst, hexDigits[r>>shift&15])
	}
	return dst
}
