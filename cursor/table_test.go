package cursor

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evlog-go/evlog/evlog"
)

// Whatever stands in consumers.json: no panic, and what can be read is written
// so that it is read as the same, and as JSON by anybody.
func FuzzConsumersFile(f *testing.F) {
	t := newTable()
	t.bind("0f8b7c1e-6a0e-4d0b-9a43-5d2c1f4e7a90")
	f.Add(t.encode())
	t.put("uplink", entry{next: 4182, updatedMS: 1758337200123})
	t.put("<a & \u2028>", entry{next: 1<<64 - 1, updatedMS: -1, extra: map[string]json.RawMessage{"x": []byte(`{"y":[1,2]}`)}})
	f.Add(t.encode())
	t.bind("another")
	t.put("uplink", entry{next: 1})
	t.extra = map[string]json.RawMessage{"note": []byte(`"kept"`)}
	f.Add(t.encode())
	f.Add(t.encode()[:100])
	f.Add([]byte(`{"version":2}`))
	f.Add(make([]byte, 90))
	f.Fuzz(func(t *testing.T, b []byte) {
		read, err := decodeTable(b)
		if err != nil {
			require.Nil(t, read)
			return
		}
		require.NotEmpty(t, read.logID)
		written := read.encode()
		require.True(t, json.Valid(written), "%s", written)
		again, err := decodeTable(written)
		require.NoError(t, err, "%s", written)
		require.Equal(t, written, again.encode())
		require.Equal(t, read.positions(), again.positions())

		// A change of one consumer is no change of the others.
		again.put("\x00 no other can be called that", entry{next: 7})
		for _, p := range read.positions() {
			if p.LogID == read.logID {
				e, err := again.find(p.Name, read.logID)
				require.NoError(t, err)
				require.Equal(t, p.Next, e.next)
			}
		}
	})
}

// The version decides before anything else that may be wrong with the file.
func TestDecodeTable_VersionFirst(t *testing.T) {
	for content, later := range map[string]bool{
		`{"version":2}`:                    true,
		`{"version":9,"consumers":7}`:      true,
		`{"log_id":3,"version":2}`:         true,
		`{"version":2,"consumers":{"a":{}`: false, // no JSON: nobody knows what it is
		`{"version":1}`:                    false,
		`{"version":-2}`:                   false,
		`{"version":1e9}`:                  false,
	} {
		_, err := decodeTable([]byte(content))
		require.Error(t, err, content)
		require.Equal(t, later, errors.Is(err, evlog.ErrVersion), content)
	}
}

// A file goes to a log and back: the cursors that were set aside are there again.
func TestTable_BindBack(t *testing.T) {
	a := newTable()
	a.bind("one")
	a.put("x", entry{next: 1})
	a.put("y", entry{next: 2})
	first := a.encode()
	a.bind("two")
	_, err := a.find("x", "two")
	require.ErrorIs(t, err, ErrWrongLog)
	a.put("z", entry{next: 3})
	a.bind("one")
	e, err := a.find("y", "one")
	require.NoError(t, err)
	require.EqualValues(t, 2, e.next)
	require.True(t, a.drop("z"))
	require.False(t, a.drop("z"))
	require.True(t, bytes.Equal(first, a.encode()))
}
