package main

import (
	"encoding/json"
	"slices"
)

// patch is what was typed: Deleted code points at Position make way for Inserted.
type patch struct {
	Position int
	Deleted  int
	Inserted string
}

// UnmarshalJSON reads [position, deleted, "inserted"].
func (p *patch) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(b, &[]any{&p.Position, &p.Deleted, &p.Inserted})
}

// MarshalJSON writes what UnmarshalJSON reads.
func (p patch) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{p.Position, p.Deleted, p.Inserted})
}

// typeInto applies patches to a line. They were recorded in another text, so
// that a position may be beyond the line's end: it is the end then.
func typeInto(line string, patches []patch) string {
	text := []rune(line)
	for _, p := range patches {
		from := min(p.Position, len(text))
		to := min(from+p.Deleted, len(text))
		text = slices.Replace(text, from, to, []rune(p.Inserted)...)
	}
	return string(text)
}
