package sqldriver

import (
	"bytes"

	"modernc.org/sqlite/vtab"
)

// keyMatch finds the records whose key can equal a value.
type keyMatch struct {
	key    []byte
	folded bool // NOCASE and RTRIM may be at work: case and trailing spaces do not count
	nul    bool // and key ends in a NUL, beyond which NOCASE does not look
	on     bool
}

// matchOf returns what "key = v" is looked up by. ok is false if no key equals v.
func matchOf(v vtab.Value, exact bool) (m keyMatch, ok bool) {
	switch v := v.(type) {
	case nil:
		return m, false
	case string:
		m = keyMatch{key: []byte(v), folded: !exact, on: true}
		if m.folded {
			m.fold()
		}
		return m, exact && len(v) > 0 || !exact
	case []byte:
		return keyMatch{key: bytes.Clone(v), on: true}, len(v) > 0
	}
	// With a number SQLite may compare a key as the number it looks like.
	return m, true
}

func (m *keyMatch) matches(key []byte) bool {
	if !m.on {
		return true
	}
	if !m.folded {
		return bytes.Equal(m.key, key)
	}
	if m.nul {
		key = key[:min(len(key), len(m.key))]
	} else {
		key = bytes.TrimRight(key, " ")
	}
	if len(key) != len(m.key) {
		return false
	}
	for i, c := range key {
		if lower(c) != m.key[i] {
			return false
		}
	}
	return true
}

// fold takes out of the key what one of the collations NOCASE and RTRIM does not
// compare.
func (m *keyMatch) fold() {
	if i := bytes.IndexByte(m.key, 0); i >= 0 {
		m.key, m.nul = m.key[:i+1], true
	} else {
		m.key = bytes.TrimRight(m.key, " ")
	}
	for i, c := range m.key {
		m.key[i] = lower(c)
	}
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}
