package format

import "strings"

// ValidID reports whether id can be that of a log: 1 to 64 printable characters of
// ASCII without spaces and "/", so that it can stand in front of "/" and an offset,
// and on a line.
func ValidID(id string) bool {
	return id != "" && len(id) <= 64 &&
		!strings.ContainsFunc(id, func(c rune) bool { return c <= ' ' || c >= 0x7f || c == '/' })
}
