package sqldriver

import (
	"bytes"

	"modernc.org/sqlite/vtab"
)

// keyMatch finds the records whose key can equal a value.
type keyMatch struct {
	key []byte
	on  bool
}

// matchOf returns what "key = v" is looked up by. ok is false if no key equals v.
func matchOf(v vtab.Value) (m keyMatch, ok bool) {
	switch v := v.(type) {
	case nil:
		return m, false
	case string:
		return keyMatch{key: []byte(v), on: true}, len(v) > 0
	case []byte:
		return keyMatch{key: bytes.Clone(v), on: true}, len(v) > 0
	}
	// With a number SQLite may compare a key as the number it looks like.
	return m, true
}

func (m *keyMatch) matches(key []byte) bool {
	return !m.on || bytes.Equal(m.key, key)
}
