package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What is printed for people cannot move the cursor, start a line, or change
// the direction of writing.
func TestAppendPrintable(t *testing.T) {
	tests := map[string]string{
		"plain text, \\ and \"": "plain text, \\ and \"",
		"äöü 𝄞 日本":              "äöü 𝄞 日本",
		"\n\r\t\x00\x1b[2J\x7f": `\n\r\t\x00\x1b[2J\x7f`,
		"\xff\xc3":              `\xff\xc3`,
		"a\u202eb\u2028\u0085":  `a\u202eb\u2028\u0085`,
		"\U000e0041":            `\U000e0041`,
		"\ufffd":                "\ufffd",
		"no\u00a0break":         `no\u00a0break`,
	}
	for in, want := range tests {
		require.Equal(t, want, string(appendPrintable(nil, []byte(in))), "%q", in)
	}
}
